//! Leases of clients and nodes, and polls for hints.

pub(super) mod calls;
pub(super) mod charge;
pub(super) mod hints;
mod request;
mod response;
