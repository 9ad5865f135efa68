//! One request to the control plane, as it is found again in the logs of both sides.

use bytes::Bytes;
use doorman_openapi::{
    SpanId, TraceContext, TraceId,
    headers::{REQUEST_ID, TRACEPARENT},
};
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use tracing::Span;

/// The longest name of a request that is written, in bytes.
const LONGEST_ID: usize = 128;

/// A request that is being sent: it begins a trace of its own, since no request of the service has led to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call(TraceContext);

impl Call {
    pub(super) fn begin() -> Self {
        let trace = TraceId::from_bits(fastrand::u128(..));
        Self(TraceContext::root(
            trace,
            SpanId::from_bits(fastrand::u64(..)),
        ))
    }

    /// What tells the control plane of it.
    pub(super) fn mark(&self, headers: &mut HeaderMap) {
        if let Ok(value) = HeaderValue::try_from(self.0.to_string()) {
            headers.insert(HeaderName::from_static(TRACEPARENT), value);
        }
    }

    /// What is logged on its way belongs to it.
    pub(super) fn span(&self) -> Span {
        tracing::info_span!("control_plane", trace_id = %self.0.trace_id)
    }

    /// The same with the name that the control plane answers by.
    pub(super) fn answered(self, response: Option<&Response<Bytes>>) -> Called {
        let id = response.and_then(|it| it.headers().get(REQUEST_ID));
        let id = id.filter(|it| it.len() <= LONGEST_ID);
        Called {
            trace_id: self.0.trace_id,
            request_id: id.and_then(|it| it.to_str().ok()).map(str::to_owned),
        }
    }
}

/// A request that has been sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Called {
    pub(super) trace_id: TraceId,
    /// The name that the control plane has given it; `None` when it did not answer.
    pub(super) request_id: Option<String>,
}
