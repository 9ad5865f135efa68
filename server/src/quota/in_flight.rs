//! Overload detection by the number of lease decisions in progress, which grows when calls queue
//! for the ledger. It needs no clock and no guessed rate.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// From here on new leases are rejected: 0.1 to 0.4 s of decisions.
const MAX_WITH_NEW: usize = 100_000;

/// From here on renewals are rejected, too. Bounds the memory of calls in progress.
const MAX: usize = 1_000_000;

#[derive(Debug, Default)]
pub(super) struct InFlight(AtomicUsize);

/// Whether a call asks for a resource that its holder does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseKind {
    New,
    /// A renewal of held leases, or a release.
    Renewal,
}

/// Decisions in progress until it is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct InFlightGuard<'a> {
    in_flight: &'a InFlight,
    decisions: usize,
}

impl InFlight {
    /// `None` when too many decisions are in progress.
    pub(super) fn begin(&self, decisions: usize, kind: LeaseKind) -> Option<InFlightGuard<'_>> {
        let max = match kind {
            LeaseKind::New => MAX_WITH_NEW,
            LeaseKind::Renewal => MAX,
        };
        let before = self.0.fetch_add(decisions, Relaxed);
        let guard = InFlightGuard {
            in_flight: self,
            decisions,
        };
        (before < max).then_some(guard)
    }
}

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        self.in_flight.0.fetch_sub(self.decisions, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overload_rejects_new_leases_before_renewals() {
        let all = InFlight::default();
        let busy = all.begin(MAX_WITH_NEW, LeaseKind::New);
        assert!(busy.is_some());
        assert!(all.begin(1, LeaseKind::New).is_none());
        let renewals = all.begin(MAX - MAX_WITH_NEW, LeaseKind::Renewal);
        assert!(renewals.is_some());
        assert!(all.begin(1, LeaseKind::Renewal).is_none());

        drop(renewals);
        assert!(all.begin(1, LeaseKind::Renewal).is_some());
        assert!(all.begin(1, LeaseKind::New).is_none());
        drop(busy);
        assert!(all.begin(1, LeaseKind::New).is_some());
        // Rejected calls leave nothing behind.
        assert_eq!(all.0.load(Relaxed), 0);
    }
}
