//! A limit that the program states itself: so much in so much time.

use std::{fmt, time::Duration};

/// So much in so much time: from 1e-9 to 1e9 a second. Made by [`per_second`], [`per_minute`] and [`per_hour`] of whole numbers,
/// and by [`Quota::new`] of any.
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
    /// The time, in seconds.
    per: f64,
}

/// Why so much in so much time is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a limit must be from 1e-9 to 1e9 a second")]
pub struct InvalidQuota;

/// Beyond it a bucket could not tell one token from none; see the limiter's arithmetic.
const FASTEST: f64 = 1e9;
/// One in thirty years.
const SLOWEST: f64 = 1e-9;

/// So many requests a second, or what they cost together.
///
/// # Panics
/// When it is 0, or above a thousand million: a limit that admits nothing, or everything, was not meant. In a constant this is an
/// error of compilation.
#[must_use]
pub const fn per_second(requests: u32) -> Quota {
    whole(requests, 1.0)
}

/// So many requests a minute, or what they cost together.
///
/// # Panics
/// When it is 0, as [`per_second`] does.
#[must_use]
pub const fn per_minute(requests: u32) -> Quota {
    whole(requests, 60.0)
}

/// So many requests an hour, or what they cost together.
///
/// # Panics
/// When it is 0, as [`per_second`] does.
#[must_use]
pub const fn per_hour(requests: u32) -> Quota {
    whole(requests, 3_600.0)
}

const fn whole(requests: u32, per: f64) -> Quota {
    let quota = Quota {
        amount: requests as f64,
        per,
    };
    assert!(
        quota.is_valid(),
        "a limit must be from 1e-9 to 1e9 a second"
    );
    quota
}

impl Quota {
    /// So much in so much time.
    ///
    /// # Errors
    /// [`InvalidQuota`] when that is not a number from 1e-9 to 1e9 a second: 0, negative, or beyond what can be told apart.
    pub fn new(amount: f64, per: Duration) -> Result<Self, InvalidQuota> {
        let quota = Self {
            amount,
            per: per.as_secs_f64(),
        };
        if quota.is_valid() {
            Ok(quota)
        } else {
            Err(InvalidQuota)
        }
    }

    const fn is_valid(self) -> bool {
        // What is not a number is in no range.
        let rate = self.amount / self.per;
        rate >= SLOWEST && rate <= FASTEST
    }

    pub(crate) fn amount(self) -> f64 {
        self.amount
    }

    /// The time, in seconds.
    pub(crate) fn per(self) -> f64 {
        self.per
    }

    /// How much a second.
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
    fn what_is_no_limit_cannot_be_built() {
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
    fn the_time_is_part_of_the_limit() {
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
