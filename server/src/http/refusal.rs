//! The one way a request is refused: a status, and a problem body that says what would be right.

use std::time::Duration;

use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header},
    response::IntoResponse,
};
use doorman_openapi::{FieldError, Problem, ProblemType};

/// What a holder that finds the server unavailable should wait before it comes again.
pub(crate) const RETRY_AFTER_SECONDS: u32 = 1;

/// A refused request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal(Box<Inner>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Inner {
    kind: ProblemType,
    problem: Problem,
    /// The `ETag` of what the request was about.
    tag: Option<String>,
    challenge: Option<HeaderValue>,
    /// In seconds, where it is not the usual.
    retry_after: Option<u64>,
}

impl Refusal {
    pub(crate) fn new(kind: ProblemType, detail: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            problem: Problem::new(kind, detail),
            tag: None,
            challenge: None,
            retry_after: None,
        }))
    }

    /// Adds the `ETag` of what the request was about, as it is now.
    #[must_use]
    pub(crate) fn with_tag(mut self, tag: String) -> Self {
        self.0.tag = Some(tag);
        self
    }

    /// Adds what is wrong where.
    #[must_use]
    pub(crate) fn with_errors(mut self, errors: Vec<FieldError>) -> Self {
        self.0.problem.errors = errors;
        self
    }

    /// A body that is JSON, but not what the call takes.
    pub(crate) fn of_faults(errors: Vec<FieldError>) -> Self {
        let detail = match errors.as_slice() {
            [] => "the body is not what the call takes".to_owned(),
            [only] => in_words(only),
            [first, _] => format!("{}, and 1 more fault", in_words(first)),
            [first, rest @ ..] => format!("{}, and {} more faults", in_words(first), rest.len()),
        };
        Self::new(ProblemType::InvalidRequest, detail).with_errors(errors)
    }

    /// The same, with what `WWW-Authenticate` says.
    pub(crate) fn challenging(mut self, challenge: HeaderValue) -> Self {
        self.0.challenge = Some(challenge);
        self
    }

    /// The same, to be tried again after so long: in whole seconds, not earlier, and not at once.
    pub(crate) fn after(mut self, wait: Duration) -> Self {
        let whole = wait.as_secs();
        let more = u64::from(wait.subsec_nanos() > 0);
        self.0.retry_after = Some(whole.saturating_add(more).max(1));
        self
    }

    /// What the client is told.
    pub(crate) fn into_problem(self) -> Problem {
        self.0.problem
    }
}

fn in_words(FieldError { pointer, detail }: &FieldError) -> String {
    match pointer.as_str() {
        "" => format!("the body {detail}"),
        pointer => format!("{pointer} {detail}"),
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response<Body> {
        let Inner {
            kind,
            problem,
            tag,
            challenge,
            retry_after,
        } = *self.0;
        // A problem has no map with keys that are not text, and no number that JSON cannot say: writing it cannot fail.
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() =
            StatusCode::from_u16(kind.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static(Problem::MEDIA_TYPE),
        );
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(tag) = tag.and_then(|tag| HeaderValue::try_from(tag).ok()) {
            headers.insert(header::ETAG, tag);
        }
        if kind == ProblemType::Unavailable {
            headers.insert(header::RETRY_AFTER, RETRY_AFTER_SECONDS.into());
        }
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if let Some(challenge) = challenge {
            headers.insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}
