//! What one side of a comparison cost, round by round.

/// One figure a round, in the order of the rounds; at least one.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures(Vec<f64>);

impl Figures {
    /// A figure that does not differ from round to round, such as a number of bytes.
    #[must_use]
    pub fn constant(figure: f64) -> Self {
        Self(vec![figure])
    }

    /// The least of all rounds: the least disturbed one, when a figure is a cost. NaN without any.
    #[must_use]
    pub fn least(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::min)
    }

    /// The largest of all rounds: the least disturbed one, when a figure is a rate. NaN without any.
    #[must_use]
    pub fn most(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::max)
    }

    /// The middle one, or the mean of the two in the middle. NaN without any.
    #[must_use]
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let upper = sorted.get(middle).copied().unwrap_or(f64::NAN);
        if sorted.len().is_multiple_of(2) {
            let lower = sorted.get(middle.wrapping_sub(1)).copied();
            f64::midpoint(lower.unwrap_or(f64::NAN), upper)
        } else {
            upper
        }
    }

    /// Round by round, this divided by the other: what disturbs the machine for longer than a round disturbs both alike.
    #[must_use]
    pub fn over(&self, other: &Self) -> Self {
        self.zip(other, |this, other| this / other)
    }

    /// Round by round, this less the other: what comes on top of a floor that both share.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        self.zip(other, |this, other| this - other)
    }

    fn zip(&self, other: &Self, with: impl Fn(f64, f64) -> f64) -> Self {
        let pairs = self.0.iter().zip(&other.0);
        Self(pairs.map(|(this, other)| with(*this, *other)).collect())
    }
}

impl FromIterator<f64> for Figures {
    fn from_iter<I: IntoIterator<Item = f64>>(rounds: I) -> Self {
        Self(rounds.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_lies_between_the_two_in_the_middle() {
        let median = |rounds: &[f64]| Figures(rounds.to_vec()).median();
        assert_eq!(median(&[3.0]), 3.0);
        assert_eq!(median(&[9.0, 1.0, 3.0]), 3.0);
        assert_eq!(median(&[9.0, 1.0, 3.0, 4.0]), 3.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn a_ratio_is_taken_round_by_round() {
        let a = Figures(vec![10.0, 100.0, 12.0]);
        let b = Figures(vec![5.0, 50.0, 4.0]);
        assert_eq!(a.over(&b).median(), 2.0);
        assert_eq!(a.minus(&b).most(), 50.0);
        assert_eq!(a.minus(&b).least(), 5.0);
    }
}
