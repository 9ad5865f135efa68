//! Holders to hint, by band, for PRIORITY_SHARE.
//!
//! The holder with the most is no candidate if its priority is high. So each band has its own
//! order, and a plan examines a few holders of each.

use std::{cmp::Ordering, collections::BTreeSet, ops::Bound};

/// The holders in one order: by band, then the one with the most first.
#[derive(Debug, Clone, Default)]
pub(in crate::ledger) struct BandOrder {
    ranks: Vec<Option<Rank>>,
    order: BTreeSet<Rank>,
}

/// The place of a holder.
#[derive(Debug, Clone, Copy)]
pub(in crate::ledger) struct Rank {
    pub(in crate::ledger) band: i32,
    /// Booked per weight, negated.
    key: f64,
    slot: u32,
}

impl Rank {
    pub(in crate::ledger) fn slot(self) -> usize {
        self.slot as usize
    }

    /// A place before all of its band.
    pub(in crate::ledger) fn before_band(self) -> Self {
        Self {
            key: f64::NEG_INFINITY,
            slot: 0,
            ..self
        }
    }

    /// A place after all of its band.
    pub(in crate::ledger) fn after_band(self) -> Self {
        Self {
            key: f64::INFINITY,
            slot: u32::MAX,
            ..self
        }
    }
}

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> Ordering {
        self.band
            .cmp(&other.band)
            .then(self.key.total_cmp(&other.key))
            .then(self.slot.cmp(&other.slot))
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Rank {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Rank {}

impl BandOrder {
    /// Places a holder by its band and what is booked per weight there, or removes it.
    pub(in crate::ledger) fn set(&mut self, slot: usize, place: Option<(i32, f64)>) {
        let Ok(number) = u32::try_from(slot) else {
            return;
        };
        let rank = place.map(|(band, booked)| Rank {
            band,
            key: -booked,
            slot: number,
        });
        if slot >= self.ranks.len() {
            if rank.is_none() {
                return;
            }
            self.ranks.resize(slot.saturating_add(1), None);
        }
        let Some(known) = self.ranks.get_mut(slot) else {
            return;
        };
        if *known == rank {
            return;
        }
        if let Some(old) = std::mem::replace(known, rank) {
            self.order.remove(&old);
        }
        self.order.extend(rank);
    }

    /// The next holder from the lowest band up, the most booked first.
    pub(in crate::ledger) fn next_up(&self, after: Option<Rank>) -> Option<Rank> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.order.range((from, Bound::Unbounded)).next().copied()
    }

    /// The next holder from the highest band down, the least booked first.
    pub(in crate::ledger) fn next_down(&self, after: Option<Rank>) -> Option<Rank> {
        let to = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.order
            .range((Bound::Unbounded, to))
            .next_back()
            .copied()
    }
}
