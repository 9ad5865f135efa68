//! Rates stated by the program: an amount per time.

use std::{fmt, time::Duration};

/// An amount per time, from 1e-9 to 1e9 per second. Made by [`per_second`], [`per_minute`] and
/// [`per_hour`] of integers, and by [`Quota::new`].
///
/// ```
/// use std::time::Duration;
/// use tower_doorman::{Limit, Quota, per_minute, per_second};
///
/// const PAGES: Quota = per_minute(600);
///
/// let pages = Limit::local(PAGES);
/// let files = Limit::local(per_second(50));
/// let reports = Limit::local(Quota::new(2.5, Duration::from_secs(86_400))?);
/// # Ok::<(), tower_doorman::InvalidQuota>(())
/// ```
#[derive(Clone, Copy, PartialEq)]
pub struct Quota {
    amount: f64,
    /// In seconds.
    per: f64,
}

/// A quota that is 0, not a number or out of range.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("quota must be from 1e-9 to 1e9 per second")]
pub struct InvalidQuota;

crate::error::debug_as_text!(InvalidQuota);

/// A bucket cannot count single tokens at faster rates.
const MAX_RATE: f64 = 1e9;
/// One in thirty years.
const MIN_RATE: f64 = 1e-9;

/// A number of requests per second, or their total cost.
///
/// # Panics
/// If it is 0 or above 1e9. In a constant this is a compile error.
#[must_use]
pub const fn per_second(requests: u32) -> Quota {
    integer(requests, 1.0)
}

/// A number of requests per minute, or their total cost.
///
/// # Panics
/// If it is 0. In a constant this is a compile error.
#[must_use]
pub const fn per_minute(requests: u32) -> Quota {
    integer(requests, 60.0)
}

/// A number of requests per hour, or their total cost.
///
/// # Panics
/// If it is 0. In a constant this is a compile error.
#[must_use]
pub const fn per_hour(requests: u32) -> Quota {
    integer(requests, 3_600.0)
}

const fn integer(requests: u32, per: f64) -> Quota {
    let amount = requests as f64;
    let quota = Quota { amount, per };
    assert!(
        quota.is_valid(),
        "quota must be from 1e-9 to 1e9 per second"
    );
    quota
}

impl Quota {
    /// An amount per time.
    ///
    /// # Errors
    /// [`InvalidQuota`] if that is not a number from 1e-9 to 1e9 per second.
    pub fn new(amount: f64, per: Duration) -> Result<Self, InvalidQuota> {
        let per = per.as_secs_f64();
        let quota = Self { amount, per };
        quota.is_valid().then_some(quota).ok_or(InvalidQuota)
    }

    /// False for NaN.
    const fn is_valid(self) -> bool {
        let rate = self.amount / self.per;
        rate >= MIN_RATE && rate <= MAX_RATE
    }

    pub(crate) fn amount(self) -> f64 {
        self.amount
    }

    /// In seconds.
    pub(crate) fn per(self) -> f64 {
        self.per
    }

    /// Per second.
    pub(crate) fn rate(self) -> f64 {
        self.amount / self.per
    }
}

impl fmt::Debug for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} per {} s", self.amount, self.per)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn out_of_range_quotas_are_rejected() {
        for bad in [
            0.0,
            -0.0,
            -1.0,
            1e-10,
            1.1e9,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
        ] {
            assert_eq!(Quota::new(bad, SECOND), Err(InvalidQuota), "{bad}");
        }
        assert_eq!(Quota::new(1.0, Duration::ZERO), Err(InvalidQuota));
        assert_eq!(Quota::new(0.0, Duration::ZERO), Err(InvalidQuota));
        assert_eq!(Quota::new(1.0, Duration::MAX), Err(InvalidQuota));
        for quota in [per_second, per_minute, per_hour] {
            assert!(std::panic::catch_unwind(|| quota(0)).is_err());
        }
        assert!(std::panic::catch_unwind(|| per_second(u32::MAX)).is_err());
    }

    #[test]
    fn quota_has_an_amount_a_time_and_a_rate() {
        for (quota, amount, seconds, rate) in [
            (per_second(50), 50.0, 1, 50.0),
            (per_minute(30), 30.0, 60, 0.5),
            (
                per_hour(u32::MAX),
                4_294_967_295.0,
                3_600,
                4_294_967_295.0 / 3_600.0,
            ),
        ] {
            assert_eq!(quota.rate(), rate);
            let per = Duration::from_secs(seconds);
            assert_eq!(Quota::new(amount, per), Ok(quota));
        }
    }
}
