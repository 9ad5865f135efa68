//! Cost of a request.

use std::fmt;

/// The tokens that a request takes of a limit, in the resource's own unit: above 0, at most 1e15.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
pub struct Cost(f64);

/// A number that is not a cost.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cost must be a number above 0 and at most 1e15")]
pub struct InvalidCost;

crate::error::debug_as_text!(InvalidCost);

impl Cost {
    /// One, the default.
    pub const ONE: Self = Self(1.0);
    /// The largest cost.
    pub const MAX: Self = Self(1e15);

    /// Validates a number.
    ///
    /// # Errors
    /// [`InvalidCost`] if it is not a number above 0 and at most 1e15.
    pub fn new(cost: f64) -> Result<Self, InvalidCost> {
        let valid = cost > 0.0 && cost <= Self::MAX.0;
        valid.then_some(Self(cost)).ok_or(InvalidCost)
    }

    /// The sum, at most [`MAX`](Self::MAX).
    pub(crate) fn plus(self, other: Self) -> Self {
        Self((self.0 + other.0).min(Self::MAX.0))
    }

    /// The next whole number, for a gauge.
    pub(crate) fn whole(self) -> Self {
        Self(self.0.ceil())
    }

    /// The cost as a number.
    #[must_use]
    pub fn get(self) -> f64 {
        self.0
    }
}

impl Default for Cost {
    fn default() -> Self {
        Self::ONE
    }
}

impl fmt::Debug for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_of_range_costs_are_rejected() {
        for bad in [
            0.0,
            -0.0,
            -1.0,
            1.1e15,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
        ] {
            assert_eq!(Cost::new(bad), Err(InvalidCost), "{bad}");
        }
        for good in [1e-300, 1.0, 1e15] {
            assert_eq!(Cost::new(good).unwrap().get(), good);
        }
    }
}
