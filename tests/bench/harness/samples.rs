//! Rounds of alternating sides, and the figures that they measure.
//!
//! Other load of the machine affects all sides of a round alike.

use std::time::Instant;

/// The figures of one side, one per round.
#[derive(Debug, Clone, PartialEq)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// A figure that is the same in every round, such as a number of bytes.
    #[must_use]
    pub fn constant(figure: f64) -> Self {
        Self(vec![figure])
    }

    /// The smallest figure: of a cost, the least disturbed round. NaN without samples.
    #[must_use]
    pub fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::min)
    }

    /// The largest figure: of a rate, the least disturbed round. NaN without samples.
    #[must_use]
    pub fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::max)
    }

    /// The median. NaN without samples.
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

    /// The ratio to another side, round by round.
    #[must_use]
    pub fn ratio_to(&self, other: &Self) -> Self {
        self.zip(other, |this, other| this / other)
    }

    /// The difference from another side, round by round.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        self.zip(other, |this, other| this - other)
    }

    fn zip(&self, other: &Self, with: impl Fn(f64, f64) -> f64) -> Self {
        let pairs = self.0.iter().zip(&other.0);
        pairs.map(|(this, other)| with(*this, *other)).collect()
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(rounds: I) -> Self {
        Self(rounds.into_iter().collect())
    }
}

/// One side of a comparison: runs one round and returns its figure.
pub type Side<'a, T = f64> = &'a mut dyn FnMut() -> T;

/// Runs the rounds of all sides alternately, every second time in reverse order.
///
/// A first round warms up and is not counted.
pub fn alternate<const N: usize>(rounds: usize, sides: [Side<'_>; N]) -> [Samples; N] {
    alternate_results(rounds, sides).map(|figures| figures.into_iter().collect())
}

/// Like [`alternate`], for rounds that return several figures or fail.
pub fn alternate_results<T, const N: usize>(
    rounds: usize,
    mut sides: [Side<'_, T>; N],
) -> [Vec<T>; N] {
    let mut results = [(); N].map(|()| Vec::with_capacity(rounds));
    for round in 0..=rounds {
        let run = |(side, results): (&mut Side<'_, T>, &mut Vec<T>)| {
            let result = side();
            if round > 0 {
                results.push(result);
            }
        };
        let pairs = sides.iter_mut().zip(&mut results);
        if round.is_multiple_of(2) {
            pairs.for_each(run);
        } else {
            pairs.rev().for_each(run);
        }
    }
    results
}

/// Runs `work`, which does something `iterations` times. Returns the nanoseconds per iteration.
#[expect(
    clippy::disallowed_methods,
    reason = "measures elapsed time, not a lease"
)]
pub fn nanos_per_iteration(iterations: usize, work: impl FnOnce()) -> f64 {
    let started = Instant::now();
    work();
    started.elapsed().as_secs_f64() * 1e9 / iterations as f64
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn median_of_even_count_is_midpoint() {
        let median = |rounds: &[f64]| Samples(rounds.to_vec()).median();
        assert_eq!(median(&[3.0]), 3.0);
        assert_eq!(median(&[9.0, 1.0, 3.0]), 3.0);
        assert_eq!(median(&[9.0, 1.0, 3.0, 4.0]), 3.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn ratio_and_difference_are_taken_by_round() {
        let a = Samples(vec![10.0, 100.0, 12.0]);
        let b = Samples(vec![5.0, 50.0, 4.0]);
        assert_eq!(a.ratio_to(&b).median(), 2.0);
        assert_eq!(a.minus(&b).max(), 50.0);
        assert_eq!(a.minus(&b).min(), 5.0);
    }

    #[test]
    fn sides_alternate_and_first_round_is_dropped() {
        let order = RefCell::new(String::new());
        let [a, b] = alternate(
            3,
            [
                &mut || {
                    order.borrow_mut().push('a');
                    order.borrow().len() as f64
                },
                &mut || {
                    order.borrow_mut().push('b');
                    0.0
                },
            ],
        );
        assert_eq!(*order.borrow(), "abbaabba");
        assert_eq!(a, [4.0, 5.0, 8.0].into_iter().collect());
        assert_eq!(b, [0.0; 3].into_iter().collect());
    }
}
