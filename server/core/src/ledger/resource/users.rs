//! Total use of ended holders, for the usage log.

use std::collections::BTreeMap;

use doorman_openapi::{Capacity, Moment, Outcomes};

use crate::ledger::{holders::HolderId, keys::EntrySlot};

/// The use of a holder that has ended. Totals are since its process began: of a holder that comes
/// back, a later line has larger ones.
#[derive(Debug, Clone, PartialEq)]
pub struct Usage {
    /// The holder.
    pub holder: HolderId,
    /// The total cost of the admitted requests, if it was reported.
    pub used: Option<Capacity>,
    /// The outcomes of the requests, if they were reported.
    pub outcomes: Option<Outcomes>,
    /// Seconds since this master has known the holder.
    pub known_for: f64,
}

/// The holders of a resource, and since when they are known.
#[derive(Debug, Clone, Default)]
pub(in crate::ledger) struct Users {
    known: BTreeMap<EntrySlot, (HolderId, Moment)>,
    ended: Vec<Usage>,
}

impl Users {
    pub(in crate::ledger) fn note(&mut self, slot: EntrySlot, holder: &HolderId, now: Moment) {
        (self.known.entry(slot)).or_insert_with(|| (holder.clone(), now));
    }

    pub(in crate::ledger) fn end(
        &mut self,
        slot: EntrySlot,
        used: Option<Capacity>,
        outcomes: Option<Outcomes>,
        now: Moment,
    ) {
        if let Some((holder, since)) = self.known.remove(&slot) {
            self.ended.push(Usage {
                holder,
                used,
                outcomes,
                known_for: now.seconds_since(since),
            });
        }
    }

    pub(in crate::ledger) fn take_ended(&mut self) -> Vec<Usage> {
        std::mem::take(&mut self.ended)
    }
}
