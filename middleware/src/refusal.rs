//! Why a request was refused, as a type for programs and as a response for callers.

use std::{fmt, sync::Arc, time::Duration};

use doorman_openapi::{Moment, ResourceId};

/// Why a limit refused a request. Refused responses of the layer carry it in their extensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    limit: Arc<str>,
    resource: Option<ResourceId>,
    reason: RefusalReason,
    retry_after: Duration,
}

/// Why a limit refuses, and the status that says so; in gRPC 429 is 8 (`RESOURCE_EXHAUSTED`), 503 is 14 (`UNAVAILABLE`), 400 is 3
/// (`INVALID_ARGUMENT`) and 401 is 16 (`UNAUTHENTICATED`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalReason {
    /// The limit is spent: 429.
    Spent,
    /// The limit is zero: 429.
    Blocked,
    /// There is no lease, or one on nothing; and what passes all the same, if anything, is spent: 503.
    NoLease,
    /// The lease is spent, and small because little was wanted until now. There may be more as soon as it has been asked for: 503.
    WarmingUp,
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

impl Refusal {
    pub(crate) fn new(
        limit: &Arc<str>,
        resource: &ResourceId,
        reason: RefusalReason,
        until: Option<Moment>,
        now: Moment,
    ) -> Self {
        Self {
            limit: Arc::clone(limit),
            resource: Some(resource.clone()),
            reason,
            retry_after: wait(until, now),
        }
    }

    /// No key can be made of the request.
    pub(crate) fn without_key(limit: &Arc<str>, reason: RefusalReason) -> Self {
        Self {
            limit: Arc::clone(limit),
            resource: None,
            reason,
            retry_after: Duration::ZERO,
        }
    }

    /// Coming back makes no sense before `moment` either, for another limit of the same request; `None` when nothing is known of it.
    pub(crate) fn wait_until(&mut self, moment: Option<Moment>, now: Moment) {
        self.retry_after = self.retry_after.max(wait(moment, now));
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

    /// The same in whole seconds, rounded up, and at least one: what `Retry-After` says.
    #[must_use]
    pub fn retry_after_seconds(&self) -> u64 {
        let whole = self.retry_after.as_secs();
        if self.retry_after.subsec_nanos() > 0 {
            whole.saturating_add(1)
        } else {
            whole.max(1)
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
            RefusalReason::WarmingUp => {
                write!(
                    f,
                    "the limit `{limit}` has little capacity at present, and asks for more"
                )
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
