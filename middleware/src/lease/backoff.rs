//! When to try again after everything has failed.

use std::time::Duration;

use doorman_openapi::Moment;

const FIRST: Duration = Duration::from_millis(100);
/// Nobody who lacks a lease waits longer than this for the next try, but where a server that serves refuses what is new, and says for how
/// long: to come sooner would only lengthen that.
pub(super) const LONGEST_WHILE_LAPSED: Duration = Duration::from_secs(4);

/// How long to wait when a server that has too much to do does not say.
pub(super) const UNTOLD_WAIT: Duration = Duration::from_secs(1);
/// However long such a server says.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Failures that fall into one pause count as one: several requests may be under way, and fail together.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
    /// When the request was sent that failed last.
    sent: Moment,
    until: Moment,
}

impl Backoff {
    /// Pauses: twice as long as the last time, half of it by chance so that a fleet does not come back as one, but no longer than
    /// `longest` after the failed request was sent: a server that hangs has used up the time already. `asked` is what the server asked
    /// for; it lengthens the pause within the same bound.
    pub(super) fn fail(
        &mut self,
        asked: Option<Duration>,
        longest: Duration,
        sent: Moment,
        now: Moment,
        chance: &mut fastrand::Rng,
    ) {
        if now < self.until {
            return;
        }
        let ceiling = FIRST
            .saturating_mul(1 << self.failures.min(16))
            .max(asked.unwrap_or_default())
            .min(longest.max(FIRST));
        self.failures = self.failures.saturating_add(1);
        self.sent = sent;
        let pause = ceiling.mul_f64(0.5 + 0.5 * chance.f64());
        self.until = now.after(pause).min(sent.after(longest.max(FIRST)));
    }

    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Whether there has been no failure since the last success.
    pub(super) fn is_over(&self) -> bool {
        self.failures == 0
    }

    /// Nothing is sent before this. What has lapsed since the pause was chosen shortens it.
    pub(super) fn until(&self, anything_lapsed: bool) -> Moment {
        if anything_lapsed {
            self.until.min(self.sent.after(LONGEST_WHILE_LAPSED))
        } else {
            self.until
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn pause(backoff: &Backoff, now: Moment) -> f64 {
        backoff.until(false).seconds_since(now)
    }

    #[test]
    fn doubles_up_to_the_longest_and_starts_anew_after_a_success() {
        let mut chance = fastrand::Rng::with_seed(1);
        let mut backoff = Backoff::default();
        let mut now = Moment::from_nanos(1);
        for ceiling in [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 4.0, 4.0] {
            backoff.fail(None, LONGEST_WHILE_LAPSED, now, now, &mut chance);
            let pause = pause(&backoff, now);
            assert!(
                (ceiling / 2.0..=ceiling).contains(&pause),
                "{pause} {ceiling}"
            );
            now = backoff.until(false);
        }
        backoff.reset();
        backoff.fail(None, LONG, now, now, &mut chance);
        assert!(pause(&backoff, now) <= 0.1);
    }

    #[test]
    fn counts_failures_of_one_pause_as_one() {
        let mut chance = fastrand::Rng::with_seed(1);
        let mut backoff = Backoff::default();
        let now = Moment::from_nanos(1);
        for _ in 0..100 {
            backoff.fail(None, LONG, now, now, &mut chance);
        }
        assert!(pause(&backoff, now) <= 0.1);
    }

    #[test]
    fn honours_what_the_server_asks_for_within_the_bound() {
        let mut chance = fastrand::Rng::with_seed(1);
        let now = Moment::from_nanos(1);
        let mut backoff = Backoff::default();
        backoff.fail(Some(Duration::from_secs(20)), LONG, now, now, &mut chance);
        assert!(pause(&backoff, now) >= 10.0);
        let mut backoff = Backoff::default();
        backoff.fail(
            Some(Duration::MAX),
            LONGEST_WHILE_LAPSED,
            now,
            now,
            &mut chance,
        );
        assert!(pause(&backoff, now) <= 4.0);
    }

    #[test]
    fn what_a_server_that_hangs_has_taken_is_part_of_the_pause() {
        let mut chance = fastrand::Rng::with_seed(1);
        let sent = Moment::from_nanos(1);
        let now = sent.after(LONGEST_WHILE_LAPSED);
        let mut backoff = Backoff::default();
        backoff.fail(None, LONGEST_WHILE_LAPSED, sent, now, &mut chance);
        assert_eq!(backoff.until(true), now);
        assert!(!backoff.is_over());
    }

    #[test]
    fn comes_back_sooner_once_anything_has_lapsed() {
        let mut chance = fastrand::Rng::with_seed(1);
        let now = Moment::from_nanos(1);
        let mut backoff = Backoff::default();
        backoff.fail(Some(LONG), LONG, now, now, &mut chance);
        assert!(backoff.until(false).seconds_since(now) >= 30.0);
        assert_eq!(backoff.until(true), now.after(LONGEST_WHILE_LAPSED));
    }
}
