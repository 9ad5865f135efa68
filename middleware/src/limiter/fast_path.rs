//! Admission without waiting, rejecting or locking: the path of nearly every request.

use doorman_openapi::Moment;

use super::{Limiter, Shortage, bucket::TokenRange};
use crate::{Cost, clock::COARSE_SLACK_NANOS};

/// Tokens taken on the fast path, until [committed](Limiter::commit) or [undone](Limiter::undo).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Acquired {
    range: TokenRange,
    runs_low: bool,
}

impl Acquired {
    pub(crate) fn shortage(&self) -> Option<Shortage> {
        self.runs_low.then_some(Shortage::RunningLow)
    }
}

/// Whether a request waits for the first lease of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FirstLease {
    /// The fallback may admit it.
    Optional,
    /// The slow path decides as long as there never was a lease.
    Required,
}

impl Limiter {
    /// Takes tokens that are available by the [coarse clock](crate::clock::coarse_now). `None`
    /// leaves the decision to the slow path, which reads the precise clock.
    #[inline]
    pub(crate) fn try_acquire(
        &self,
        cost: Cost,
        first_lease: FirstLease,
        recent: Moment,
    ) -> Option<Acquired> {
        let published = self.read();
        let schedule = &published.schedule;
        let left = schedule.ends.as_nanos().saturating_sub(recent.as_nanos());
        let about_to_end = left > 0 && left <= COARSE_SLACK_NANOS;
        let awaits_lease = first_lease == FirstLease::Required && !schedule.ever_leased();
        if about_to_end || awaits_lease || published.is_suppressed() {
            return None;
        }
        let view = self.view(&published, recent);
        let mut spent = self.spent.load();
        loop {
            let range = view.next(spent, cost.get());
            if !view.admits(range) {
                return None;
            }
            match self.spent.replace(spent, range.end()) {
                Ok(()) => {
                    return Some(Acquired {
                        range,
                        runs_low: view.runs_low(range.end()),
                    });
                }
                Err(actual) => spent = actual,
            }
        }
    }

    #[inline]
    pub(crate) fn commit(&self, acquired: &Acquired) {
        self.admitted.update(|total| total + acquired.range.cost);
    }

    pub(crate) fn undo(&self, acquired: &Acquired, now: Moment) {
        // Available ranges come before all queued ones, so all of the queue is behind.
        self.take_back(acquired.range, self.queue(), None, now);
    }
}
