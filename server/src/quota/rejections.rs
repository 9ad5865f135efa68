//! Rejections by a limit, and their metric.

use std::time::Duration;

use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

/// A call is rejected: its caller, or all callers together, exceed a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RateLimited {
    pub(crate) scope: LimitScope,
    /// The time until a retry is admitted.
    pub(crate) retry_after: Duration,
}

/// The limit that a call exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitScope {
    /// That of its caller.
    Caller,
    /// That of the server, which is overloaded.
    Server,
}

/// The kind of a rejected call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// New leases, or rules.
    New,
    Renewal,
    /// Leases, from a caller so far beyond its limit that the body is not read.
    Unread,
    /// A call of an operator.
    Operator,
    /// A call without a token that is known to be valid.
    Unverified,
}

#[derive(Debug)]
pub(super) struct Rejections(Family<Labels, Counter>);

type Labels = [(&'static str, &'static str); 2];

impl Default for Rejections {
    fn default() -> Self {
        use CallKind::{New, Operator, Renewal, Unread, Unverified};
        use LimitScope::{Caller, Server};

        let family = Family::default();
        for kind in [New, Renewal, Unread, Operator, Unverified] {
            drop(family.get_or_create(&labels(kind, Caller)));
        }
        for kind in [New, Renewal, Operator] {
            drop(family.get_or_create(&labels(kind, Server)));
        }
        Self(family)
    }
}

impl Rejections {
    pub(super) fn count(&self, kind: CallKind, scope: LimitScope) {
        self.0.get_or_create(&labels(kind, scope)).inc();
    }

    #[cfg(test)]
    pub(super) fn so_far(&self, kind: CallKind, scope: LimitScope) -> u64 {
        self.0.get_or_create(&labels(kind, scope)).get()
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "requests_limited",
            "Requests rejected with 429, by what they asked for (new leases, renewals, unread: of \
             either kind, operator, unverified: without a token known to be valid) and by the \
             limit exceeded: that of the caller, or of the overloaded server",
            self.0.clone(),
        );
    }
}

fn labels(kind: CallKind, scope: LimitScope) -> Labels {
    let kind = match kind {
        CallKind::New => "new",
        CallKind::Renewal => "renewal",
        CallKind::Unread => "unread",
        CallKind::Operator => "operator",
        CallKind::Unverified => "unverified",
    };
    let scope = match scope {
        LimitScope::Caller => "caller",
        LimitScope::Server => "server",
    };
    [("kind", kind), ("limit", scope)]
}
