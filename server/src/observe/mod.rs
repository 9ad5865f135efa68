//! Log, request context, metrics and ledger events.

pub(crate) mod context;
pub(crate) mod ledger_events;
pub mod log;
pub(crate) mod metrics;
