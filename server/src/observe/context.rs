//! The context of the request being handled: its ID, its trace and its caller.
//!
//! The context is a task-local value, which every log line of a request names. A tracing span would
//! format its fields for each request; most requests write no line.

use std::{cell::OnceCell, sync::Arc};

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, Response},
};
use doorman_openapi::{SpanId, TraceContext, headers};
use futures_util::TryFutureExt;
use tower::{Layer, Service, layer::layer_fn, service_fn};

const REQUEST_ID: HeaderName = HeaderName::from_static(headers::REQUEST_ID);
const TRACEPARENT: HeaderName = HeaderName::from_static(headers::TRACEPARENT);
const TRACESTATE: HeaderName = HeaderName::from_static(headers::TRACESTATE);

/// The longest request ID that is accepted from a caller, in bytes.
const MAX_REQUEST_ID: usize = 128;

/// The longest `tracestate` that is propagated, in bytes (Trace Context, section 3.3.1.5).
const MAX_TRACESTATE: usize = 512;

tokio::task_local! {
    static CURRENT: RequestContext;
}

#[derive(Debug, Clone)]
pub(crate) struct RequestContext {
    pub(super) id: RequestId,
    pub(super) trace: Option<TraceContext>,
    /// The `tracestate` header, if the request belongs to a trace.
    state: Option<HeaderValue>,
    /// Set once the caller is authenticated.
    pub(super) caller: OnceCell<CallerLabel>,
    /// Set if the caller is not authenticated.
    pub(super) failed_check: OnceCell<&'static str>,
}

#[derive(Debug, Clone)]
pub(super) struct CallerLabel {
    pub(super) issuer: Arc<str>,
    pub(super) subject: Arc<str>,
}

impl RequestContext {
    fn new(headers: &HeaderMap) -> Self {
        let trace =
            single(headers, &TRACEPARENT).and_then(|value| TraceContext::parse(value.as_bytes()));
        Self {
            id: single(headers, &REQUEST_ID)
                .and_then(RequestId::accept)
                .unwrap_or_else(RequestId::random),
            trace,
            state: trace.and_then(|_| trace_state(headers)),
            caller: OnceCell::new(),
            failed_check: OnceCell::new(),
        }
    }
}

/// The value of a header that occurs once.
fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h HeaderValue> {
    let mut values = headers.get_all(name).into_iter();
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

/// Joins the lines of a list header (RFC 9110, section 5.3).
fn trace_state(headers: &HeaderMap) -> Option<HeaderValue> {
    let lines: Vec<&[u8]> = headers
        .get_all(&TRACESTATE)
        .into_iter()
        .map(HeaderValue::as_bytes)
        .collect();
    let state = lines.join(&b","[..]);
    if (1..=MAX_TRACESTATE).contains(&state.len()) {
        HeaderValue::from_maybe_shared(bytes::Bytes::from(state)).ok()
    } else {
        None
    }
}

/// Reads the context of the current request; `None` outside of one.
pub(crate) fn current<T>(read: impl FnOnce(&RequestContext) -> T) -> Option<T> {
    CURRENT.try_with(read).ok()
}

pub(crate) fn set_caller(issuer: &Arc<str>, subject: &Arc<str>) {
    let label = CallerLabel {
        issuer: Arc::clone(issuer),
        subject: Arc::clone(subject),
    };
    // Authentication sets it once a request.
    current(|context| drop(context.caller.set(label)));
}

/// Records why the caller is not authenticated.
pub(crate) fn set_failed_check(check: &'static str) {
    current(|context| context.failed_check.set(check).ok());
}

/// Runs work on another thread in the context of the current request.
pub(crate) fn propagate<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let context = current(RequestContext::clone);
    move || match context {
        Some(context) => CURRENT.sync_scope(context, work),
        None => work(),
    }
}

/// Headers that continue the trace of the current request, with a new span; none without one.
pub(crate) fn outgoing_headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    current(|context| {
        let Some(trace) = context.trace else { return };
        let trace = trace.child(SpanId::from_bits(fastrand::u64(..)));
        if let Ok(value) = HeaderValue::try_from(trace.to_string()) {
            headers.insert(TRACEPARENT, value);
        }
        if let Some(state) = &context.state {
            headers.insert(TRACESTATE, state.clone());
        }
    });
    headers
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestId(HeaderValue);

impl RequestId {
    /// The ID that a caller sent, if it is valid.
    fn accept(value: &HeaderValue) -> Option<Self> {
        let is_valid = (1..=MAX_REQUEST_ID).contains(&value.len())
            && value.as_bytes().iter().all(u8::is_ascii_graphic);
        if !is_valid {
            return None;
        }
        // A copy: the value shares the buffer that the head was read into.
        HeaderValue::from_bytes(value.as_bytes()).ok().map(Self)
    }

    /// 128 random bits in hexadecimal.
    fn random() -> Self {
        let text = format!("{:032x}", fastrand::u128(..));
        // Digits are valid in a header.
        Self(HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("-")))
    }

    pub(super) fn as_str(&self) -> &str {
        // Visible ASCII is text.
        self.0.to_str().unwrap_or("-")
    }
}

/// Gives each request its context, and each response the ID of its request. It must be the
/// outermost layer. The service inside is always ready, as those of a router are.
pub(crate) fn layer<S, R>() -> impl Layer<
    S,
    Service = impl Service<Request, Response = Response<R>, Error = S::Error, Future: Send> + Clone,
> + Clone
where
    S: Service<Request, Response = Response<R>, Future: Send> + Clone,
{
    layer_fn(|mut inner: S| {
        service_fn(move |request: Request| {
            let context = RequestContext::new(request.headers());
            let handled = inner.call(request).map_ok(|mut response| {
                if let Some(RequestId(id)) = current(|context| context.id.clone()) {
                    response.headers_mut().insert(REQUEST_ID, id);
                }
                response
            });
            CURRENT.scope(context, handled)
        })
    })
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use tower::ServiceExt;

    use super::*;

    async fn outgoing(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut request = Request::new(Body::empty());
        for (name, value) in headers {
            request.headers_mut().append(*name, value.parse().unwrap());
        }
        let handler = service_fn(async |_| {
            let mut response = Response::new(());
            *response.headers_mut() = outgoing_headers();
            Ok::<_, std::convert::Infallible>(response)
        });
        let response = layer().layer(handler).oneshot(request).await;
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
