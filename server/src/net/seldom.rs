//! What the log is told of now and then, however often it happens.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use doorman_openapi::Moment;

/// How often, at most.
const PERIOD: Duration = Duration::from_secs(60);

/// One such thing: from when on it may be told again, in nanoseconds on the clock.
#[derive(Debug, Default)]
pub(super) struct Seldom(AtomicU64);

impl Seldom {
    /// Whether to tell of it now. Where several ask at the same time, each may be told to.
    pub(super) fn is_due(&self, now: Moment) -> bool {
        let is_due = now.as_nanos() >= self.0.load(Relaxed);
        if is_due {
            self.0.store(now.after(PERIOD).as_nanos(), Relaxed);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_all_the_time_is_told_once_a_minute() {
        let seldom = Seldom::default();
        let told = (0..600).filter(|second| {
            let now = Moment::ORIGIN.after(Duration::from_secs(100 + second));
            seldom.is_due(now)
        });
        assert_eq!(told.count(), 10);
    }
}
