//! Points in time of one process.

use std::time::Duration;

use crate::Seconds;

/// A point in time on the monotonic clock of a process, which includes suspends.
///
/// It has no meaning for other processes: only durations go over the wire. Arithmetic saturates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(u64);

const NANOS_PER_SECOND: f64 = 1e9;

impl Moment {
    /// The origin of the clock.
    pub const ORIGIN: Self = Self(0);
    /// Later than all other moments.
    pub const NEVER: Self = Self(u64::MAX);

    /// The moment this many nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The moment a duration later.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)),
        )
    }

    /// The moment this many seconds later; a negative number or NaN is zero.
    #[must_use]
    pub fn after_seconds(self, seconds: f64) -> Self {
        // The cast saturates, and NaN becomes zero.
        Self(self.0.saturating_add((seconds * NANOS_PER_SECOND) as u64))
    }

    /// The duration since `earlier`; zero if that is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Seconds since `earlier`; zero if that is later.
    #[must_use]
    pub fn seconds_since(self, earlier: Self) -> f64 {
        let nanos = self.0.saturating_sub(earlier.0);
        // The processor converts signed numbers.
        i64::try_from(nanos).unwrap_or(i64::MAX) as f64 / NANOS_PER_SECOND
    }
}

impl Seconds {
    /// As a `Duration`.
    #[must_use]
    pub fn duration(self) -> Duration {
        Duration::try_from_secs_f64(self.get()).unwrap_or_default()
    }
}

impl From<Duration> for Seconds {
    /// At most a year.
    fn from(duration: Duration) -> Self {
        Self::saturating(duration.as_secs_f64())
    }
}
