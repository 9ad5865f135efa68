//! State of every limit at one moment, for debugging.

use doorman_openapi::{Moment, ResourceId, Unit};
use serde::Serialize;

use crate::{
    limiter::{Allowance, Limiter},
    status::WorkerState,
};

/// The state of every limit of the process, by [`Doorman::snapshot`](crate::Doorman::snapshot).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// The state of the worker.
    pub worker: WorkerState,
    /// The limits, sorted by resource.
    pub limits: Vec<LimitSnapshot>,
    /// The rules; null when no layer [follows](crate::LimitLayer::and_rules) them.
    pub rules: Option<RulesSnapshot>,
}

/// The rules of the control plane in this process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RulesSnapshot {
    /// The version of the active rules; null before the first response.
    pub version: Option<String>,
    /// Why the rules cannot be fetched or are invalid; null if they are active.
    pub error: Option<String>,
    /// The rules that this process cannot enforce.
    pub not_applied: Vec<NotApplied>,
}

/// A rule that the process does not enforce.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NotApplied {
    /// The name of the rule.
    pub rule: String,
    /// Why it is not enforced.
    pub reason: String,
}

/// The state of one resource in this process.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LimitSnapshot {
    /// The resource; for a local limit its name or key.
    pub resource: ResourceId,
    /// Whether the limit is [local](crate::Limit::local).
    pub local: bool,
    /// The lease; null if there is none and the fallback applies.
    pub lease: Option<LeaseSnapshot>,
    /// The capacity of the resource over all holders, in its own unit; null if it was not sent.
    pub limit: Option<f64>,
    /// The time in seconds that `limit`, `wants` and the lease's capacity refer to.
    pub per: f64,
    /// Whether it limits a rate, or what is in flight at once.
    pub unit: Unit,
    /// The units of a gauge in use in this process; null for a rate.
    pub in_flight: Option<f64>,
    /// The last measured demand, in the resource's own unit.
    pub wants: f64,
    /// The parts of it by priority, the highest first; empty if all requests have one priority.
    pub bands: Vec<BandSnapshot>,
    /// The total cost admitted since the start, or since the resource was last forgotten as idle.
    pub admitted: f64,
    /// The total cost rejected since then, including by [shadow](crate::OnLimit::Shadow) limits.
    pub refused: f64,
    /// The outcomes of admitted requests since then.
    pub outcomes: OutcomesSnapshot,
    /// The number of queued requests.
    pub waiting: u32,
    /// A fault of the limit's configuration; null if there is none.
    pub fault: Option<LimitFault>,
}

/// The [outcomes](crate::Outcome) of requests that a limit admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct OutcomesSnapshot {
    /// Requests that the target served.
    pub ok: u64,
    /// Requests that the target refused because of its load.
    pub overloaded: u64,
    /// Requests that failed for another reason.
    pub failed: u64,
}

/// A fault of a limit's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LimitFault {
    /// The resource is a gauge but is limited as a rate: nothing is leased, and only an optimistic
    /// fallback admits requests.
    NotARate,
    /// The resource is a rate but is limited as a gauge, with the same effect.
    NotAGauge,
}

/// The demand at one priority.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct BandSnapshot {
    /// The priority.
    pub priority: i32,
    /// The demand, in the resource's own unit.
    pub wants: f64,
}

/// The lease on a resource.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LeaseSnapshot {
    /// The leased capacity, in the resource's own unit; null if it is unlimited.
    pub capacity: Option<f64>,
    /// Seconds until it expires unless renewed; null for limits without a control plane.
    pub expires_in: Option<f64>,
}

impl LimitSnapshot {
    pub(crate) fn new(limiter: Limiter<'_>, local: bool, now: Moment) -> Self {
        let Allowance {
            amount,
            policy,
            is_leased,
            ends,
        } = limiter.allowance(now);
        let per = policy.map_or(1.0, |policy| policy.per);
        let unit = limiter.unit();
        let tally = limiter.tally();
        let bands = limiter.wants_by_priority().into_iter();
        let outcomes = limiter.outcomes();
        Self {
            resource: limiter.resource(),
            local,
            lease: is_leased.then(|| LeaseSnapshot {
                capacity: Some(amount * per).filter(|capacity| capacity.is_finite()),
                expires_in: (ends < Moment::NEVER).then(|| ends.seconds_since(now)),
            }),
            limit: policy.map(|policy| policy.limit),
            per,
            unit,
            in_flight: limiter.units_in_use().map(|units| units.in_use),
            wants: limiter.wants(),
            bands: bands
                .map(|(priority, wants)| BandSnapshot { priority, wants })
                .collect(),
            admitted: tally.admitted,
            refused: tally.refused,
            outcomes: OutcomesSnapshot {
                ok: outcomes.ok.get(),
                overloaded: outcomes.overloaded.get(),
                failed: outcomes.failed.get(),
            },
            waiting: limiter.waiting(),
            fault: limiter.has_other_unit().then_some(match unit {
                Unit::Rate => LimitFault::NotARate,
                Unit::Gauge => LimitFault::NotAGauge,
            }),
        }
    }
}
