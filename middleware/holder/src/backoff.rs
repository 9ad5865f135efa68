//! Backoff between failed requests.

use std::time::Duration;

use doorman_openapi::Moment;

use crate::tuning::Tuning;

/// The pause after a rate limited request without a `Retry-After`.
pub const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);
/// The longest `Retry-After` that is honored.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// The longest pauses after a failure.
#[derive(Debug, Clone, Copy)]
pub struct LongestPause {
    /// While every lease lasts; `None` if one is missing.
    pub leased: Option<Duration>,
    /// While a lease is missing.
    pub missing: Duration,
}

/// Backoff with full jitter. Failures during a pause count as one, because several requests in
/// flight fail together.
#[derive(Debug, Clone, Default)]
pub struct Backoff {
    failures: u32,
    until: Moment,
    /// Exponential, and no longer than `max_pause_without_lease` since the request was sent.
    until_if_missing: Moment,
}

impl Backoff {
    /// Records a failure and begins a pause, which `retry_after` lengthens. While every lease lasts
    /// it is random up to the longest; while one is missing its ceiling doubles with each failure.
    /// It ends at most the longest pause after the request was sent, so that the time spent waiting
    /// for a hanging server is part of it.
    pub fn record_failure(
        &mut self,
        retry_after: Option<Duration>,
        longest: LongestPause,
        sent: Moment,
        tuning: &Tuning,
        now: Moment,
        rng: &mut fastrand::Rng,
    ) {
        if now < self.until(true) {
            return;
        }
        let first = tuning.first_pause;
        let mut pause_end = |ceiling: Duration, longest: Duration| {
            let longest = longest.max(first);
            let least = retry_after.unwrap_or_default().min(longest / 2);
            let ceiling = ceiling.max(least).max(first).min(longest - least);
            let pause = least + ceiling.mul_f64(rng.f64());
            now.after(pause).min(sent.after(longest))
        };
        let exponential = first.saturating_mul(1 << self.failures.min(16));
        let missing = pause_end(exponential, longest.missing);
        if self.until <= now {
            self.until = longest
                .leased
                .map_or(missing, |leased| pause_end(leased, leased));
        }
        self.until_if_missing = missing.min(sent.after(tuning.max_pause_without_lease));
        self.failures = self.failures.saturating_add(1);
    }

    /// Ends the pause: a request was answered.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Whether the last request did not fail.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.failures == 0
    }

    /// When the pause ends; not after now without one. A lease that expires during the pause
    /// shortens it.
    #[must_use]
    pub fn until(&self, lease_missing: bool) -> Moment {
        if lease_missing {
            self.until.min(self.until_if_missing)
        } else {
            self.until
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TUNING: Tuning = Tuning::DEFAULT;

    const LONG: Duration = Duration::from_secs(60);

    const MISSING: LongestPause = LongestPause {
        leased: None,
        missing: Tuning::DEFAULT.max_pause_without_lease,
    };

    fn leased(longest: Duration) -> LongestPause {
        LongestPause {
            leased: Some(longest),
            missing: Tuning::DEFAULT.max_pause_without_lease,
        }
    }

    /// The pauses of many clients after so many failures in a row, and the longest of them.
    fn pauses(failures: usize, retry_after: Option<Duration>, longest: LongestPause) -> (f64, f64) {
        let mut rng = fastrand::Rng::with_seed(1);
        let (mut shortest_pause, mut longest_pause) = (f64::INFINITY, 0_f64);
        for _ in 0..1_000 {
            let mut backoff = Backoff::default();
            let mut now = Moment::from_nanos(1);
            for failure in 1..=failures {
                backoff.record_failure(retry_after, longest, now, &TUNING, now, &mut rng);
                let until = backoff.until(longest.leased.is_none());
                if failure == failures {
                    let pause = until.seconds_since(now);
                    shortest_pause = shortest_pause.min(pause);
                    longest_pause = longest_pause.max(pause);
                }
                now = until;
            }
        }
        (shortest_pause, longest_pause)
    }

    #[track_caller]
    fn spread_over((shortest, longest): (f64, f64), from: f64, to: f64) {
        let slack = 0.05 * (to - from);
        assert!((from..from + slack).contains(&shortest), "{shortest}");
        assert!((to - slack..=to).contains(&longest), "{longest}");
    }

    #[test]
    fn pause_without_lease_doubles_up_to_longest() {
        for (failures, ceiling) in [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 4.0, 4.0]
            .into_iter()
            .enumerate()
        {
            spread_over(pauses(failures + 1, None, MISSING), 0.0, ceiling);
        }
    }

    #[test]
    fn pause_with_leases_is_random_up_to_longest() {
        for failures in [1, 2, 20] {
            spread_over(pauses(failures, None, leased(LONG)), 0.0, 60.0);
        }
    }

    #[test]
    fn first_pause_after_success_is_short() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut backoff = Backoff::default();
        let mut now = Moment::from_nanos(1);
        for _ in 0..10 {
            backoff.record_failure(None, MISSING, now, &TUNING, now, &mut rng);
            now = backoff.until(true);
        }
        backoff.reset();
        assert!(backoff.is_idle());
        backoff.record_failure(None, MISSING, now, &TUNING, now, &mut rng);
        assert!(backoff.until(true).seconds_since(now) <= 0.1);
    }

    #[test]
    fn failures_during_a_pause_count_once() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut backoff = Backoff::default();
        let now = Moment::from_nanos(1);
        for _ in 0..100 {
            backoff.record_failure(None, MISSING, now, &TUNING, now, &mut rng);
        }
        assert!(backoff.until(true).seconds_since(now) <= 0.1);
    }

    #[test]
    fn retry_after_is_honored_within_longest() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        spread_over(pauses(1, seconds(20), leased(LONG)), 20.0, 60.0);
        spread_over(pauses(1, seconds(1), MISSING), 1.0, 2.0);
        spread_over(pauses(1, Some(Duration::MAX), MISSING), 2.0, 4.0);
    }

    #[test]
    fn time_waited_for_hanging_server_is_part_of_pause() {
        let mut rng = fastrand::Rng::with_seed(1);
        let sent = Moment::from_nanos(1);
        let now = sent.after(Tuning::DEFAULT.max_pause_without_lease);
        let mut backoff = Backoff::default();
        backoff.record_failure(None, MISSING, sent, &TUNING, now, &mut rng);
        assert_eq!(backoff.until(true), now);
        assert!(!backoff.is_idle());
    }

    #[test]
    fn missing_lease_shortens_pause() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut now = Moment::from_nanos(1);
        let mut backoff = Backoff::default();
        backoff.record_failure(Some(LONG), leased(LONG), now, &TUNING, now, &mut rng);
        let calm = backoff.until(false);
        assert!(calm.seconds_since(now) >= 30.0);
        for _ in 0..5 {
            let retry = backoff.until(true);
            assert!((2.0..=4.0).contains(&retry.seconds_since(now)));
            now = retry;
            backoff.record_failure(Some(LONG), MISSING, now, &TUNING, now, &mut rng);
            assert_eq!(backoff.until(false), calm);
        }
    }
}
