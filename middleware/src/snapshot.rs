//! What every limit looks like at one moment, for debugging.

use doorman_openapi::{Moment, ResourceId};
use serde::Serialize;

use crate::{WorkerState, limiter::Limiter};

/// Every limit of the process at one moment: made by [`Doorman::snapshot`](crate::Doorman::snapshot).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// Whether leases can come.
    pub worker: WorkerState,
    /// The limits, by resource.
    pub limits: Vec<LimitSnapshot>,
    /// The rules; null when no layer [follows](crate::LimitLayer::and_rules) them.
    pub rules: Option<RulesSnapshot>,
}

/// The rules of the control plane as this process follows them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RulesSnapshot {
    /// The version of the rules that are followed; null until the first are known.
    pub version: Option<String>,
    /// Why those of the control plane are not known, or not understood; null while what is followed is theirs.
    pub error: Option<String>,
    /// The rules that this process cannot follow: what they limit elsewhere, they do not limit here.
    pub not_applied: Vec<NotApplied>,
}

/// A rule that a process cannot follow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NotApplied {
    /// Its name.
    pub rule: String,
    /// Why not.
    pub reason: String,
}

/// One resource as this process sees it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LimitSnapshot {
    /// The resource; of a local limit its name, or what its key made of a request.
    pub resource: ResourceId,
    /// Whether it is a limit of this process [alone](crate::Limit::local).
    pub local: bool,
    /// What is held; null when there is no lease, and the fallback counts.
    pub lease: Option<LeaseSnapshot>,
    /// The whole limit, of which the lease is a part, in the resource's own unit; null when it was not told.
    pub limit: Option<f64>,
    /// The seconds that `limit`, `wants` and the lease's capacity are counted over.
    pub per: f64,
    /// The demand as last seen, in the resource's own unit.
    pub wants: f64,
    /// The total cost admitted since the process began, or since the resource was last forgotten.
    pub admitted: f64,
    /// The total cost refused in the same time, with what a limit in [shadow mode](crate::OnLimit::Shadow) would have refused.
    pub refused: f64,
    /// How many requests wait.
    pub waiting: u32,
    /// Why the limit cannot do what it should; null when it can.
    pub fault: Option<LimitFault>,
}

/// Why a limit cannot do what it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LimitFault {
    /// The resource counts what is in use at one time, and a limit wears it as a rate: there is no lease, and the fallback counts.
    NotARate,
}

/// What is held of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LeaseSnapshot {
    /// How much may be used, in the resource's own unit; null when everything passes.
    pub capacity: Option<f64>,
    /// Seconds until it ends unless it is renewed; null when it needs no lease.
    pub expires_in: Option<f64>,
}

impl LimitSnapshot {
    pub(crate) fn new(limiter: &Limiter, local: bool, now: Moment) -> Self {
        let view = limiter.snapshot(now);
        let per = view.policy.map_or(1.0, |policy| policy.per);
        let lease = view.lease.map(|lease| LeaseSnapshot {
            capacity: lease.rate.map(|rate| rate * per),
            expires_in: (lease.ends < Moment::NEVER).then(|| lease.ends.seconds_since(now)),
        });
        Self {
            resource: limiter.resource().clone(),
            local,
            lease,
            limit: view.policy.map(|policy| policy.limit),
            per,
            wants: view.wants,
            admitted: view.tally.admitted,
            refused: view.tally.refused,
            waiting: view.waiting,
            fault: view.unit_mismatch.then_some(LimitFault::NotARate),
        }
    }
}
