//! Observability: log, request metrics and request context.

mod access_log;
pub(crate) mod context;
pub(crate) mod ledger_events;
pub mod log;
pub(crate) mod metrics;
