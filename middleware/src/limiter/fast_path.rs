//! The short way, which nearly every request goes: it may go at once, and nobody has to wait, to refuse or to remember.

use doorman_openapi::Moment;

use super::{Limiter, bucket::Take, demand_signal::Shortage};
use crate::{Cost, clock::SLACK_NANOS};

/// What was taken at once, until it is [kept](Limiter::keep) or [given back](Limiter::undo).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    take: Take,
    runs_low: bool,
}

impl Taken {
    /// Why more should be leased.
    pub(crate) fn need(&self) -> Option<Shortage> {
        self.runs_low.then_some(Shortage::RunningLow)
    }
}

/// Whether a request waits for the first lease of its resource before anything is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FirstLease {
    /// What counts without one may admit it.
    NotNeeded,
    /// Where there has never been one, it is not decided here.
    Awaited,
}

impl Limiter {
    /// Takes so much if a request may go at once as of a [recent](crate::clock::recent) time. `None` says that it is not decided: the
    /// precise time may admit it, and if that does not, there is more to say than no.
    #[inline]
    pub(crate) fn take_at_once(
        &self,
        cost: Cost,
        first_lease: FirstLease,
        recent: Moment,
    ) -> Option<Taken> {
        let published = self.read();
        let terms = &published.terms;
        let left = terms.ends.as_nanos().saturating_sub(recent.as_nanos());
        let about_to_end = left > 0 && left <= SLACK_NANOS;
        let awaits = first_lease == FirstLease::Awaited && !terms.ever_leased();
        if about_to_end || awaits || published.is_suppressed() {
            return None;
        }
        let view = self.view(&published, recent);
        let mut spent = self.spent.load();
        loop {
            let take = view.next(spent, cost.get());
            if !view.admits(take) {
                return None;
            }
            match self.spent.replace(spent, take.end()) {
                Ok(()) => {
                    return Some(Taken {
                        take,
                        runs_low: view.runs_low(take.end()),
                    });
                }
                Err(actual) => spent = actual,
            }
        }
    }

    /// The request goes: what it took stays taken, and counts as admitted.
    #[inline]
    pub(crate) fn keep(&self, taken: &Taken) {
        self.admitted.update(|total| total + taken.take.cost);
    }

    /// The request does not go, or not yet.
    pub(crate) fn undo(&self, taken: &Taken, now: Moment) {
        // When its turn had come, all who wait were behind it, or may go already.
        self.take_back(taken.take, self.line(), None, now);
    }
}
