//! Which requests were refused, and how often.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Which requests were refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// For new leases, or for rules.
    New,
    /// That renew or give back.
    Renewal,
    /// For leases, of callers so far beyond their limit that nothing of them is read.
    Unread,
    /// Of operators.
    Operator,
    /// Without a token that is known to count.
    Unverified,
}

impl CallKind {
    pub(crate) const ALL: [Self; 5] = [
        Self::New,
        Self::Renewal,
        Self::Unread,
        Self::Operator,
        Self::Unverified,
    ];

    /// As metrics name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Renewal => "renewal",
            Self::Unread => "unread",
            Self::Operator => "operator",
            Self::Unverified => "unverified",
        }
    }
}

/// LimitScope limit a request is refused by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitScope {
    /// That of its caller.
    Caller,
    /// That of the server, which has too much to do.
    Server,
}

impl LimitScope {
    pub(crate) const ALL: [Self; 2] = [Self::Caller, Self::Server];

    /// As metrics name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Server => "server",
        }
    }
}

/// How often requests of each kind were refused, by whose limit.
#[derive(Debug, Default)]
pub(super) struct Refused([[AtomicU64; CallKind::ALL.len()]; LimitScope::ALL.len()]);

impl Refused {
    pub(super) fn count(&self, kind: CallKind, whose: LimitScope) {
        if let Some(counter) = self.counter(kind, whose) {
            counter.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn so_far(&self, kind: CallKind, whose: LimitScope) -> u64 {
        self.counter(kind, whose)
            .map_or(0, |counter| counter.load(Relaxed))
    }

    fn counter(&self, kind: CallKind, whose: LimitScope) -> Option<&AtomicU64> {
        self.0.get(whose as usize)?.get(kind as usize)
    }
}
