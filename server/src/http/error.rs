//! `ApiError`: the error of every handler, and the table from causes to status and problem type.

use std::convert::Infallible;

use axum::{
    body::Body,
    http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header},
    response::IntoResponse,
};
use doorman_config::{EditError, RevisionError, StoreErrorKind, ValidationErrors};
use doorman_core::master::NotGranted;
use doorman_openapi::{FieldError, Mastership, Problem, ProblemType, Scope, Scopes};

use crate::{
    auth::{FailedCheck, Unauthenticated},
    document::{EditFailed, EtcdFailure},
    leasing::LedgerUnavailable,
    quota::{LimitScope, RateLimited},
    upstream::ParentNode,
};

/// `Retry-After` of a 503, in seconds.
pub(crate) const RETRY_AFTER_SECONDS: u32 = 1;

/// A request that fails: the problem for its body, and headers that go with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError(Box<Inner>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Inner {
    kind: ProblemType,
    problem: Problem,
    headers: HeaderMap,
}

/// The value of `Accept-Patch` (RFC 5789, section 3.1): the media types of a PATCH.
const ACCEPT_PATCH: &str = "application/merge-patch+json, application/json";

impl ApiError {
    pub(crate) fn new(kind: ProblemType, detail: impl Into<String>) -> Self {
        let error = Self(Box::new(Inner {
            kind,
            problem: Problem::new(kind, detail),
            headers: HeaderMap::new(),
        }));
        match kind {
            ProblemType::Unavailable => error.with_header(header::RETRY_AFTER, RETRY_AFTER_SECONDS),
            _ => error,
        }
    }

    /// 400.
    pub(crate) fn malformed(detail: impl Into<String>) -> Self {
        Self::new(ProblemType::MalformedRequest, detail)
    }

