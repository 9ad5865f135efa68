//! What operators see of a running server: log, metrics of requests, and the context of a request.

mod access_log;
pub(crate) mod context;
pub(crate) mod ledger_events;
pub mod log;
pub(crate) mod metrics;
