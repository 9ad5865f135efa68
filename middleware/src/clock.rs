//! Clocks of the layer. Everything else takes the time as an argument.
//!
//! [`now`] is precise. [`coarse_now`] is the time at the kernel's last tick and costs a few
//! nanoseconds: reading a precise clock serializes the processor and is the most expensive part of
//! a decision. The kernel's own coarse clock stands still during a suspend, so it only tells
//! whether the tick has changed; the first decision in a tick reads the precise clock for all.
//!
//! The coarse time is never ahead, so that what it admits would be admitted now; rejections and
//! promises use the precise clock. It is never from before a stop or a suspend, because the tick is
//! another one then. It is late by up to a tick (1 to 10 ms, more on a busy virtual machine):
//! within [`COARSE_SLACK_NANOS`] of the end of a lease the precise clock decides.
//!
//! Limits without leases follow [tokio's clock](Clock::Tokio), so that tests of services can pause
//! and advance it.

#[cfg(any(test, target_os = "linux"))]
use std::sync::atomic::{AtomicU64, Ordering};
use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

use doorman_openapi::Moment;
#[cfg(not(test))]
use rustix::time::{ClockId, clock_gettime};

/// More than the coarse time is ever late, in nanoseconds. Leases are renewed long before this.
pub(crate) const COARSE_SLACK_NANOS: u64 = 1_000_000_000;

/// The clock of the limits of a registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clock {
    /// [`now`], which runs through a suspend: leases must expire meanwhile.
    Machine,
    /// That of tokio, which a test may have paused. It needs no runtime.
    Tokio,
}

impl Clock {
    pub(crate) fn now(self) -> Moment {
        match self {
            Self::Machine => now(),
            Self::Tokio => tokio_now(),
        }
    }

    /// [`coarse_now`], where the clock has one.
    #[inline]
    pub(crate) fn coarse_now(self) -> Moment {
        match self {
            Self::Machine => coarse_now(),
            Self::Tokio => tokio_now(),
        }
    }
}

/// On Linux, by the clock that runs through a suspend: leases must expire meanwhile.
#[cfg(not(test))]
pub(crate) fn now() -> Moment {
    #[cfg(target_os = "linux")]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: ClockId = ClockId::Monotonic;

    read(CLOCK)
}

#[cfg(not(test))]
fn read(clock: ClockId) -> Moment {
    let time = clock_gettime(clock);
    // Neither part is negative on these clocks, and the sum lasts for 584 years.
    let seconds = time.tv_sec.cast_unsigned();
    let nanos = time.tv_nsec.cast_unsigned();
    Moment::from_nanos(seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos))
}

/// On tokio's clock, which tests pause and advance.
#[cfg(test)]
pub(crate) fn now() -> Moment {
    tokio_now()
}

/// The time of tokio's clock, which is an hour after the origin at its base.
#[cold]
#[expect(
    clippy::disallowed_methods,
    reason = "this is the clock module: limits without leases may stand still during a suspend"
)]
fn tokio_now() -> Moment {
    const HOUR: Duration = Duration::from_secs(3600);
    let (base, now) = (base(), tokio::time::Instant::now().into_std());
    let ahead = now.saturating_duration_since(base);
    let behind = base.saturating_duration_since(now);
    Moment::ORIGIN.after((HOUR + ahead).saturating_sub(behind))
}

/// By the real clock: tests of one process each have a runtime with its own paused clock.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the clock module, and only differences to this moment matter"
)]
fn base() -> Instant {
    static BASE: OnceLock<Instant> = OnceLock::new();
    #[cfg(test)]
    if let Some(start) = START.get() {
        return start;
    }
    *BASE.get_or_init(Instant::now)
}

#[cfg(test)]
thread_local! {
    static START: std::cell::Cell<Option<Instant>> = const { std::cell::Cell::new(None) };
}

/// Begins again an hour after the origin on this thread, so that a run can be repeated exactly.
#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "this is the clock module: under test the time is tokio's"
)]
pub(crate) fn restart() {
    START.set(Some(tokio::time::Instant::now().into_std()));
}

/// The time at the kernel's last tick, or a little later.
#[cfg(all(target_os = "linux", not(test)))]
pub(crate) fn coarse_now() -> Moment {
    static TICK: Tick = Tick::new();
    TICK.time(read(ClockId::MonotonicCoarse), now)
}

/// Now: this platform has no cheaper clock, and tests set the time.
#[cfg(any(not(target_os = "linux"), test))]
pub(crate) fn coarse_now() -> Moment {
    now()
}

/// The newest tick, and a time in it.
#[cfg(any(test, target_os = "linux"))]
#[derive(Debug)]
struct Tick {
    tick: AtomicU64,
    time: AtomicU64,
}

#[cfg(any(test, target_os = "linux"))]
impl Tick {
    const fn new() -> Self {
        Self {
            tick: AtomicU64::new(0),
            time: AtomicU64::new(0),
        }
    }

    /// The time recorded in this tick, or else `now`.
    fn time(&self, tick: Moment, now: impl FnOnce() -> Moment) -> Moment {
        // The time was stored before its tick, so the time loaded next is that one or a later one.
        if self.tick.load(Ordering::Acquire) == tick.as_nanos() {
            return Moment::from_nanos(self.time.load(Ordering::Relaxed));
        }
        let now = now();
        // Both only grow: a thread that was stopped here cannot put an old time into a new tick.
        self.time.fetch_max(now.as_nanos(), Ordering::Relaxed);
        self.tick.fetch_max(tick.as_nanos(), Ordering::Release);
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Moment {
        Moment::from_nanos(nanos)
    }

    #[test]
    fn precise_clock_is_read_once_per_tick() {
        let tick = Tick::new();
        assert_eq!(tick.time(at(4), || at(105)), at(105));
        assert_eq!(tick.time(at(4), || unreachable!()), at(105));
        assert_eq!(tick.time(at(8), || at(109)), at(109));
        assert_eq!(tick.time(at(8), || unreachable!()), at(109));
    }

    #[test]
    fn stopped_thread_leaves_no_old_time() {
        let tick = Tick::new();
        tick.time(at(4), || at(105));
        // After a suspend the tick is hardly later, but the precise clock is far ahead.
        assert_eq!(tick.time(at(5), || at(9_000)), at(9_000));
        // A thread that was stopped between reading the clock and storing the time.
        let late = tick.time(at(4), || {
            tick.time(at(6), || at(9_100));
            at(105)
        });
        assert_eq!(late, at(105));
        assert_eq!(tick.time(at(6), || unreachable!()), at(9_100));
    }
}
