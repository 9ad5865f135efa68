//! The lease that covers a share: of the resource at the root, else of the parent node.

use doorman_openapi::Reason;

use super::{claim::BookedClaim, decider::Decider, share::UncoveredGrant};
use crate::ledger::resource::booking::Hold;

/// A lease that this server may grant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct CoveredLease {
    pub(super) lease: Hold,
    /// Its length, in seconds.
    pub(super) length: f64,
    pub(super) reason: Reason,
}

impl Decider<'_> {
    /// Safety rule (`parent-lease-end`): what a node leases ends with a lease of its parent that
    /// covers it, together with all that its other holders may have.
    pub(super) fn cover(&self, claim: &BookedClaim, grant: &UncoveredGrant) -> CoveredLease {
        let now = self.now;
        let length = self.terms.lease_length();
        let mut covered = CoveredLease {
            lease: Hold::lease(grant.capacity, length, now),
            length,
            reason: grant.reason,
        };
        if let Some(parent) = self.parent.as_deref() {
            match self.cover_of_parent(claim, covered.lease) {
                Some(lease) => {
                    covered.lease.amount = lease.amount;
                    if lease.end < covered.lease.end {
                        covered.lease.end = lease.end;
                        covered.length = covered.lease.remaining(now);
                    }
                }
                // The entry stays for its demand, without capacity.
                None => {
                    covered.lease.amount = 0.0;
                    covered.length = 0.0;
                }
            }
            let amount = covered.lease.amount;
            let awaits_more = parent.is_pending() || covered.length == 0.0;
            let is_share = grant.reason == Reason::Share;
            if amount < grant.capacity || awaits_more && is_share && amount < self.entry.wants() {
                covered.reason = Reason::Pending;
            }
        }
        if self.is_part_of_unknown(covered.reason) {
            covered.lease.amount = 0.0;
        }
        covered
    }

    fn cover_of_parent(&self, claim: &BookedClaim, lease: Hold) -> Option<Hold> {
        let parent = self.parent.as_deref()?;
        let divides = self.terms.rule().divides();
        let others = parent.most_of_others(claim.others, self.confirmed(), self.entry.slot);
        let total = match (divides, claim.is_unknown) {
            (true, false) => others + lease.amount,
            // Claims of a predecessor's leases end with the lease that covers all of them.
            (true, true) => claim.most_of_all,
            (false, _) => 0.0,
        };
        match parent.cover(total, self.now) {
            Some(end) => Some(Hold { end, ..lease }),
            // Claims of a predecessor's leases may outlive the lease that covers them.
            None if divides && !claim.is_unknown => parent.cover_beside(others, self.now),
            // Safety rule (`strict-cover`): no lease covers the claim together with all that may be
            // out.
            None => None,
        }
    }
}
