//! What the caller is told of a refusal.

use bytes::Bytes;
use doorman_openapi::Problem;
use http::{HeaderValue, Response, StatusCode, header};

use super::grpc::{self, Code};
use crate::{Refusal, RefusalReason, RequestHead};

const REGISTRY: &str = "https://iana.org/assignments/http-problem-types";

impl Refusal {
    /// The response that a layer gives, unless it is told [another](crate::LimitLayer::on_refusal).
    ///
    /// To requests of gRPC, which are a `POST` of its content type, it is of status 200 without a body, and has `grpc-status`, `grpc-message` and
    /// `grpc-retry-pushback-ms` among its headers; to all others it has the reason's status, and a problem (RFC 9457) as its body. Both say
    /// when to come back in `Retry-After`, unless coming back makes no sense, and that no cache may keep them.
    #[must_use]
    pub fn to_response(&self, head: &RequestHead<'_>) -> Response<Bytes> {
        let answer = self.reason().answer();
        let mut response = match grpc::answers(head) {
            Some(content_type) => self.status_of_call(&answer, content_type),
            None => self.problem(&answer),
        };
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if answer.kind.is_some() {
            let seconds = HeaderValue::from(self.retry_after_seconds());
            headers.insert(header::RETRY_AFTER, seconds);
        }
        response
    }

    fn problem(&self, answer: &Answer) -> Response<Bytes> {
        let problem = Problem {
            kind: answer.kind.map_or_else(
                || "about:blank".to_owned(),
                |kind| format!("{REGISTRY}#{kind}"),
            ),
            title: answer.title.to_owned(),
            status: answer.status.as_u16(),
            detail: self.detail(answer),
            errors: Vec::new(),
            mastership: None,
            violated_policies: vec![self.limit().to_owned()],
        };
        // A problem of plain texts and numbers can always be written.
        let body = serde_json::to_vec(&problem).unwrap_or_default();

        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = answer.status;
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

    fn status_of_call(&self, answer: &Answer, content_type: HeaderValue) -> Response<Bytes> {
        let mut response = Response::new(Bytes::new());
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, content_type);
        grpc::tell(headers, answer.code, &self.detail(answer));
        if answer.kind.is_some() {
            grpc::push_back(headers, self.retry_after());
        }
        response
    }

    fn detail(&self, answer: &Answer) -> String {
        match answer.kind {
            Some(_) => format!("{self}; try again in {} s", self.retry_after_seconds()),
            None => self.to_string(),
        }
    }
}

/// What a caller is told, apart from the details.
struct Answer {
    status: StatusCode,
    /// The same for gRPC.
    code: Code,
    /// A problem type of the registry, of those that time mends; `None` when the status says it all.
    kind: Option<&'static str>,
    title: &'static str,
}

impl RefusalReason {
    /// What a response of status 401 must ask for, and why if the request had it: RFC 6750 section 3.
    fn challenge(self) -> Option<HeaderValue> {
        match self {
            Self::MissingToken => Some(HeaderValue::from_static("Bearer")),
            Self::InvalidToken => Some(HeaderValue::from_static("Bearer error=\"invalid_token\"")),
            Self::Spent
            | Self::Blocked
            | Self::Suppressed
            | Self::NoLease
            | Self::WarmingUp
            | Self::Overflow
            | Self::QueueFull
            | Self::MissingKey => None,
        }
    }

    fn answer(self) -> Answer {
        match self {
            Self::Spent | Self::Blocked | Self::Suppressed => Answer {
                status: StatusCode::TOO_MANY_REQUESTS,
                code: Code::ResourceExhausted,
                kind: Some("quota-exceeded"),
                title: "Request cannot be satisfied as assigned quota has been exceeded",
            },
            Self::NoLease | Self::WarmingUp | Self::Overflow | Self::QueueFull => Answer {
                status: StatusCode::SERVICE_UNAVAILABLE,
                code: Code::Unavailable,
                kind: Some("temporary-reduced-capacity"),
                title: "Request cannot be satisfied due to temporary server capacity constraints",
            },
            Self::MissingKey => Answer {
                status: StatusCode::BAD_REQUEST,
                code: Code::InvalidArgument,
                kind: None,
                title: "Bad Request",
            },
            Self::MissingToken | Self::InvalidToken => Answer {
                status: StatusCode::UNAUTHORIZED,
                code: Code::Unauthenticated,
                kind: None,
                title: "Unauthorized",
            },
        }
    }
}
