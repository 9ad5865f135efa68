//! When a holder refreshes.

use doorman_openapi::{HolderKind, Reason, Seconds};

use super::{claim::BookedClaim, cover::CoveredLease, decider::Decider};

/// If demand exceeds the capacity, holders report soon that they gave up more than this part of it.
const AWAITED: f64 = 0.005;

/// When a holder reports what it gave up, in seconds, while the node owes it to its parent, and
/// when a node confirms its claim.
pub(in crate::ledger) const NODE_INTERVAL: f64 = 0.1;

/// Seconds from the end of a replaced client's lease to the refresh of the other one.
const AFTER_AWAITED: f64 = 0.02;

impl Decider<'_> {
    /// Shortens the interval of a holder that waits for the lease of a replaced client to end.
    fn until_awaited(&self, covered: &CoveredLease, interval: Seconds) -> Seconds {
        let awaits = self
            .ask
            .awaits
            .filter(|_| covered.reason != Reason::Granted);
        awaits.map_or(interval, |end| {
            let at = end.max(self.terms.early_until(self.now));
            let seconds = at.seconds_since(self.now) + AFTER_AWAITED;
            Seconds::saturating(seconds.min(interval.get()))
        })
    }

    pub(super) fn interval(
        &self,
        claim: &BookedClaim,
        covered: &CoveredLease,
        is_first: bool,
    ) -> Seconds {
        let (entry, terms, now) = (&*self.entry, self.terms, self.now);
        let capacity = covered.lease.amount;
        // The next request confirms a claim, or returns what others wait for.
        let all_want = self.demands.total().wants;
        let returns = entry.booking.amount(now) - capacity;
        let is_notable = returns > terms.capacity() * AWAITED;
        let is_awaited = is_notable && all_want > terms.capacity() && all_want > entry.wants();
        let is_owed = is_notable
            && self
                .parent
                .as_ref()
                .is_some_and(|it| claim.others + capacity + returns > it.capacity(now));
        let is_first_claim = claim.is_unknown && is_first;
        // All clients of a node wait until its claim is confirmed.
        let is_unknown_node = is_first_claim && self.ask.kind == HolderKind::Node;
        let is_soon = covered.reason == Reason::Pending || is_first_claim || is_awaited;
        let interval = terms.refresh_interval_within(covered.length, is_soon);
        let interval = self.until_awaited(covered, interval);
        if is_owed || is_unknown_node {
            Seconds::saturating(interval.get().min(NODE_INTERVAL))
        } else {
            interval
        }
    }
}
