//! What the log says of a refusal.

use doorman_openapi::{ResourceId, TraceContext, headers::TRACEPARENT};

use crate::{Refusal, RequestHead};

impl Refusal {
    /// Says that a request is refused, and which trace it belongs to. Nothing is looked at unless somebody listens: whoever is refused
    /// may come again as often as they like.
    pub(crate) fn log(&self, head: &RequestHead<'_>) {
        tracing::debug!(
            limit = self.limit(),
            resource = self.resource().map(ResourceId::as_str),
            reason = ?self.reason(),
            retry_after = self.retry_after_seconds(),
            trace_id = trace(head).map(|it| display(it.trace_id)),
            "a request is refused"
        );
    }
}

/// The trace that a request belongs to, if it says so. Of several nobody knows which one is meant.
fn trace(head: &RequestHead<'_>) -> Option<TraceContext> {
    let mut values = head.headers().get_all(TRACEPARENT).into_iter();
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    TraceContext::parse(value.as_bytes())
}
