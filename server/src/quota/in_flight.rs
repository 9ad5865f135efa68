//! How many decisions are under way: what tells that the server as a whole has more to do than it can.
//!
//! A request counts from when it has been read until it is answered, with each resource that it asks for. While the server keeps up,
//! there are few at any moment; when more come than it decides, they pile up here, in front of the books. No clock and no rate has to be
//! guessed for it.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// From so many on nobody gets a new lease: some 0.1 to 0.4 s of decisions.
const MOST_FOR_NEW: usize = 100_000;

/// From so many on nobody is served: ten times as many, so that renewals are served for long after new leases are not, and what all
/// requests hold in memory has an end. Requests with as many resources as the books may have leases, each once.
const MOST: usize = 1_000_000;

/// The decisions that are under way.
#[derive(Debug, Default)]
pub(super) struct InFlight(AtomicUsize);

/// Whether what is asked for is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseKind {
    /// For something that is not held yet.
    New,
    /// For what is held already, or to give it back.
    Renewal,
}

/// Decisions that are under way until this is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct InFlightGuard<'a> {
    all: &'a InFlight,
    decisions: usize,
}

impl InFlight {
    /// Counts so many decisions; `None` when there are too many.
    pub(super) fn begin(&self, decisions: usize, asks: LeaseKind) -> Option<InFlightGuard<'_>> {
        let most = match asks {
            LeaseKind::New => MOST_FOR_NEW,
            LeaseKind::Renewal => MOST,
        };
        let before = self.0.fetch_add(decisions, Relaxed);
        let counted = InFlightGuard {
            all: self,
            decisions,
        };
        (before < most).then_some(counted)
    }
}

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        self.all.0.fetch_sub(self.decisions, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overloaded_server_serves_renewals_for_longer_than_newcomers() {
        let all = InFlight::default();
        let busy = all.begin(MOST_FOR_NEW, LeaseKind::New);
        assert!(busy.is_some());
        assert!(all.begin(1, LeaseKind::New).is_none());
        let renewals = all.begin(MOST - MOST_FOR_NEW, LeaseKind::Renewal);
        assert!(renewals.is_some());
        assert!(all.begin(1, LeaseKind::Renewal).is_none());

        drop(renewals);
        assert!(all.begin(1, LeaseKind::Renewal).is_some());
        assert!(all.begin(1, LeaseKind::New).is_none());
        drop(busy);
        assert!(all.begin(1, LeaseKind::New).is_some());
        // What was refused has left nothing behind.
        assert_eq!(all.0.load(Relaxed), 0);
    }
}
