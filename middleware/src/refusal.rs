//! Why a request was refused, as a type for programs and as a response for callers.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use doorman_openapi::{Moment, Problem, ResourceId};
use http::{HeaderValue, Response, StatusCode, header};

use crate::{
    body::LimitBody,
    key::Absent,
    limiter::{Refused, Why},
};

/// Why a limit refused a request. Refused responses of the layer carry it in their extensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    limit: Arc<str>,
    resource: Option<ResourceId>,
    reason: RefusalReason,
    retry_after: Duration,
}

/// Why a limit refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalReason {
    /// The limit is spent: 429.
    Spent,
    /// The limit is zero: 429.
    Blocked,
    /// There is no lease, or one on nothing as nothing was wanted; and what passes all the same, if anything, is spent: 503.
    NoLease,
    /// There was no room for another key, and what the keys without room share is spent: 503.
    Overflow,
    /// Too many wait already: 503.
    QueueFull,
    /// The limit is spent over the whole fleet, and chance has chosen this request among those that must go: 429. The next may pass.
    Suppressed,
    /// The request lacks what its key is made of: 400.
    MissingKey,
    /// The request lacks the token that its key is made of: 401.
    MissingToken,
    /// The token that the request's key would be made of does not count: 401.
    InvalidToken,
}

/// When to come back if nothing is known of when it makes sense.
const UNKNOWN_WAIT: Duration = Duration::from_secs(60);

fn wait(until: Option<Moment>, now: Moment) -> Duration {
    until.map_or(UNKNOWN_WAIT, |moment| moment.since(now))
}

const REGISTRY: &str = "https://iana.org/assignments/http-problem-types";

impl Refusal {
    pub(crate) fn new(
        limit: &Arc<str>,
        resource: &ResourceId,
        refused: Refused,
        now: Moment,
    ) -> Self {
        Self {
            limit: Arc::clone(limit),
            resource: Some(resource.clone()),
            reason: match refused.why {
                Why::Spent => RefusalReason::Spent,
                Why::Blocked => RefusalReason::Blocked,
                Why::NoLease => RefusalReason::NoLease,
                Why::Overflow => RefusalReason::Overflow,
                Why::QueueFull => RefusalReason::QueueFull,
                Why::Suppressed => RefusalReason::Suppressed,
            },
            retry_after: wait(refused.until, now),
        }
    }

    /// Coming back makes no sense before `moment` either, for another limit of the same request; `None` when nothing is known of it.
    pub(crate) fn wait_until(&mut self, moment: Option<Moment>, now: Moment) {
        self.retry_after = self.retry_after.max(wait(moment, now));
    }

    pub(crate) fn of_missing_key(limit: &Arc<str>, absent: Absent) -> Self {
        Self {
            limit: Arc::clone(limit),
            resource: None,
            reason: match absent {
                Absent::Value => RefusalReason::MissingKey,
                Absent::Token => RefusalReason::MissingToken,
                Absent::GoodToken => RefusalReason::InvalidToken,
            },
            retry_after: Duration::ZERO,
        }
    }

    /// The name of the limit that refused.
    #[must_use]
    pub fn limit(&self) -> &str {
        &self.limit
    }

    /// The resource that the request would have spent; `None` when its key could not be made.
    #[must_use]
    pub fn resource(&self) -> Option<&ResourceId> {
        self.resource.as_ref()
    }

    /// Why.
    #[must_use]
    pub fn reason(&self) -> RefusalReason {
        self.reason
    }

    /// How long to wait before coming back makes sense, by all the limits of the request. Exact where the [reason](Self::reason) is
    /// that the limit is spent: if the leases stay and nobody else comes, the request is admitted then, and not before.
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        self.retry_after
    }

    /// The same in whole seconds, rounded up, and at least one.
    pub(crate) fn retry_after_seconds(&self) -> u64 {
        let whole = self.retry_after.as_secs();
        if self.retry_after.subsec_nanos() > 0 {
            whole.saturating_add(1)
        } else {
            whole.max(1)
        }
    }

    /// The response that tells the caller.
    pub(crate) fn into_response<B>(self) -> Response<LimitBody<B>> {
        let answer = self.reason.answer();
        let seconds = self.retry_after_seconds();
        let problem = Problem {
            kind: answer.kind.map_or_else(
                || "about:blank".to_owned(),
                |kind| format!("{REGISTRY}#{kind}"),
            ),
            title: answer.title.to_owned(),
            status: answer.status.as_u16(),
            detail: match answer.kind {
                Some(_) => format!("{self}; try again in {seconds} s"),
                None => self.to_string(),
            },
            errors: Vec::new(),
            mastership: None,
            violated_policies: vec![self.limit.to_string()],
        };
        // A problem of plain texts and numbers can always be written.
        let body = serde_json::to_vec(&problem).unwrap_or_default();

        let mut response = Response::new(LimitBody::refused(Bytes::from(body)));
        *response.status_mut() = answer.status;
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static(Problem::MEDIA_TYPE),
        );
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if answer.kind.is_some() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(challenge) = self.reason.challenge() {
            headers.insert(header::WWW_AUTHENTICATE, challenge);
        }
        response.extensions_mut().insert(self);
        response
    }
}

/// What a caller is told, apart from the details.
struct Answer {
    status: StatusCode,
    /// A problem type of the registry; `None` when the status says it all.
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
            | Self::Overflow
            | Self::QueueFull
            | Self::MissingKey => None,
        }
    }

    fn answer(self) -> Answer {
        match self {
            Self::Spent | Self::Blocked | Self::Suppressed => Answer {
                status: StatusCode::TOO_MANY_REQUESTS,
                kind: Some("quota-exceeded"),
                title: "Request cannot be satisfied as assigned quota has been exceeded",
            },
            Self::NoLease | Self::Overflow | Self::QueueFull => Answer {
                status: StatusCode::SERVICE_UNAVAILABLE,
                kind: Some("temporary-reduced-capacity"),
                title: "Request cannot be satisfied due to temporary server capacity constraints",
            },
            Self::MissingKey => Answer {
                status: StatusCode::BAD_REQUEST,
                kind: None,
                title: "Bad Request",
            },
            Self::MissingToken | Self::InvalidToken => Answer {
                status: StatusCode::UNAUTHORIZED,
                kind: None,
                title: "Unauthorized",
            },
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = &self.limit;
        match self.reason {
            RefusalReason::Spent => write!(f, "the limit `{limit}` is spent"),
            RefusalReason::Blocked => write!(f, "the limit `{limit}` is zero"),
            RefusalReason::NoLease => {
                write!(f, "the limit `{limit}` has no capacity at present")
            }
            RefusalReason::Overflow => {
                write!(f, "the limit `{limit}` has no room for another key")
            }
            RefusalReason::QueueFull => {
                write!(f, "too many requests wait for the limit `{limit}`")
            }
            RefusalReason::Suppressed => {
                write!(
                    f,
                    "the limit `{limit}` is spent, and lets only some requests pass"
                )
            }
            RefusalReason::MissingKey => {
                write!(f, "the request lacks what the limit `{limit}` is kept by")
            }
            RefusalReason::MissingToken => {
                write!(
                    f,
                    "the request lacks the token that the limit `{limit}` is kept by"
                )
            }
            RefusalReason::InvalidToken => {
                write!(
                    f,
                    "the request's token does not count for the limit `{limit}`"
                )
            }
        }
    }
}

impl std::error::Error for Refusal {}
