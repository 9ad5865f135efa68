//! What operators are shown of the holders of a resource, and of the resource as all of them share it.

use doorman_openapi::{HolderKind, Moment, Seconds};

use super::{
    super::{
        decision::TOLERANCE, entry::Entry, held_back::Stand, holding::HolderStatus, terms::Terms,
        undivided::Feedback,
    },
    HolderKey, Resource,
};

/// On what a resource is leased, as operators are shown it: by the newest document, though nobody may have asked since it came.
#[derive(Debug)]
pub(in crate::ledger) struct Standpoint<'a> {
    pub(in crate::ledger) terms: &'a Terms,
    pub(in crate::ledger) learning_until: Moment,
    pub(in crate::ledger) feedback: Feedback,
    pub(in crate::ledger) now: Moment,
}

impl Resource {
    /// The slots from one on, each with its holder if there is one.
    pub(in crate::ledger) fn slots_from(
        &self,
        from: u32,
    ) -> impl Iterator<Item = (u32, Option<&Entry>)> {
        let slots = self.entries.slots_from(from);
        slots.map(|(slot, entry)| (slot, entry.filter(|entry| !entry.is_released())))
    }

    /// What the books keep of a holder.
    pub(in crate::ledger) fn entry(&self, holder: HolderKey) -> Option<&Entry> {
        let entry = self.entries.get(holder);
        entry.filter(|entry| !entry.is_released())
    }

    /// What a holder has, and what keeps it from more. O(log holders).
    pub(in crate::ledger) fn holding(
        &self,
        entry: &Entry,
        (kind, id): (HolderKind, String),
        on: &Standpoint<'_>,
    ) -> HolderStatus {
        let Standpoint {
            terms,
            learning_until,
            feedback,
            now,
        } = *on;
        let bands = entry.bands();
        let lease = entry.booking.lease(now);
        let others = self.booked.all_but(entry.slot);
        let stand = Stand {
            wants: bands.iter().map(|band| band.wants.get()).sum(),
            share: terms.rule().share(&self.demands, entry.demands()),
            has: lease.map_or(0.0, |lease| lease.amount),
            outstanding: entry.outstanding.get(),
            booked: entry.booking.at(now),
            room: terms.room_beside(others),
        };
        HolderStatus {
            kind,
            id,
            wants: stand.wants,
            share: stand.share,
            exact_share: terms.rule().exact_share(&self.demands, entry.demands()),
            has: stand.has,
            within_reach: stand.within_reach(terms.rule()),
            booked: stand.booked,
            others,
            held_back_by: stand.held_back(terms, now < learning_until, feedback),
            outstanding: entry.outstanding,
            used: entry.used,
            refreshed_ago: entry.decided.map(|decided| now.seconds_since(decided.at)),
            due_in: entry.decided.map(|decided| {
                let due = decided.due();
                due.seconds_since(now) - now.seconds_since(due)
            }),
            lease_end: lease.map(|lease| lease.end),
            expires_in: Seconds::from(entry.booking.last_end().since(now)),
            bands,
        }
    }

    /// What nobody holds of a capacity that is divided.
    pub(in crate::ledger) fn free(&self, terms: &Terms) -> Option<f64> {
        terms.rule().divides().then(|| {
            let free = terms.room_beside(self.sum_has());
            // What is left of sums of fractions is nothing that anybody could be granted.
            if free > terms.capacity() * TOLERANCE {
                free
            } else {
                0.0
            }
        })
    }

    /// How much a client has at most of a capacity that is divided fairly and does not do for all.
    pub(in crate::ledger) fn fill_level(&self, terms: &Terms) -> Option<f64> {
        terms.rule().fill_level(&self.demands)
    }
}
