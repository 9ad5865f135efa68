//! Division of the capacity of one resource in learning mode.

use crate::ledger::{keys::EntrySlot, resource::decision::TOLERANCE, store::sum_tree::SumTree};

/// The claims that are confirmed, and what is booked for their holders.
///
/// A claim is confirmed when its request carries the epoch of this master: no copy of a request
/// from before the failover can. New holders are confirmed likewise, with a claim of 0. All
/// confirmed holders share the pool, which is the sum of the first confirmed claims.
///
/// Safety rule: the predecessor's bookings summed to at most the capacity, and each confirmed claim
/// is at most what was booked for its holder. So all other holders have at most the capacity less
/// the pool, and the pool is free to be divided again.
#[derive(Debug, Clone, Default)]
pub(in crate::ledger) struct Learning {
    pool: f64,
    /// The booked amount per confirmed entry.
    booked: SumTree,
    /// By slot. A confirmed entry stays until learning mode ends, so its slot has no other holder.
    confirmed: Vec<bool>,
}

impl Learning {
    pub(in crate::ledger) fn is_confirmed(&self, slot: EntrySlot) -> bool {
        self.confirmed.get(slot.index()).is_some_and(|it| *it)
    }

    /// Adds the first confirmed claim of a holder to the pool; 0 for a new holder. Returns the
    /// pool, less a relative tolerance, if the claim is one; else 0.
    pub(in crate::ledger) fn confirm(&mut self, slot: EntrySlot, claim: f64) -> f64 {
        let index = slot.index();
        if index >= self.confirmed.len() {
            self.confirmed.resize(index.saturating_add(1), false);
        }
        if let Some(confirmed) = self.confirmed.get_mut(index)
            && !std::mem::replace(confirmed, true)
        {
            self.pool += claim;
            if claim > 0.0 {
                return self.pool * (1.0 - TOLERANCE);
            }
        }
        0.0
    }

    /// Converts the pool to another unit. The caller sets the booked amount of each entry anew.
    pub(in crate::ledger) fn scale(&mut self, factor: f64) {
        self.pool *= factor;
    }

    /// The most that a confirmed holder can have while the other confirmed ones keep theirs.
    /// `gained` is capacity that a node got from its parent since it began to learn.
    pub(in crate::ledger) fn available_beside_others(
        &self,
        slot: EntrySlot,
        capacity: f64,
        gained: f64,
    ) -> f64 {
        let others = self.booked.total_except(slot.index());
        ((self.pool + gained).min(capacity) - others).max(0.0)
    }

    /// The most that all other holders can have, of which a predecessor had `granted` so much: the
    /// claims of those that are not confirmed may be false.
    pub(in crate::ledger) fn most_of_others(&self, slot: EntrySlot, granted: f64) -> f64 {
        self.booked.total_except(slot.index()) + (granted - self.pool).max(0.0)
    }

    /// The same for all holders.
    pub(in crate::ledger) fn most_of_all(&self, granted: f64) -> f64 {
        self.booked.total() + self.unheard(granted)
    }

    /// The part of what is `booked` for all holders that is booked for those that have not
    /// confirmed their claims.
    pub(in crate::ledger) fn unconfirmed(&self, booked: f64) -> f64 {
        (booked - self.booked.total()).max(0.0)
    }

    /// What holders have that have not confirmed their claims, at most, of what a predecessor had
    /// `granted`.
    pub(in crate::ledger) fn unheard(&self, granted: f64) -> f64 {
        (granted - self.pool).max(0.0)
    }

    /// Records what is booked for a holder, unless it is not confirmed.
    pub(in crate::ledger) fn set_booked(&mut self, slot: EntrySlot, amount: f64) {
        if self.is_confirmed(slot) {
            self.booked.set(slot.index(), amount);
        }
    }
}
