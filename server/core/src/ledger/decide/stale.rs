//! Requests that get the lease that is booked: stale ones, early ones, and those of the new master
//! of a node.

use doorman_openapi::{Capacity, Moment, Reason, Seconds};

use super::{decider::Decider, interval::NODE_INTERVAL};
use crate::ledger::{
    resource::Has, resource::booking::Hold, resource::decision::Decision, resource::entry::Entry,
};

/// The longest interval, in seconds, at which a node's new master asks for leases that its parent
/// does not know yet.
const UNKNOWN_INTERVAL: f64 = 4.0;

impl Decider<'_> {
    /// When the parent's lease ends that covers all that holders may have.
    pub(super) fn covered_until(&self) -> Moment {
        let now = self.now;
        self.parent.as_ref().map_or(Moment::NEVER, |parent| {
            let cover = parent.cover(self.most_of_all(), now);
            cover
                .or_else(|| Some(parent.cover_beside(0.0, now)?.end))
                .unwrap_or(now)
        })
    }

    /// The decision on a request that is older than one that was decided.
    pub(super) fn restate_stale(&mut self) -> Option<Decision> {
        let was_confirmed = self.is_confirmed();
        let stamp = self.ask.stamp;
        if !stamp.is_stale(self.entry.order, was_confirmed) {
            return None;
        }
        let mut decision = match self.ask.has {
            // Safety rule: the node has another master, or another node has its name. The lease is
            // that of the later master alone.
            _ if stamp.order.epoch < self.entry.order.epoch => Decision::none(self.terms),
            Has::Amount(_) => self.restate(),
            Has::Unknown => self.report_to_new_master(self.is_learning && !was_confirmed),
        };
        let now = self.now;
        let is_unleased = self.parent.as_ref().is_some_and(|it| !it.is_leased(now));
        if self.is_learning || is_unleased {
            decision.withhold_zero();
        }
        self.entry.set_due(decision.refresh_interval, now);
        Some(decision)
    }

    /// A pending holder may refresh early. A lease from before the first confirmed claim may stem
    /// from a late request, so a holder has what it claims and not what was booked. A hinted
    /// refresh is never early.
    pub(super) fn is_early(&self, is_first_claim: bool) -> bool {
        !is_first_claim
            && !self.ask.is_first_in_unit
            && !self.entry.is_hinted
            && self.entry.last_decision.is_some_and(|last| {
                last.reason != Reason::Pending && self.now < self.terms.early_until(last.at)
            })
    }

    pub(super) fn state_to_new_master(&mut self, is_unknown: bool) -> Decision {
        if self.entry.booking.next_end(self.now).is_none() {
            // Without a deadline the entry would stay forever.
            let nothing = Hold::lease(0.0, self.terms.lease_length(), self.now);
            self.entry.booking.set_lease(nothing);
        }
        self.report_to_new_master(is_unknown)
    }

    /// The current lease with its remaining length, for a stale, duplicate or early request. The
    /// holder may still have an older lease than the last one. At a node a claim, which may be
    /// booked for longer, is restated until `covered_until` only, when the parent's lease that
    /// covers it ends.
    pub(super) fn restate(&self) -> Decision {
        let (entry, now) = (&*self.entry, self.now);
        let reason = entry
            .last_decision
            .map_or(Reason::Pending, |last| last.reason);
        let refresh = self.terms.refresh_interval(reason == Reason::Pending);
        let lease = entry
            .booking
            .lease(now)
            .or_else(|| entry.booking.claim(now)?.until(self.covered_until, now));
        let remaining = lease.map(|lease| lease.remaining(now));
        Decision {
            capacity: Capacity::saturating(lease.map_or(0.0, |lease| lease.amount)),
            lease_length: Seconds::saturating(remaining.unwrap_or(0.0)),
            refresh_interval: remaining.map_or(refresh, |remaining| {
                Seconds::saturating((remaining / 2.0).min(refresh.get()))
            }),
            reason,
            booked_until: lease.map_or(Moment::ORIGIN, |lease| lease.end),
            ..Decision::none(self.terms)
        }
    }

    /// The lease of a node, for its new master: the most that it may have handed out. Before
    /// `known_from` that is not known, so the new master gets nothing, and asks again then. At
    /// `covered_until` the lease of this node's parent ends that covers it.
    fn report_to_new_master(&self, is_unknown: bool) -> Decision {
        let (entry, now) = (&*self.entry, self.now);
        let known_from = known_from(entry, is_unknown, self.learning_until);
        let hold = entry.booking.largest(now).filter(|_| known_from <= now);
        let hold = hold.and_then(|hold| hold.until(self.covered_until, now));
        let (amount, length) = hold.map_or((0.0, 0.0), |hold| (hold.amount, hold.remaining(now)));
        // All clients of the node wait for it.
        let soon = self.terms.refresh_interval(true).get().min(NODE_INTERVAL);
        let interval = if length > 0.0 {
            soon.min(length / 2.0)
        } else {
            known_from.seconds_since(now).clamp(soon, UNKNOWN_INTERVAL)
        };
        Decision {
            capacity: Capacity::saturating(amount),
            lease_length: Seconds::saturating(length),
            refresh_interval: Seconds::saturating(interval),
            reason: Reason::Pending,
            booked_until: hold.map_or(now, |hold| hold.end),
            ..Decision::none(self.terms)
        }
    }
}

/// From when on the ledger knows what a holder has. Until learning mode ends, the leases of one
/// that is unknown; then a lease that was granted on a claim that was not confirmed.
fn known_from(entry: &Entry, is_unknown: bool, learning_until: Moment) -> Moment {
    match (is_unknown, entry.is_unconfirmed) {
        (true, _) => learning_until,
        (false, true) => entry.booking.last_end(),
        (false, false) => Moment::ORIGIN,
    }
}
