//! Collections that the ledger keeps its resources, holders and bookings in.

pub(in crate::ledger) mod expiry_heap;
pub(in crate::ledger) mod linear_hash_map;
pub(in crate::ledger) mod max_tree;
pub(in crate::ledger) mod packed;
pub(in crate::ledger) mod paged_slab;
pub(in crate::ledger) mod sum_tree;
