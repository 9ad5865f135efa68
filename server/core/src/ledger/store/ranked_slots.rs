//! Slots in the order of their ranks.

use std::{collections::BTreeSet, ops::Bound};

/// By the band, then by the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::ledger) struct Rank {
    band: i32,
    number: i32,
}

/// A slot with its rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::ledger) struct Place {
    rank: Rank,
    slot: u32,
}

/// The slots that have a rank. A search goes on after a place, so that it need not change them.
#[derive(Debug, Clone, Default)]
pub(in crate::ledger) struct RankedSlots {
    ranks: Vec<Option<Rank>>,
    order: BTreeSet<Place>,
}

impl Rank {
    pub(in crate::ledger) fn new(band: i32, number: f64) -> Self {
        // `f32` is precise enough: ranks only find candidates.
        let bits = (number as f32).to_bits().cast_signed();
        // In the order of `f32::total_cmp`.
        let number = if bits < 0 { bits ^ i32::MAX } else { bits };
        Self { band, number }
    }
}

impl Place {
    pub(in crate::ledger) fn band(self) -> i32 {
        self.rank.band
    }

    pub(in crate::ledger) fn slot(self) -> usize {
        self.slot as usize
    }

    /// A place after all of its band.
    pub(in crate::ledger) fn after_band(self) -> Self {
        let number = i32::MAX;
        Self {
            rank: Rank {
                number,
                ..self.rank
            },
            slot: u32::MAX,
        }
    }
}

impl RankedSlots {
    pub(in crate::ledger) fn set(&mut self, slot: usize, rank: Option<Rank>) {
        if slot >= self.ranks.len() {
            if rank.is_none() {
                return;
            }
            self.ranks.resize(slot.saturating_add(1), None);
        }
        if let Some(known) = self.ranks.get_mut(slot)
            && *known != rank
            && let Ok(slot) = u32::try_from(slot)
        {
            let place = |rank| Place { rank, slot };
            if let Some(old) = std::mem::replace(known, rank) {
                self.order.remove(&place(old));
            }
            self.order.extend(rank.map(place));
        }
    }

    /// The first place, or the next one after another.
    pub(in crate::ledger) fn next(&self, after: Option<Place>) -> Option<Place> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.order.range((from, Bound::Unbounded)).next().copied()
    }
}
