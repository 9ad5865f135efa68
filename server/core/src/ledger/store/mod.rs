//! Collections that the ledger keeps its resources, holders and bookings in.

mod group_tree;
pub(in crate::ledger) mod hash_index;
pub(in crate::ledger) mod packed;
pub(in crate::ledger) mod paged_slab;
pub(in crate::ledger) mod ranked_slots;
pub(in crate::ledger) mod sum_tree;
pub(in crate::ledger) mod timers;

#[cfg(test)]
mod tests;
