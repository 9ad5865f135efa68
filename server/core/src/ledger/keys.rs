//! Typed slab indexes, so that a holder is never looked up as a resource.

use std::num::NonZero;

macro_rules! slab_key {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(in crate::ledger) struct $name(u32);

        impl $name {
            /// The ledger is bounded far below `u32::MAX` items.
            pub(in crate::ledger) fn new(index: usize) -> Self {
                Self(u32::try_from(index).unwrap_or(u32::MAX))
            }

            pub(in crate::ledger) fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

slab_key!(
    /// A client or node, in all resources.
    HolderKey
);
slab_key!(ResourceKey);
slab_key!(
    /// A holder's entry in one resource, and its slot in the sums of that resource.
    EntrySlot
);
/// A hint of a resource that its holder has not yet acted on. `None` of it takes no space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ledger) struct CallSlot(NonZero<u32>);

impl CallSlot {
    pub(in crate::ledger) fn new(index: usize) -> Self {
        let number = u32::try_from(index).unwrap_or(u32::MAX).saturating_add(1);
        Self(NonZero::new(number).unwrap_or(NonZero::<u32>::MAX))
    }

    pub(in crate::ledger) fn index(self) -> usize {
        self.0.get().saturating_sub(1) as usize
    }
}

impl EntrySlot {
    pub(in crate::ledger) fn number(self) -> u32 {
        self.0
    }
}

impl HolderKey {
    /// Not before any other key.
    pub(in crate::ledger) const LAST: Self = Self(u32::MAX);

    /// The key in the low half of a poll's ticket.
    pub(in crate::ledger) fn of_ticket(ticket: u64) -> Self {
        Self(ticket as u32)
    }
}
