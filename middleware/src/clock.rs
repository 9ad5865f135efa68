//! The one door to the time: everything else is told what time it is.

mod recent;

use doorman_openapi::Moment;
#[cfg(not(test))]
use rustix::time::{ClockId, clock_gettime};

pub(crate) use self::recent::{SLACK_NANOS, recent};

/// Now, on the clock that runs through a suspend where the system has one (Linux): a process that slept past the end of its lease
/// must find it ended.
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
    // Neither part is ever negative on these clocks; the cast of the parts cannot lose anything for 292 years.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Moment::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// Now, on tokio's clock, which tests pause and advance by hand. It begins about an hour after the origin, so that nothing under test
/// sits at the edge of what can be told.
#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "this is the clock module: under test the time is tokio's"
)]
pub(crate) fn now() -> Moment {
    use std::{sync::OnceLock, time::Duration, time::Instant};

    const HOUR: Duration = Duration::from_secs(3600);
    // The real clock, which no test advances: tests of one process have a runtime, and so a paused clock, each.
    static BASE: OnceLock<Instant> = OnceLock::new();
    let base = *BASE.get_or_init(Instant::now);
    let now = tokio::time::Instant::now().into_std();
    let ahead = now.saturating_duration_since(base);
    let behind = base.saturating_duration_since(now);
    Moment::ORIGIN.after((HOUR + ahead).saturating_sub(behind))
}
