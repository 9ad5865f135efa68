//! A point in time that never crosses the wire.

use std::time::Duration;

use crate::Seconds;

/// A point in time on one process's own clock, which only runs forward and runs through a suspend.
///
/// What it counts from means nothing to any other process: lengths travel, moments do not. Arithmetic saturates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(u64);

const NANOS_PER_SECOND: f64 = 1e9;

impl Moment {
    /// The origin of the clock.
    pub const ORIGIN: Self = Self(0);
    /// Later than any moment that comes.
    pub const NEVER: Self = Self(u64::MAX);

    /// The moment so many nanoseconds after the clock's origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The moment so much later.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)),
        )
    }

    /// The moment so many seconds later; a negative number or NaN counts as none.
    #[must_use]
    pub fn after_seconds(self, seconds: f64) -> Self {
        // A float-to-integer cast saturates, and takes NaN to zero.
        Self(self.0.saturating_add((seconds * NANOS_PER_SECOND) as u64))
    }

    /// How long after `earlier` this is; zero when it is not after it.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Seconds after `earlier`; zero when it is not after it.
    #[must_use]
    pub fn seconds_since(self, earlier: Self) -> f64 {
        self.0.saturating_sub(earlier.0) as f64 / NANOS_PER_SECOND
    }
}

impl Seconds {
    /// The same length as a `Duration`, to the nanosecond.
    #[must_use]
    pub fn duration(self) -> Duration {
        Duration::try_from_secs_f64(self.get()).unwrap_or_default()
    }
}

impl From<Duration> for Seconds {
    /// Taken to the longest length, a year, when it is longer.
    fn from(duration: Duration) -> Self {
        Self::saturating(duration.as_secs_f64())
    }
}
