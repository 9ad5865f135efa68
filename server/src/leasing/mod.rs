//! Access to the ledger: its lock, and the tasks that work on it.

pub(crate) mod sweeper;
