//! State of a resource's lease as the worker publishes it, in tokens and tokens per second.

use doorman_holder::Sharing;
use doorman_openapi::{Fallback, Moment, Unit};

use super::bucket::{Refill, Tokens};
use crate::quota::Quota;

/// The lease on a resource, as the worker knows it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum LeaseState {
    /// No lease yet, or it is lost. The limiter applies its fallback.
    NoLease {
        /// The safe capacity last sent for the resource or its template.
        safe: Option<SafeRate>,
        refresh_at: Moment,
        policy: Option<Policy>,
        /// No request for the resource has been answered or has failed yet.
        awaits_answer: bool,
    },
    /// The resource is a gauge and is limited as a rate, or the reverse: no lease helps. The
    /// limiter rejects all, unless its fallback is optimistic.
    OtherUnit {
        refresh_at: Moment,
    },
    /// A lease. The limiter notices its end by itself.
    Leased {
        /// Tokens a second, or units of a gauge; `None` when the capacity of the resource is 0.
        rate: Option<f64>,
        ends: Moment,
        /// The safe capacity that applies after `ends`.
        safe: Option<SafeRate>,
        refresh_at: Moment,
        policy: Option<Policy>,
        sharing: Sharing,
        growth: Growth,
    },
    Unlimited,
    /// A fixed rate, or fixed units of a gauge, that need no lease.
    Fixed {
        /// Tokens a second, or units; 0 blocks.
        rate: f64,
    },
    /// A limit of this process only.
    Local(Quota),
}

/// Whether a larger lease may be granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Growth {
    None,
    /// On request: this one covers the whole demand.
    OnRequest,
    /// It is the first one, or others have yet to give capacity up.
    Pending,
}

/// The limit of a resource over all holders: so much in so many seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Policy {
    pub(crate) limit: f64,
    pub(crate) per: f64,
}

impl Policy {
    /// In tokens a second.
    pub(crate) fn per_second(self) -> f64 {
        self.limit / self.per
    }
}

/// The rate, or the units of a gauge, allowed without a lease.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum SafeRate {
    Unlimited,
    /// Tokens a second, or units; 0 blocks.
    PerSecond(f64),
}

/// The probability of a resource without suppression.
pub(super) const ALWAYS: f64 = 1.0;

/// The tokens by a response received at `now`: an older one was applied before, and the
/// bucket has changed since.
pub(super) fn tokens(sharing: &Sharing, admitted: f64, now: Moment) -> Tokens {
    match sharing {
        Sharing::Bucket(balance) if balance.received_at == now => {
            let since = (admitted - balance.used.get()).max(0.0);
            Tokens::Left(balance.tokens.get() - since)
        }
        Sharing::Grown(grown) if grown.received_at == now => Tokens::Added(grown.tokens.get()),
        Sharing::Bucket(_) | Sharing::Grown(_) | Sharing::Suppressed(_) | Sharing::Divided => {
            Tokens::Kept
        }
    }
}

pub(super) fn admit_probability(sharing: &Sharing) -> f64 {
    match sharing {
        Sharing::Suppressed(probability) => probability.get(),
        Sharing::Bucket(_) | Sharing::Grown(_) | Sharing::Divided => ALWAYS,
    }
}

/// The refill until the first answer, which takes a round trip. The limit, if it is known, bounds
/// what is admitted meanwhile.
pub(super) fn first_refill(fallback: Fallback, policy: Option<Policy>, unit: Unit) -> Refill {
    match (fallback, policy) {
        (Fallback::Pessimistic, _) => Refill::Blocked,
        (Fallback::Safe, Some(policy)) if unit == Unit::Gauge => Refill::at(policy.limit, unit),
        (Fallback::Safe, Some(policy)) => Refill::credit(policy.per_second()),
        (Fallback::Safe, None) | (Fallback::Optimistic, _) => Refill::Unlimited,
    }
}

/// The refill of a limiter whose unit is not that of its resource: the safe capacity is in the
/// other unit.
pub(super) fn other_unit_refill(fallback: Fallback) -> Refill {
    match fallback {
        Fallback::Optimistic => Refill::Unlimited,
        Fallback::Safe | Fallback::Pessimistic => Refill::Blocked,
    }
}

pub(super) fn lapsed_refill(fallback: Fallback, safe: Option<SafeRate>, unit: Unit) -> Refill {
    match (fallback, safe) {
        (Fallback::Optimistic, _) | (Fallback::Safe, None | Some(SafeRate::Unlimited)) => {
            Refill::Unlimited
        }
        (Fallback::Safe, Some(SafeRate::PerSecond(rate))) => Refill::at(rate, unit),
        (Fallback::Pessimistic, _) => Refill::Blocked,
    }
}
