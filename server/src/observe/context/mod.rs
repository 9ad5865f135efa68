//! The trail of a request: what its answer, its lines in the log and what is asked of others because of it are recognised by.
//!
//! It is kept beside the request's task and not in a span: a line is rare, a request is not, and a span would be written down for each.
//! Whatever is logged while a request is worked on names it, on whatever level (`log/recognised`).

mod access;
mod id;
mod layer;

use std::{cell::OnceCell, sync::Arc};

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use doorman_openapi::{SpanId, TraceContext, headers};

pub(crate) use self::{
    access::{AccessLog, Answered},
    id::RequestId,
    layer::RequestContextLayer,
};

const REQUEST_ID: HeaderName = HeaderName::from_static(headers::REQUEST_ID);
const TRACEPARENT: HeaderName = HeaderName::from_static(headers::TRACEPARENT);
const TRACESTATE: HeaderName = HeaderName::from_static(headers::TRACESTATE);

/// The longest `tracestate` that is passed on, in bytes: Trace Context, section 3.3.1.5, asks for no more.
const LONGEST_STATE: usize = 512;

tokio::task_local! {
    static CURRENT: RequestContext;
}

/// What one request is recognised by.
#[derive(Debug, Clone)]
pub(crate) struct RequestContext {
    pub(crate) id: RequestId,
    /// The trace it belongs to, if its sender says so.
    pub(crate) trace: Option<TraceContext>,
    /// What belongs to the trace and is passed on unread.
    state: Option<HeaderValue>,
    /// Set once the caller is authenticated.
    caller: OnceCell<CallerLabel>,
}

/// The issuer and the subject of the caller's token.
#[derive(Debug, Clone)]
struct CallerLabel {
    issuer: Arc<str>,
    subject: Arc<str>,
}

impl RequestContext {
    /// That of a request with these headers.
    fn of(headers: &HeaderMap) -> Self {
        let trace =
            only(headers, &TRACEPARENT).and_then(|value| TraceContext::parse(value.as_bytes()));
        Self {
            id: only(headers, &REQUEST_ID)
                .and_then(RequestId::taken)
                .unwrap_or_else(RequestId::made),
            trace,
            state: trace.and_then(|_| state(headers)),
            caller: OnceCell::new(),
        }
    }

    /// Who sent it, if that is known.
    fn caller(&self) -> Option<&CallerLabel> {
        self.caller.get()
    }
}

/// The value of a header that comes once.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h HeaderValue> {
    let mut values = headers.get_all(name).into_iter();
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

/// A list may come in several lines, and is one all the same: RFC 9110, section 5.3.
fn state(headers: &HeaderMap) -> Option<HeaderValue> {
    let lines: Vec<&[u8]> = headers
        .get_all(&TRACESTATE)
        .into_iter()
        .map(HeaderValue::as_bytes)
        .collect();
    let state = lines.join(&b","[..]);
    if (1..=LONGEST_STATE).contains(&state.len()) {
        HeaderValue::from_maybe_shared(bytes::Bytes::from(state)).ok()
    } else {
        None
    }
}

/// Reads the context of the request that is being worked on; `None` when none is.
pub(crate) fn current<T>(look: impl FnOnce(&RequestContext) -> T) -> Option<T> {
    CURRENT.try_with(look).ok()
}

/// Notes who sent the request that is being worked on.
pub(crate) fn set_caller(issuer: &Arc<str>, subject: &Arc<str>) {
    let label = CallerLabel {
        issuer: Arc::clone(issuer),
        subject: Arc::clone(subject),
    };
    // Authentication sets it once a request.
    current(|context| drop(context.caller.set(label)));
}

/// Work that goes on elsewhere, on the trail of the request that is being worked on now.
pub(crate) fn propagate<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let trail = current(RequestContext::clone);
    move || match trail {
        Some(trail) => CURRENT.sync_scope(trail, work),
        None => work(),
    }
}

/// What goes with a question to others that the request being worked on leads to: its trace, from a step of our own. Nothing where no
/// request is worked on, or it belongs to no trace.
pub(crate) fn outgoing_headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    current(|trail| {
        let Some(trace) = trail.trace else { return };
        let trace = trace.child(SpanId::from_bits(fastrand::u64(..)));
        if let Ok(value) = HeaderValue::try_from(trace.to_string()) {
            headers.insert(TRACEPARENT, value);
        }
        if let Some(state) = &trail.state {
            headers.insert(TRACESTATE, state.clone());
        }
    });
    headers
}

#[cfg(test)]
mod tests {
    use axum::http::{Request, Response};
    use tower::{Layer, ServiceExt, service_fn};

    use super::*;

    async fn outgoing(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut request = Request::new(());
        for (name, value) in headers {
            request.headers_mut().append(*name, value.parse().unwrap());
        }
        let handler = service_fn(async |_| {
            let mut response = Response::new(());
            *response.headers_mut() = outgoing_headers();
            Ok::<_, std::convert::Infallible>(response)
        });
        let response = RequestContextLayer.layer(handler).oneshot(request).await;
        let mut headers = std::mem::take(response.unwrap().headers_mut());
        headers.remove(REQUEST_ID);
        headers
    }

    #[tokio::test]
    async fn outgoing_headers_continue_the_trace_with_a_new_span() {
        const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c";
        const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

        let states = [
            ("traceparent", PARENT),
            ("tracestate", "a=1"),
            ("tracestate", "b=2"),
        ];
        let headers = outgoing(&states).await;
        let parent = headers[TRACEPARENT].to_str().unwrap();
        assert!(
            parent.starts_with(TRACE) && parent.ends_with("-01"),
            "{parent}"
        );
        assert_ne!(parent, PARENT);
        assert_eq!(headers[TRACESTATE], "a=1,b=2");
    }

    #[tokio::test]
    async fn trace_state_without_a_valid_trace_is_dropped() {
        let headers = outgoing(&[("tracestate", "a=1"), ("traceparent", "nonsense")]).await;
        assert!(headers.is_empty(), "{headers:?}");
    }
}
