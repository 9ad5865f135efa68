//! Responses to refused requests: HTTP problem details or gRPC status, headers and log.

use std::{
    fmt::{self, Write as _},
    sync::Arc,
};

use bytes::Bytes;
use doorman_openapi::{Problem, ResourceId, TraceContext, headers::TRACEPARENT};
use http::{HeaderValue, Response, StatusCode, header};

use super::grpc::{self, Code};
use crate::{
    admission::{HeaderPolicy, RateLimitHeaders},
    key::{Callers, RequestHead},
    refusal::{Refusal, RefusalReason},
};

type RefusalHandler = dyn for<'a> Fn(&Refusal, &RequestHead<'a>) -> Response<Bytes> + Send + Sync;

#[derive(Clone)]
pub(super) struct ResponsePolicy {
    callers: Callers,
    headers: HeaderPolicy,
    /// `None`: [`Refusal::to_response`].
    on_refusal: Option<Arc<RefusalHandler>>,
}

impl ResponsePolicy {
    pub(super) fn new(callers: Callers) -> Self {
        Self {
            callers,
            headers: HeaderPolicy::Send,
            on_refusal: None,
        }
    }

    pub(super) fn headers(&self) -> HeaderPolicy {
        self.headers
    }

    pub(super) fn set_headers(&mut self, policy: HeaderPolicy) {
        self.headers = policy;
    }

    pub(super) fn set_refusal<F, T>(&mut self, respond: F)
    where
        F: for<'a> Fn(&Refusal, &RequestHead<'a>) -> Response<T> + Send + Sync + 'static,
        T: Into<Bytes>,
    {
        self.on_refusal = Some(Arc::new(move |refusal, head| {
            respond(refusal, head).map(Into::into)
        }));
    }

    pub(super) fn filter(&self, headers: RateLimitHeaders) -> RateLimitHeaders {
        match self.headers {
            HeaderPolicy::Send => headers,
            HeaderPolicy::Omit => RateLimitHeaders::default(),
        }
    }

    pub(super) fn refuse(
        &self,
        refusal: Refusal,
        headers: RateLimitHeaders,
        head: &RequestHead<'_>,
    ) -> Response<Bytes> {
        log(&refusal, head);
        let mut response = match &self.on_refusal {
            Some(respond) => respond(&refusal, &head.with_callers(&self.callers)),
            None => refusal.to_response(head),
        };
        self.filter(headers).append_to(response.headers_mut());
        response.extensions_mut().insert(refusal);
        response
    }
}

impl fmt::Debug for ResponsePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponsePolicy")
            .field("headers", &self.headers)
            .field("has_refusal_handler", &self.on_refusal.is_some())
            .finish_non_exhaustive()
    }
}

/// Logs at debug level, as clients can cause any number of refusals.
pub(super) fn log(refusal: &Refusal, head: &RequestHead<'_>) {
    tracing::debug!(
        limit = refusal.limit(),
        resource = refusal.resource().map(ResourceId::as_str),
        reason = ?refusal.reason(),
        retry_after = refusal.retry_after_seconds(),
        trace_id = trace(head).map(|it| display(it.trace_id)),
        "request refused by limit"
    );
}

/// The trace of a request; `None` if its header is missing, malformed or duplicate.
fn trace(head: &RequestHead<'_>) -> Option<TraceContext> {
    let mut values = head.headers().get_all(TRACEPARENT).into_iter();
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    TraceContext::parse(value.as_bytes())
}

impl Refusal {
    /// The default response of a layer. A gRPC request (a `POST` with its content type) gets status
    /// 200 without a body, and the headers `grpc-status`, `grpc-message` and
    /// `grpc-retry-pushback-ms`. Any other request gets the status of the reason and a problem (RFC
    /// 9457) as body. Both have `Cache-Control: no-store`, and `Retry-After` if a retry can
    /// succeed.
    #[must_use]
    pub fn to_response(&self, head: &RequestHead<'_>) -> Response<Bytes> {
        let kind = self.reason().kind();
        let mut response = match grpc::response_content_type(head) {
            Some(content_type) => self.grpc_response(&kind, content_type),
            None => self.problem(&kind),
        };
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self.reason().is_temporary() {
            let seconds = HeaderValue::from(self.retry_after_seconds());
            headers.insert(header::RETRY_AFTER, seconds);
        }
        response
    }

