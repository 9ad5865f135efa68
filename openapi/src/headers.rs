//! Header names.

/// The id of a request: 1 to 128 bytes of visible ASCII. The server generates an absent one.
pub const REQUEST_ID: &str = "x-request-id";
/// The trace of a request: a [`TraceContext`](crate::TraceContext).
pub const TRACEPARENT: &str = "traceparent";
/// Vendor data of the trace, forwarded unchanged.
pub const TRACESTATE: &str = "tracestate";
