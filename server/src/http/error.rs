//! `ApiError`: the error of every handler, and the table from causes to status and problem type.

use std::{convert::Infallible, time::Duration};

use axum::{
    body::Body,
    http::{HeaderName, HeaderValue, Response, StatusCode, header},
    response::IntoResponse,
};
use doorman_config::{EditError, RevisionError, StoreErrorKind, ValidationErrors};
use doorman_core::master::NotGranted;
use doorman_openapi::{FieldError, Mastership, Problem, ProblemType, Scope, Scopes};

use crate::{
    auth::Unauthenticated,
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
    etag: Option<String>,
    challenge: Option<HeaderValue>,
    retry_after_seconds: Option<u64>,
    accept_patch: bool,
    location: Option<String>,
}

/// The value of `Accept-Patch` (RFC 5789, section 3.1): the media types of a PATCH.
const ACCEPT_PATCH: &str = "application/merge-patch+json, application/json";

impl ApiError {
    #[cfg(test)]
    pub(crate) fn detail(&self) -> &str {
        &self.0.problem.detail
    }

    pub(crate) fn new(kind: ProblemType, detail: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            problem: Problem::new(kind, detail),
            etag: None,
            challenge: None,
            retry_after_seconds: None,
            accept_patch: false,
            location: None,
        }))
    }

    /// 400.
    pub(crate) fn malformed(detail: impl Into<String>) -> Self {
        Self::new(ProblemType::MalformedRequest, detail)
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
        let challenge = format!(
            r#"Bearer realm="doorman", error="insufficient_scope", error_description="{detail}", scope="{listed}""#
        );
        let error = Self::new(ProblemType::Forbidden, detail);
        match HeaderValue::try_from(challenge) {
            Ok(challenge) => error.with_challenge(challenge),
            Err(_) => error,
        }
    }

    /// 403: the token is restricted to others than the request names.
    pub(crate) fn restricted(detail: impl Into<String>) -> Self {
        const CHALLENGE: &str = r#"Bearer realm="doorman", error="insufficient_scope", error_description="the token is restricted""#;
        Self::new(ProblemType::Forbidden, detail)
            .with_challenge(HeaderValue::from_static(CHALLENGE))
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
            None => Self::new(
                ProblemType::Unavailable,
                "this server is not the master of its node, and knows no master",
            ),
        };
        error.0.location = master.map(|master| format!("{master}{path}"));
        error.0.problem.mastership = Some(Mastership {
            master_address: master.map(str::to_owned),
        });
        error
    }

    /// 500. The log has the cause.
    pub(crate) fn internal() -> Self {
        Self::new(
            ProblemType::InternalError,
            "internal error; see the server log",
        )
    }

    /// Adds the current `ETag`.
    #[must_use]
    pub(crate) fn with_etag(mut self, etag: String) -> Self {
        self.0.etag = Some(etag);
        self
    }

    /// Adds the media types of a PATCH.
    #[must_use]
    pub(crate) fn with_accept_patch(mut self, accept_patch: bool) -> Self {
        self.0.accept_patch = accept_patch;
        self
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

    fn with_challenge(mut self, challenge: HeaderValue) -> Self {
        self.0.challenge = Some(challenge);
        self
    }

    /// Adds `Retry-After`: whole seconds, rounded up, at least 1.
    pub(crate) fn retry_after(mut self, wait: Duration) -> Self {
        let partial = u64::from(wait.subsec_nanos() > 0);
        self.0.retry_after_seconds = Some(wait.as_secs().saturating_add(partial).max(1));
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
            etag,
            challenge,
            retry_after_seconds,
            accept_patch,
            location,
        } = *self.0;
        let is_master = problem.mastership.is_none();
        // Cannot fail: a problem has only text keys and finite numbers.
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
        if let Some(etag) = etag.and_then(|etag| HeaderValue::try_from(etag).ok()) {
            headers.insert(header::ETAG, etag);
        }
        if let Some(seconds) = retry_after_seconds {
            headers.insert(header::RETRY_AFTER, seconds.into());
        } else if kind == ProblemType::Unavailable {
            headers.insert(header::RETRY_AFTER, RETRY_AFTER_SECONDS.into());
        }
        if let Some(challenge) = challenge {
            headers.insert(header::WWW_AUTHENTICATE, challenge);
        }
        if let Some(location) = location.and_then(|it| HeaderValue::try_from(it).ok()) {
            headers.insert(header::LOCATION, location);
        }
        if !is_master {
            // Behind a balancer the next connection may lead to the master.
            let close = HeaderValue::from_static("close");
            headers.insert(header::CONNECTION, close);
        }
        if accept_patch {
            headers.insert(
                HeaderName::from_static("accept-patch"),
                HeaderValue::from_static(ACCEPT_PATCH),
            );
        }
        response
    }
}

impl From<Unauthenticated> for ApiError {
    fn from(cause: Unauthenticated) -> Self {
        let (detail, challenge) = match cause {
            Unauthenticated::KeysUnavailable => {
                return Self::new(
                    ProblemType::Unavailable,
                    "the keys of the token issuer are not loaded yet",
                );
            }
            // Without a token there is no error attribute: RFC 6750, section 3.1.
            Unauthenticated::NoToken => (
                "missing token: send `authorization: Bearer <token>`",
                r#"Bearer realm="doorman""#,
            ),
            Unauthenticated::Malformed => (
                "malformed `authorization` header: must be one bearer token of at most 8192 bytes",
                r#"Bearer realm="doorman", error="invalid_request", error_description="malformed authorization header: must be one bearer token of at most 8192 bytes""#,
            ),
            Unauthenticated::Invalid(_) => (
                "invalid token",
                r#"Bearer realm="doorman", error="invalid_token", error_description="invalid token""#,
            ),
            Unauthenticated::NotYetValid => (
                "token not yet valid",
                r#"Bearer realm="doorman", error="invalid_token", error_description="token not yet valid""#,
            ),
            Unauthenticated::Expired => (
                "token expired",
                r#"Bearer realm="doorman", error="invalid_token", error_description="token expired""#,
            ),
        };
        Self::new(ProblemType::Unauthorized, detail)
            .with_challenge(HeaderValue::from_static(challenge))
    }
}

impl From<LedgerUnavailable> for ApiError {
    fn from(cause: LedgerUnavailable) -> Self {
        match cause {
            LedgerUnavailable::NotMaster => Self::not_master(None, ""),
            LedgerUnavailable::Poisoned => Self::new(
                ProblemType::Unavailable,
                "the ledger is poisoned by an earlier panic; restart the server",
            ),
        }
    }
}

impl From<NotGranted> for ApiError {
    fn from(cause: NotGranted) -> Self {
        match cause {
            NotGranted::NotMaster => LedgerUnavailable::NotMaster.into(),
            NotGranted::NotDurable => Self::new(
                ProblemType::Unavailable,
                "leases cannot be recorded for the next master; retry later",
            ),
            NotGranted::NoParent => Self::new(
                ProblemType::Unavailable,
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
        Self::new(ProblemType::TooManyRequests, detail).retry_after(limited.retry_after)
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
    let listed = errors.list().iter().map(|error| FieldError {
        pointer: error.pointer().to_owned(),
        detail: error.message().to_owned(),
    });
    let omitted = (errors.omitted() > 0).then(|| FieldError {
        pointer: String::new(),
        detail: format!("has {} more errors", errors.omitted()),
    });
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
            EditFailed::Busy => Self::new(
                ProblemType::Unavailable,
                "too many concurrent document changes",
            ),
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
