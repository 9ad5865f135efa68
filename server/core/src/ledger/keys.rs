//! Typed slab indexes, so that a holder is never looked up as a resource.

macro_rules! slab_key {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
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

impl EntrySlot {
    pub(in crate::ledger) fn number(self) -> u32 {
        self.0
    }
}

impl HolderKey {
    /// The key in the low half of a poll's ticket.
    pub(in crate::ledger) fn of_ticket(ticket: u64) -> Self {
        Self(ticket as u32)
    }
}