    /// 503.
    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(ProblemType::Unavailable, detail)
    }

    /// 422: the body is JSON, but this field is invalid.
    pub(crate) fn invalid_field(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::invalid(vec![FieldError::new(pointer, detail)])
    }

    /// 422: the body is JSON, but these fields are invalid.
    pub(crate) fn invalid(errors: Vec<FieldError>) -> Self {
        let detail = match errors.as_slice() {
            [] => "invalid body".to_owned(),
            [only] => in_words(only),
            [first, _] => format!("{} (and 1 more error)", in_words(first)),
            [first, rest @ ..] => format!("{} (and {} more errors)", in_words(first), rest.len()),
        };
        Self::new(ProblemType::InvalidRequest, detail).with_errors(errors)
    }

    /// 403: the token lacks all of these scopes.
    pub(crate) fn missing_scope(any_of: &[Scope]) -> Self {
        let names: Vec<_> = any_of.iter().map(|scope| scope.name()).collect();
        let detail = format!("missing scope: {}", names.join(" or "));
        let listed: Scopes = any_of.iter().copied().collect();
        let challenge = challenge("insufficient_scope", &detail);
        let challenge = format!(r#"{challenge}, scope="{listed}""#);
        Self::new(ProblemType::Forbidden, detail).with_header(header::WWW_AUTHENTICATE, challenge)
    }

    /// 403: the token is restricted to others than the request names.
    pub(crate) fn restricted(detail: impl Into<String>) -> Self {
        const CHALLENGE: &str = r#"Bearer realm="doorman", error="insufficient_scope", error_description="the token is restricted""#;
        Self::new(ProblemType::Forbidden, detail).with_header(header::WWW_AUTHENTICATE, CHALLENGE)
    }

    /// The document is at the root of the tree, and not at this node.
    pub(crate) fn at_root(kind: ProblemType, parent: &ParentNode) -> Self {
        let root = match parent.root() {
            Some(root) => format!("the root, {root}"),
            None => format!("the root; the parent is {}", parent.servers().join(",")),
        };
        Self::new(
            kind,
            format!("this node has no document; it is read and changed at {root}"),
        )
    }

    /// 307 to a path of the master, or 503 if the master is unknown.
    pub(crate) fn not_master(master: Option<&str>, path: &str) -> Self {
        let mut error = match master {
            Some(master) => Self::new(
                ProblemType::NotMaster,
                format!("this server is not the master of its node; the master is {master}"),
            ),
            None => {
                Self::unavailable("this server is not the master of its node, and knows no master")
            }
        };
        error.0.problem.mastership = Some(Mastership {
            master_address: master.map(str::to_owned),
        });
        // Behind a balancer the next connection may lead to the master.
        let error = error.with_header(header::CONNECTION, "close");
        match master {
            Some(master) => error.with_header(header::LOCATION, format!("{master}{path}")),
            None => error,
        }
    }

    /// 500. The log has the cause.
    pub(crate) fn internal() -> Self {
        Self::new(
            ProblemType::InternalError,
            "internal error; see the server log",
        )
    }

    /// Adds a header; a value that no header can have is left out.
    #[must_use]
    pub(crate) fn with_header(
        mut self,
        name: HeaderName,
        value: impl TryInto<HeaderValue>,
    ) -> Self {
        if let Ok(value) = value.try_into() {
            self.0.headers.insert(name, value);
        }
        self
    }

    /// Adds the media types of a PATCH.
    #[must_use]
    pub(crate) fn with_accept_patch(self) -> Self {
        self.with_header(HeaderName::from_static("accept-patch"), ACCEPT_PATCH)
    }

    /// Adds to the detail.
    #[must_use]
    pub(crate) fn with_hint(mut self, hint: &str) -> Self {
        let detail = &mut self.0.problem.detail;
        detail.push_str("; ");
        detail.push_str(hint);
        self
    }

    #[must_use]
    pub(crate) fn with_errors(mut self, errors: Vec<FieldError>) -> Self {
        self.0.problem.errors = errors;
        self
    }

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

impl IntoResponse for ApiError {
    fn into_response(self) -> Response<Body> {
        let Inner {
            kind,
            problem,
            headers,
        } = *self.0;
        // Cannot fail: a problem has only text keys and finite numbers.
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() =
            StatusCode::from_u16(kind.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        *response.headers_mut() = headers;
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static(Problem::MEDIA_TYPE),
        );
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

impl From<Unauthenticated> for ApiError {
    fn from(cause: Unauthenticated) -> Self {
        let (error, detail) = match cause {
            Unauthenticated::KeysUnavailable => {
                return Self::unavailable("the keys of the token issuer are not loaded yet");
            }
            Unauthenticated::NoToken => {
                // Without a token there is no error attribute: RFC 6750, section 3.1.
                let detail = "missing token: send `authorization: Bearer <token>`";
                return Self::new(ProblemType::Unauthorized, detail)
                    .with_header(header::WWW_AUTHENTICATE, r#"Bearer realm="doorman""#);
            }
            Unauthenticated::Malformed => (
                "invalid_request",
                "malformed `authorization` header: must be one bearer token of at most 8192 bytes",
            ),
            Unauthenticated::Invalid(FailedCheck::NotYetValid) => {
                ("invalid_token", "token not yet valid")
            }
            Unauthenticated::Invalid(FailedCheck::Expired) => ("invalid_token", "token expired"),
            Unauthenticated::Invalid(_) => ("invalid_token", "invalid token"),
        };
        Self::new(ProblemType::Unauthorized, detail).with_header(
            header::WWW_AUTHENTICATE,
            challenge(error, &detail.replace('`', "")),
        )
    }
}

/// The value of `WWW-Authenticate`: RFC 6750, section 3.
fn challenge(error: &str, description: &str) -> String {
    format!(r#"Bearer realm="doorman", error="{error}", error_description="{description}""#)
}

impl From<LedgerUnavailable> for ApiError {
    fn from(cause: LedgerUnavailable) -> Self {
        match cause {
            LedgerUnavailable::NotMaster => Self::not_master(None, ""),
            LedgerUnavailable::Poisoned => {
                Self::unavailable("the ledger is poisoned by an earlier panic; restart the server")
            }
        }
    }
}

impl From<NotGranted> for ApiError {
    fn from(cause: NotGranted) -> Self {
        match cause {
            NotGranted::NotMaster => LedgerUnavailable::NotMaster.into(),
            NotGranted::NotDurable => {
                Self::unavailable("leases cannot be recorded for the next master; retry later")
            }
            NotGranted::NoParent => Self::unavailable(
                "the parent has not yet stated which leases this node holds; retry later",
            ),
        }
    }
}

impl From<RateLimited> for ApiError {
    fn from(limited: RateLimited) -> Self {
        let detail = match limited.scope {
            LimitScope::Caller => "caller rate limit exceeded",
            LimitScope::Server => "server overloaded",
        };
        let wait = limited.retry_after;
        let partial = u64::from(wait.subsec_nanos() > 0);
        let seconds = wait.as_secs().saturating_add(partial).max(1);
        Self::new(ProblemType::TooManyRequests, detail).with_header(header::RETRY_AFTER, seconds)
    }
}

impl From<Infallible> for ApiError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl From<EditError> for ApiError {
    fn from(error: EditError) -> Self {
        match error {
            EditError::Invalid(errors) => errors.into(),
            EditError::Conflict(errors) => {
                let first = errors.list().first();
                let first = first.map_or_else(String::new, ToString::to_string);
                Self::new(
                    ProblemType::Conflict,
                    format!("the change makes the rest of the document invalid: {first}"),
                )
                .with_errors(field_errors(&errors))
            }
        }
    }
}

impl From<RevisionError> for ApiError {
    fn from(error: RevisionError) -> Self {
        let kind = match error {
            RevisionError::Store(_) => {
                tracing::error!(%error, "cannot read document history");
                ProblemType::Unavailable
            }
            _ => ProblemType::NotFound,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<ValidationErrors> for ApiError {
    fn from(errors: ValidationErrors) -> Self {
        Self::invalid(field_errors(&errors))
    }
}

fn field_errors(errors: &ValidationErrors) -> Vec<FieldError> {
    let listed = errors.list().iter();
    let listed = listed.map(|error| FieldError::new(error.pointer(), error.message()));
    let omitted = (errors.omitted() > 0)
        .then(|| FieldError::new("", format!("has {} more errors", errors.omitted())));
    listed.chain(omitted).collect()
}

impl<E: Into<Self>> From<EditFailed<E>> for ApiError {
    fn from(failed: EditFailed<E>) -> Self {
        match failed {
            EditFailed::Rejected(error) => error.into(),
            EditFailed::ReadOnly(source) => Self::new(
                ProblemType::Conflict,
                format!(
                    "the document is read-only over HTTP: it comes from {source}; change it there"
                ),
            ),
            EditFailed::AtRoot(parent) => Self::at_root(ProblemType::Conflict, &parent),
            EditFailed::Busy => {
                Self::unavailable("too many concurrent reads or changes of the document")
            }
            EditFailed::Store(error) => {
                let kind = match error.kind() {
                    StoreErrorKind::Full => ProblemType::InsufficientStorage,
                    _ => ProblemType::Unavailable,
                };
                Self::new(kind, format!("nothing was changed: {error}"))
            }
            EditFailed::Etcd(failure) => {
                let kind = match &failure {
                    EtcdFailure::TooLarge { .. } => ProblemType::PayloadTooLarge,
                    _ => ProblemType::Unavailable,
                };
                Self::new(kind, failure.to_string())
            }
            EditFailed::Ledger(cause) => cause.into(),
            EditFailed::Panicked => Self::internal(),
        }
    }
}
