//! The time as it was at the last tick of the kernel: what a decision on a request reads, in a few nanoseconds.
//!
//! Reading a clock to the nanosecond is the dearest part of a decision: the processor finishes all that went before first, so that not
//! even the memory accesses of successive decisions overlap. The kernel's coarse clock costs a load, but there is none that runs through
//! a suspend. So the precise clock is read once a tick, by whoever decides first in it, and is taken for the rest of that tick.
//!
//! - *It never runs ahead*: what is told was the time a moment ago. By an earlier time fewer tokens have been issued, so whom it admits
//!   would be admitted now. Whom it does not admit is decided on by the precise clock, which is also what promises count from.
//! - *It is never old*: it is told only while the kernel still says that it is the same tick. After SIGCONT, or a suspend, before which
//!   the kernel's clock is brought forward, it is another tick, and the precise clock is read. A time kept by this process alone would
//!   be stale just then.
//! - *Late by a tick* (1 to 10 ms; more where a virtual machine is kept from its processor), it must not say how long a lease lasts:
//!   within [`SLACK_NANOS`] of an end the precise clock decides. What passes in some time is bounded as if requests came up to a tick
//!   earlier than they do.

#[cfg(any(test, target_os = "linux"))]
use std::sync::atomic::{AtomicU64, Ordering};

use doorman_openapi::Moment;

/// Far more than the recent time is ever late, in nanoseconds. It costs nothing: leases are renewed long before they end.
pub(crate) const SLACK_NANOS: u64 = 1_000_000_000;

/// The time at the last tick, or a little after it.
#[cfg(all(target_os = "linux", not(test)))]
pub(crate) fn recent() -> Moment {
    use rustix::time::ClockId;

    static LAST: Last = Last::new();
    LAST.in_tick(super::read(ClockId::MonotonicCoarse), super::now)
}

/// Now: there is no cheaper clock here, and tests hold the time by hand.
#[cfg(any(not(target_os = "linux"), test))]
pub(crate) fn recent() -> Moment {
    super::now()
}

/// The tick that was last seen, and a time in it.
#[cfg(any(test, target_os = "linux"))]
#[derive(Debug)]
struct Last {
    tick: AtomicU64,
    time: AtomicU64,
}

#[cfg(any(test, target_os = "linux"))]
impl Last {
    const fn new() -> Self {
        Self {
            tick: AtomicU64::new(0),
            time: AtomicU64::new(0),
        }
    }

    /// The time in the tick that it is now, which `now` tells if nobody has asked in it.
    fn in_tick(&self, tick: Moment, now: impl FnOnce() -> Moment) -> Moment {
        // Whoever wrote this tick had written the time before: what is loaded next is that time or a later one.
        if self.tick.load(Ordering::Acquire) == tick.as_nanos() {
            return Moment::from_nanos(self.time.load(Ordering::Relaxed));
        }
        let now = now();
        // Both only grow: one that was stopped in here, and goes on long after, puts no old time into the tick of others.
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
    fn the_precise_clock_is_read_once_a_tick() {
        let last = Last::new();
        assert_eq!(last.in_tick(at(4), || at(105)), at(105));
        assert_eq!(last.in_tick(at(4), || unreachable!()), at(105));
        assert_eq!(last.in_tick(at(8), || at(109)), at(109));
        assert_eq!(last.in_tick(at(8), || unreachable!()), at(109));
    }

    #[test]
    fn after_a_stop_or_a_suspend_the_time_is_never_that_of_before() {
        let last = Last::new();
        last.in_tick(at(4), || at(105));
        // Suspended for long: the tick is the next, or hardly later, and the precise clock far ahead.
        assert_eq!(last.in_tick(at(5), || at(9_000)), at(9_000));
        // One that was stopped between reading the clock and writing it down goes on only now.
        let late = last.in_tick(at(4), || {
            last.in_tick(at(6), || at(9_100));
            at(105)
        });
        assert_eq!(late, at(105));
        assert_eq!(last.in_tick(at(6), || unreachable!()), at(9_100));
    }
}
