//! Optional numbers in eight bytes, of which an `Option` takes sixteen, for each lease; and counts
//! in six.

use doorman_openapi::{Capacity, RequestCount, Seq};

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

/// A count in six bytes: of more than 2⁴⁸ requests, which no process has, the rest is not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ledger) struct PackedCount([u16; 3]);

impl PackedCount {
    pub(in crate::ledger) const ZERO: Self = Self([0; 3]);

    pub(in crate::ledger) fn new(count: RequestCount) -> Self {
        let count = count.get().min((1 << 48) - 1);
        Self([count as u16, (count >> 16) as u16, (count >> 32) as u16])
    }

    pub(in crate::ledger) fn get(self) -> u64 {
        let Self([low, middle, high]) = self;
        u64::from(low) | u64::from(middle) << 16 | u64::from(high) << 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_stay_as_they_are() {
        for count in [0, 1, 0xffff, 0x1_0000, 0x1234_5678_9abc, (1 << 48) - 1] {
            assert_eq!(
                PackedCount::new(RequestCount::saturating(count)).get(),
                count
            );
        }
        assert_eq!(
            PackedCount::new(RequestCount::saturating(1 << 50)).get(),
            (1 << 48) - 1
        );
    }

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
