//! What a holder gets, and why: pure functions of what the books say.

use doorman_openapi::{Capacity, Moment, Reason, Seconds};

use super::{algorithm::Rule, entry::Entry, sums::Sums, terms::Terms};

/// Sums are compared with this relative tolerance.
pub(super) const TOLERANCE: f64 = 1e-9;

/// What a holder gets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Decision {
    pub(super) capacity: Capacity,
    pub(super) lease_length: Seconds,
    pub(super) refresh_interval: Seconds,
    pub(super) reason: Reason,
    /// Until when the books keep the lease.
    pub(super) booked_until: Moment,
    /// The holder claimed more than it can have; what was too much counts as none.
    pub(super) claimed_too_much: bool,
    /// The holder has more in use than the books lease to it, such as operations that outlive a lapsed lease.
    pub(super) overused: bool,
    /// More is in the holders' hands than there is: the capacity was cut.
    pub(super) is_over_capacity: bool,
}

/// What a holder gets of its share: no more than it holds already, or than is free beside the others. So a decrease starves nobody,
/// and what one gives up is another's one contact later.
pub(super) fn grant(rule: &Rule, wants: f64, share: f64, held: f64, room: f64) -> (f64, Reason) {
    let capacity = rule.round_down(share.min(held.max(room)).max(0.0));
    let reason = if reaches(capacity, wants) {
        Reason::Granted
    } else if reaches(capacity, share) {
        Reason::Share
    } else {
        Reason::Pending
    };
    (capacity, reason)
}

/// What a holder keeps while the server learns: what it says it has, scaled down when all that was claimed is more than there is.
pub(super) fn keep(held: f64, others: f64, capacity: f64) -> f64 {
    let claimed = held + others;
    if claimed > capacity {
        held * (capacity / claimed)
    } else {
        held
    }
}

pub(super) fn reaches(amount: f64, goal: f64) -> bool {
    amount >= goal * (1.0 - TOLERANCE)
}

/// The lease held, for as long as it lasts: what a late, doubled or early request is answered.
pub(super) fn restate(entry: &Entry, terms: &Terms, now: Moment) -> Decision {
    let lease = entry.booking.lease(now);
    let reason = entry
        .decided
        .map_or(Reason::Pending, |decided| decided.reason);
    let refresh_interval = terms.refresh_interval(reason == Reason::Pending);
    Decision {
        capacity: Capacity::saturating(lease.map_or(0.0, |lease| lease.amount)),
        lease_length: Seconds::saturating(lease.map_or(0.0, |lease| lease.remaining(now))),
        refresh_interval: lease
            .map(|lease| lease.remaining(now) / 2.0)
            .map_or(refresh_interval, |half| {
                Seconds::saturating(half.min(refresh_interval.get()))
            }),
        reason,
        booked_until: lease.map_or(Moment::ORIGIN, |lease| lease.end),
        claimed_too_much: false,
        overused: false,
        is_over_capacity: false,
    }
}

/// Whether more is booked than there is of a capacity that is divided.
pub(super) fn is_over(terms: &Terms, booked: &Sums) -> bool {
    terms.rule().divides() && booked.total() > terms.capacity() * (1.0 + TOLERANCE)
}

/// What a node's new master is told that the node holds: the most that it may have handed out, the older lease included. A server
/// that learns cannot tell, because a late request of the master before may be all that it has heard: the node asks again.
pub(super) fn state_to_new_master(
    entry: &Entry,
    terms: &Terms,
    learning: bool,
    now: Moment,
) -> Decision {
    let hold = entry.booking.largest(now).filter(|_| !learning);
    let (amount, length) = hold.map_or((0.0, 0.0), |hold| (hold.amount, hold.remaining(now)));
    let soon = terms.refresh_interval(true).get();
    Decision {
        capacity: Capacity::saturating(amount),
        lease_length: Seconds::saturating(length),
        refresh_interval: Seconds::saturating(if length > 0.0 {
            soon.min(length / 2.0)
        } else {
            soon
        }),
        reason: Reason::Pending,
        booked_until: hold.map_or(now, |hold| hold.end),
        claimed_too_much: false,
        overused: false,
        is_over_capacity: false,
    }
}