    fn problem(&self, kind: &Kind) -> Response<Bytes> {
        let mut response = Response::new(self.problem_body(kind));
        *response.status_mut() = kind.status;
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static(Problem::MEDIA_TYPE),
        );
        if let Some(challenge) = self.reason().challenge() {
            headers.insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }

    /// A [`Problem`] in JSON, of which only two texts have to be escaped.
    fn problem_body(&self, kind: &Kind) -> Bytes {
        let reason = self.reason().as_str();
        let detail = self.detail();
        // Exact if nothing is escaped.
        let texts = kind.begin.len() + detail.len() + self.limit().len() + reason.len();
        let mut body = Vec::with_capacity(texts + 40);
        body.extend_from_slice(kind.begin.as_bytes());
        push_json(&mut body, &detail);
        body.extend_from_slice(b",\"violated-policies\":[");
        push_json(&mut body, self.limit());
        body.extend_from_slice(b"],\"reason\":\"");
        body.extend_from_slice(reason.as_bytes());
        body.extend_from_slice(b"\"}");
        body.into()
    }

    fn grpc_response(&self, kind: &Kind, content_type: HeaderValue) -> Response<Bytes> {
        let mut response = Response::new(Bytes::new());
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, content_type);
        grpc::insert_status(headers, kind.code, &self.detail());
        if self.reason().is_temporary() {
            grpc::insert_pushback(headers, self.retry_after());
        }
        response
    }

    fn detail(&self) -> String {
        let mut detail = String::with_capacity(self.limit().len() + 64);
        let written = if self.reason().is_temporary() {
            write!(detail, "{self}; retry in {} s", self.retry_after_seconds())
        } else {
            write!(detail, "{self}")
        };
        // A text can always be written to.
        written.ok();
        detail
    }
}

/// The parts of a response that depend on the reason only.
struct Kind {
    status: StatusCode,
    code: Code,
    /// The problem up to its detail: with a registered type, if there is one.
    begin: &'static str,
}

macro_rules! begin_problem {
    ($kind:literal, $title:literal, $status:literal) => {
        concat!(
            r#"{"type":""#,
            $kind,
            r#"","title":""#,
            $title,
            r#"","status":"#,
            $status,
            r#","detail":"#
        )
    };
}

fn push_json(json: &mut Vec<u8>, text: &str) {
    // A text always serializes.
    serde_json::to_writer(json, text).ok();
}

impl RefusalReason {
    /// The challenge of a response of status 401 (RFC 6750 section 3).
    fn challenge(self) -> Option<HeaderValue> {
        match self {
            Self::MissingToken => Some(HeaderValue::from_static("Bearer")),
            Self::InvalidToken => Some(HeaderValue::from_static("Bearer error=\"invalid_token\"")),
            Self::Spent
            | Self::Blocked
            | Self::Suppressed
            | Self::NoLease
            | Self::OtherUnit
            | Self::Growing
            | Self::Overflow
            | Self::QueueFull
            | Self::MissingKey => None,
        }
    }

    fn kind(self) -> Kind {
        match self {
            Self::Spent
            | Self::Blocked
            | Self::Suppressed
            | Self::Growing
            | Self::Overflow
            | Self::QueueFull => Kind {
                status: StatusCode::TOO_MANY_REQUESTS,
                code: Code::ResourceExhausted,
                begin: begin_problem!(
                    "https://iana.org/assignments/http-problem-types#quota-exceeded",
                    "Request cannot be satisfied as assigned quota has been exceeded",
                    429
                ),
            },
            Self::NoLease | Self::OtherUnit => Kind {
                status: StatusCode::SERVICE_UNAVAILABLE,
                code: Code::Unavailable,
                begin: begin_problem!(
                    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
                    "Request cannot be satisfied due to temporary server capacity constraints",
                    503
                ),
            },
            Self::MissingKey => Kind {
                status: StatusCode::BAD_REQUEST,
                code: Code::InvalidArgument,
                begin: begin_problem!("about:blank", "Bad Request", 400),
            },
            Self::MissingToken | Self::InvalidToken => Kind {
                status: StatusCode::UNAUTHORIZED,
                code: Code::Unauthenticated,
                begin: begin_problem!("about:blank", "Unauthorized", 401),
            },
        }
    }
}

#[cfg(test)]
mod tests;
