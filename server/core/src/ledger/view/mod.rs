//! The ledger as operators see it: resources, holders and why they get what they get.

pub(in crate::ledger) mod client_leases;
pub(in crate::ledger) mod explain;
pub(in crate::ledger) mod feedback;
pub(in crate::ledger) mod largest;
pub(in crate::ledger) mod listing;
pub(in crate::ledger) mod ranking;
pub(in crate::ledger) mod survey;
