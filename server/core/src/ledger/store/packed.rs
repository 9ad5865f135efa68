//! Optional numbers in eight bytes. An `Option` takes sixteen, for each lease.

use doorman_openapi::{Capacity, Seq};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::ledger) struct OptionalCapacity(f64);

impl OptionalCapacity {
    pub(in crate::ledger) const NONE: Self = Self(-1.0);

    pub(in crate::ledger) fn new(capacity: Option<Capacity>) -> Self {
        capacity.map_or(Self::NONE, |capacity| Self(capacity.get()))
    }

    pub(in crate::ledger) fn get(self) -> Option<Capacity> {
        (self.0 >= 0.0).then(|| Capacity::saturating(self.0))
    }
}

/// One more than the number, or 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ledger) struct OptionalSeq(u64);

impl OptionalSeq {
    pub(in crate::ledger) fn new(seq: Option<Seq>) -> Self {
        Self(seq.map_or(0, |seq| seq.get().saturating_add(1)))
    }

    pub(in crate::ledger) fn get(self) -> Option<Seq> {
        Seq::new(self.0.checked_sub(1)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_as_they_are() {
        for capacity in [None, Some(Capacity::ZERO), Some(Capacity::MAX)] {
            assert_eq!(OptionalCapacity::new(capacity).get(), capacity);
        }
        for seq in [None, Seq::new(0).ok(), Seq::new((1 << 53) - 1).ok()] {
            assert_eq!(OptionalSeq::new(seq).get(), seq);
        }
    }
}
