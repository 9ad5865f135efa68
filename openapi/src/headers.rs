//! Names of headers that both sides of the contract set and read.

/// Names one request in answers and logs: visible ASCII, 1 to 128 bytes. Who sends none is given one; every answer has it.
pub const REQUEST_ID: &str = "x-request-id";
/// Which trace a request belongs to: a [`TraceContext`](crate::TraceContext).
pub const TRACEPARENT: &str = "traceparent";
/// What those who keep traces have added to it. It is passed on as it came.
pub const TRACESTATE: &str = "tracestate";
