//! The newest value of a few holders, of which the lower median counts.
//!
//! A median of claims needs half of them to lie. Eight slots take constant memory.

use std::cmp::Ordering;

use smallvec::SmallVec;

const SLOTS: usize = 8;

/// A value of each of eight holders; later ones take the slots of earlier ones.
#[derive(Debug, Clone, Copy)]
pub(in crate::ledger) struct Slots<T>([Option<T>; SLOTS]);

impl<T: Copy> Slots<T> {
    pub(in crate::ledger) const EMPTY: Self = Self([None; SLOTS]);

    pub(in crate::ledger) fn set(&mut self, holder: usize, value: T) {
        if let Some(slot) = self.0.get_mut(holder % SLOTS) {
            *slot = Some(value);
        }
    }

    pub(in crate::ledger) fn values(&self) -> impl Iterator<Item = T> {
        self.0.iter().flatten().copied()
    }
}

/// The lower median.
pub(in crate::ledger) fn lower_median<T: Copy>(
    values: impl Iterator<Item = T>,
    compare: impl FnMut(&T, &T) -> Ordering,
) -> Option<T> {
    let mut sorted: SmallVec<[T; SLOTS]> = values.collect();
    sorted.sort_by(compare);
    let middle = sorted.len().checked_sub(1)? / 2;
    sorted.get(middle).copied()
}
