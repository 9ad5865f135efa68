//! What the leasing side knows of a resource, in the units of the request path: tokens and tokens a second.

use doorman_openapi::{Balance, Capacity, Moment, Probability};

use crate::Quota;

/// What holds for a resource from now on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum LeaseState {
    /// There is no lease: none has come yet, or it is lost. The limiter's fallback decides.
    NoLease {
        /// The safe capacity last told for the resource or its template.
        safe: Option<SafeRate>,
        /// When the leasing side asks next.
        refresh_at: Moment,
        /// The whole limit, as far as it is known.
        policy: Option<Policy>,
        /// Whether a lease has come all the same, on so little that it does not count: then none is waited for any more.
        answered: bool,
    },
    /// There is a lease; the limiter sees by itself when it ends.
    Leased {
        /// Tokens a second; `None` when the whole capacity is nothing.
        rate: Option<f64>,
        /// When the lease ends.
        ends: Moment,
        /// The safe capacity that counts once it has ended.
        safe: Option<SafeRate>,
        /// When the leasing side asks next.
        refresh_at: Moment,
        /// The whole limit, of which the lease is a part; `None` when no template matched.
        policy: Option<Policy>,
        /// What all holders were told alike, where the capacity is not divided.
        sharing: Sharing,
        /// Whether the lease is as small as it is because no more was asked for.
        may_grow: bool,
    },
    /// No limit at all, and never will be.
    Unlimited,
    /// A limit of this process alone: tokens a second that need no lease.
    Fixed {
        /// Tokens a second; 0 blocks.
        rate: f64,
    },
    /// The same, as the program states it.
    Local(Quota),
}

/// The whole limit of a resource: so much in so many seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Policy {
    pub(crate) limit: f64,
    pub(crate) per: f64,
}

/// What may be used without a lease.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum SafeRate {
    Unlimited,
    /// Tokens a second; 0 blocks.
    PerSecond(f64),
}

/// How the holders of one resource share its capacity.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Sharing {
    /// Each holder has its own part.
    #[default]
    Divided,
    /// Each holder admits a request with this probability (SUPPRESSION).
    Suppressed(Probability),
    /// All holders spend from one bucket, of which each has a copy (SHARED_BUCKET).
    Bucket(SharedBalance),
}

/// The balance of a shared bucket in one response of the control plane.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SharedBalance {
    /// Tokens left.
    pub tokens: Balance,
    /// The usage that the holder had reported in its request. Later usage is not yet subtracted.
    pub used: Capacity,
    /// When the response arrived. The balance is valid at this moment only.
    pub received_at: Moment,
}
