//! The server's clocks. Code below takes the time as an argument.

use std::time::{SystemTime, UNIX_EPOCH};

use doorman_openapi::Moment;

/// The current time on a clock that runs while the machine is suspended, where the system has one
/// (Linux): a lease expires during a suspend.
#[cfg(not(test))]
pub(crate) fn now() -> Moment {
    use rustix::time::{ClockId, clock_gettime};

    #[cfg(target_os = "linux")]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: ClockId = ClockId::Monotonic;

    let time = clock_gettime(CLOCK);
    // Neither part is ever negative on these clocks.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Moment::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// The current time on tokio's clock, which tests pause and advance. It starts about an hour after
/// the origin, so that tests can subtract from it.
#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "this is the clock module: under test the time is tokio's"
)]
pub(crate) fn now() -> Moment {
    use std::{sync::OnceLock, time::Duration, time::Instant};

    const HOUR: Duration = Duration::from_secs(3600);
    // The real clock: each test has its own runtime, and so its own paused clock.
    static BASE: OnceLock<Instant> = OnceLock::new();
    let base = *BASE.get_or_init(Instant::now);
    let now = tokio::time::Instant::now().into_std();
    let ahead = now.saturating_duration_since(base);
    let behind = base.saturating_duration_since(now);
    Moment::ORIGIN.after((HOUR + ahead).saturating_sub(behind))
}

/// The wall clock in Unix seconds, for display and epochs only, never for lease lengths.
#[expect(
    clippy::disallowed_methods,
    reason = "displayed times and the epoch come from the wall clock"
)]
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
