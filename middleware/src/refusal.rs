//! Refusals: why a limit rejected a request, and when to retry.

use std::{fmt, sync::Arc, time::Duration};

use doorman_openapi::{Moment, ResourceId};

/// A refusal by a limit. Responses of the layer carry it in their extensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal(Box<Parts>);

/// Boxed, as nearly all decisions only have to say that there is no refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Parts {
    limit: Arc<str>,
    resource: Option<ResourceId>,
    reason: RefusalReason,
    retry_after: Duration,
    /// The part that the request lacks for its key.
    missing: Option<Arc<str>>,
}

/// Why a limit rejected a request, and the HTTP status. In gRPC 429 is `RESOURCE_EXHAUSTED` (8),
/// 503 is `UNAVAILABLE` (14), 400 is `INVALID_ARGUMENT` (3) and 401 is `UNAUTHENTICATED` (16).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalReason {
    /// The limit is exceeded: 429.
    Spent,
    /// The capacity of the resource is zero: 429.
    Blocked,
    /// There is no lease, because the control plane does not answer or learns, and the fallback
    /// admits no more: 503.
    NoLease,
    /// The resource is a gauge and is limited as a rate, or the reverse: 503.
    OtherUnit,
    /// The lease is spent, and a larger one was requested: 429.
    Growing,
    /// The bound on keys is reached, and the limit shared by the other keys is exceeded: 429.
    Overflow,
    /// The queue of waiting requests is full: 429.
    QueueFull,
    /// The limit is exceeded over all holders, and chance rejected this request: 429.
    Suppressed,
    /// No key can be made of the request: 400.
    MissingKey,
    /// The request has no token to make its key of: 401.
    MissingToken,
    /// The token for the request's key is invalid: 401.
    InvalidToken,
}

impl RefusalReason {
    /// The reason in the problem of a response, and the outcome in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Spent => "spent",
            Self::Blocked => "blocked",
            Self::NoLease => "no_lease",
            Self::OtherUnit => "other_unit",
            Self::Growing => "growing",
            Self::Overflow => "overflow",
            Self::QueueFull => "queue_full",
            Self::Suppressed => "suppressed",
            Self::MissingKey | Self::MissingToken | Self::InvalidToken => "missing_key",
        }
    }

    /// Whether the same request may be admitted later.
    #[must_use]
    pub fn is_temporary(self) -> bool {
        !matches!(
            self,
            Self::MissingKey | Self::MissingToken | Self::InvalidToken
        )
    }
}

const UNKNOWN_WAIT: Duration = Duration::from_secs(60);

fn wait(retry_at: Option<Moment>, now: Moment) -> Duration {
    retry_at.map_or(UNKNOWN_WAIT, |moment| moment.since(now))
}

impl Refusal {
    pub(crate) fn new(
        limit: &Arc<str>,
        resource: ResourceId,
        reason: RefusalReason,
        retry_at: Option<Moment>,
        now: Moment,
    ) -> Self {
        Self(Box::new(Parts {
            limit: Arc::clone(limit),
            resource: Some(resource),
            reason,
            retry_after: wait(retry_at, now),
            missing: None,
        }))
    }

    pub(crate) fn without_key(
        limit: &Arc<str>,
        reason: RefusalReason,
        missing: Option<Arc<str>>,
    ) -> Self {
        Self(Box::new(Parts {
            limit: Arc::clone(limit),
            resource: None,
            reason,
            retry_after: Duration::ZERO,
            missing,
        }))
    }

    /// Another limit of the request does not admit it earlier; `None` when unknown.
    pub(crate) fn extend_to(&mut self, retry_at: Option<Moment>, now: Moment) {
        self.0.retry_after = self.0.retry_after.max(wait(retry_at, now));
    }

    /// The name of the limit.
    #[must_use]
    pub fn limit(&self) -> &str {
        &self.0.limit
    }

    /// The resource of the request; `None` when no key could be made.
    #[must_use]
    pub fn resource(&self) -> Option<&ResourceId> {
        self.0.resource.as_ref()
    }

    /// The reason.
    #[must_use]
    pub fn reason(&self) -> RefusalReason {
        self.0.reason
    }

    /// How long to wait before a retry can succeed at all limits of the request. Exact for
    /// [`Spent`](RefusalReason::Spent), if the leases do not change and no other request comes.
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        self.0.retry_after
    }

    /// The same in whole seconds, rounded up, at least 1: the value of `Retry-After`.
    #[must_use]
    pub fn retry_after_seconds(&self) -> u64 {
        let whole = self.0.retry_after.as_secs();
        if self.0.retry_after.subsec_nanos() > 0 {
            whole.saturating_add(1)
        } else {
            whole.max(1)
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = &self.0.limit;
        match self.0.reason {
            RefusalReason::Spent => write!(f, "limit `{limit}` exceeded"),
            RefusalReason::Blocked => write!(f, "capacity of limit `{limit}` is zero"),
            RefusalReason::NoLease => write!(f, "no capacity leased for limit `{limit}`"),
            RefusalReason::OtherUnit => {
                write!(
                    f,
                    "limit `{limit}` is a rate of a gauge, or a gauge of a rate"
                )
            }
            RefusalReason::Growing => {
                write!(f, "limit `{limit}` exceeded; more capacity was requested")
            }
            RefusalReason::Overflow => write!(f, "too many keys for limit `{limit}`"),
            RefusalReason::QueueFull => {
                write!(f, "too many requests queued for limit `{limit}`")
            }
            RefusalReason::Suppressed => {
                write!(f, "limit `{limit}` exceeded; some requests are admitted")
            }
            RefusalReason::MissingKey => match &self.0.missing {
                Some(missing) => {
                    write!(f, "request has no {missing}, which limit `{limit}` needs")
                }
                None => write!(f, "request has no key for limit `{limit}`"),
            },
            RefusalReason::MissingToken => write!(f, "request has no token for limit `{limit}`"),
            RefusalReason::InvalidToken => write!(f, "invalid token for limit `{limit}`"),
        }
    }
}

impl std::error::Error for Refusal {}
