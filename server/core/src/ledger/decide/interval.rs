//! When a holder refreshes.

use doorman_openapi::{HolderKind, Reason, Seconds};

use super::{claim::BookedClaim, cover::CoveredLease, decider::Decider};

/// If demand exceeds the capacity, holders report soon that they gave up more than this part of it.
const AWAITED: f64 = 0.005;

/// When a holder reports what it gave up, in seconds, while the node owes it to its parent, and
/// when a node confirms its claim.
pub(in crate::ledger) const NODE_INTERVAL: f64 = 0.1;

impl Decider<'_> {
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
        if is_owed || is_unknown_node {
            Seconds::saturating(interval.get().min(NODE_INTERVAL))
        } else {
            interval
        }
    }
}
