//! Backoff between failed requests.

use std::time::Duration;

use doorman_openapi::Moment;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause while a lease is missing. A server that rate limits new leases may ask for
/// more: retrying sooner would only prolong that.
pub(super) const MAX_PAUSE_WITHOUT_LEASE: Duration = Duration::from_secs(4);
/// The pause after a rate limited request without a `Retry-After`.
pub(super) const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);
/// The longest `Retry-After` that is honored.
pub(super) const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// Exponential backoff with jitter. Failures during a pause count as one, because several requests
/// in flight fail together.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
    /// When the last failed request was sent.
    sent: Moment,
    until: Moment,
}

impl Backoff {
    /// Records a failure and begins a pause of twice the last length, half of it jitter, which
    /// `retry_after` lengthens. It ends at most `longest` after the request was sent, so that the
    /// time spent waiting for a hanging server is part of it.
    pub(super) fn record_failure(
        &mut self,
        retry_after: Option<Duration>,
        longest: Duration,
        sent: Moment,
        now: Moment,
        rng: &mut fastrand::Rng,
    ) {
        if now < self.until {
            return;
        }
        let longest = longest.max(FIRST_PAUSE);
        let ceiling = FIRST_PAUSE
            .saturating_mul(1 << self.failures.min(16))
            .max(retry_after.unwrap_or_default())
            .min(longest);
        self.failures = self.failures.saturating_add(1);
        self.sent = sent;
        let pause = ceiling.mul_f64(0.5 + 0.5 * rng.f64());
        self.until = now.after(pause).min(sent.after(longest));
    }

    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    pub(super) fn is_idle(&self) -> bool {
        self.failures == 0
    }

    /// When the pause ends. A lease that expires during the pause shortens it.
    pub(super) fn until(&self, lease_missing: bool) -> Moment {
        if lease_missing {
            self.until.min(self.sent.after(MAX_PAUSE_WITHOUT_LEASE))
        } else {
            self.until
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn fail(backoff: &mut Backoff, retry_after: Option<Duration>, longest: Duration, now: Moment) {
        let mut rng = fastrand::Rng::with_seed(1);
        backoff.record_failure(retry_after, longest, now, now, &mut rng);
    }

    fn pause(backoff: &Backoff, now: Moment) -> f64 {
        backoff.until(false).seconds_since(now)
    }

    #[test]
    fn pause_doubles_up_to_longest_and_resets_on_success() {
        let mut backoff = Backoff::default();
        let mut now = Moment::from_nanos(1);
        for ceiling in [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 4.0, 4.0] {
            fail(&mut backoff, None, MAX_PAUSE_WITHOUT_LEASE, now);
            let pause = pause(&backoff, now);
            assert!(
                (ceiling / 2.0..=ceiling).contains(&pause),
                "{pause} {ceiling}"
            );
            now = backoff.until(false);
        }
        backoff.reset();
        fail(&mut backoff, None, LONG, now);
        assert!(pause(&backoff, now) <= 0.1);
    }

    #[test]
    fn failures_during_a_pause_count_once() {
        let mut backoff = Backoff::default();
        let now = Moment::from_nanos(1);
        for _ in 0..100 {
            fail(&mut backoff, None, LONG, now);
        }
        assert!(pause(&backoff, now) <= 0.1);
    }

    #[test]
    fn retry_after_is_honored_within_longest() {
        let now = Moment::from_nanos(1);
        let mut backoff = Backoff::default();
        fail(&mut backoff, Some(Duration::from_secs(20)), LONG, now);
        assert!(pause(&backoff, now) >= 10.0);
        let mut backoff = Backoff::default();
        fail(
            &mut backoff,
            Some(Duration::MAX),
            MAX_PAUSE_WITHOUT_LEASE,
            now,
        );
        assert!(pause(&backoff, now) <= 4.0);
    }

    #[test]
    fn time_waited_for_hanging_server_is_part_of_pause() {
        let mut rng = fastrand::Rng::with_seed(1);
        let sent = Moment::from_nanos(1);
        let now = sent.after(MAX_PAUSE_WITHOUT_LEASE);
        let mut backoff = Backoff::default();
        backoff.record_failure(None, MAX_PAUSE_WITHOUT_LEASE, sent, now, &mut rng);
        assert_eq!(backoff.until(true), now);
        assert!(!backoff.is_idle());
    }

    #[test]
    fn missing_lease_shortens_pause() {
        let now = Moment::from_nanos(1);
        let mut backoff = Backoff::default();
        fail(&mut backoff, Some(LONG), LONG, now);
        assert!(backoff.until(false).seconds_since(now) >= 30.0);
        assert_eq!(backoff.until(true), now.after(MAX_PAUSE_WITHOUT_LEASE));
    }
}
