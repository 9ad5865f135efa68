//! `POST /v1/check` of the agent, the renewal and release of permits, and outcomes.

use serde::{Deserialize, Serialize};

use crate::{
    Capacity, RequestCount, ResourceId, Rule, Seconds, Seen, Unit, outcomes::deserialize_pause,
};

/// The most resources of a check.
pub const MAX_CHECKED: usize = 100;

/// The most permits of a release.
pub const MAX_RELEASED: usize = 10_000;

/// Checks several resources, all or nothing: with `resources`, or with the fields of one resource.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CheckRequest {
    /// The resources, each at most once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(min_items = 1, max_items = 100))]
    pub resources: Option<Vec<ResourceCheck>>,
    /// The only resource, without `resources`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_id: Option<ResourceId>,
    /// Its cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Capacity>,
    /// Its unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<Unit>,
    /// The time limit of its permit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_seconds: Option<Seconds>,
    /// The seconds for which the check waits in the queue of a limit that it exceeds: at most 60. It
    /// is rejected at once if its turn would come later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<f64>, minimum = 0, maximum = 60, default = 0.0))]
    pub max_wait: Option<Seconds>,
}

impl CheckRequest {
    /// The longest `max_wait`.
    pub const MAX_WAIT: Seconds = Seconds::from_whole(60);
}

/// One resource of a check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ResourceCheck {
    /// The resource.
    pub resource_id: ResourceId,
    /// The tokens or units to take; more than 0. Units are rounded up to a whole number.
    #[serde(default = "Rule::default_cost")]
    #[cfg_attr(feature = "schema", schema(value_type = f64, exclusive_minimum = 0, maximum = 1e15, default = 1.0))]
    pub cost: Capacity,
    /// The unit of the resource, as in its template.
    #[serde(default)]
    pub unit: Unit,
    /// The seconds after which the permit of a gauge ends by itself: more than 0, at most 3600.
    /// Only for a gauge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<f64>, exclusive_minimum = 0, maximum = 3600, default = 60.0))]
    pub hold_seconds: Option<Seconds>,
}

impl ResourceCheck {
    /// The default of `hold_seconds`.
    pub const DEFAULT_HOLD: Seconds = Seconds::from_whole(60);
    /// The longest `hold_seconds`.
    pub const MAX_HOLD: Seconds = Seconds::from_whole(3600);
}

/// The response to an admitted check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CheckResponse {
    /// A permit for each gauge, in the order of the request. Gauges that share one because of the
    /// bound on keys have one permit.
    pub permits: Vec<CheckPermit>,
}

/// The permit of a gauge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CheckPermit {
    /// The gauge.
    pub resource_id: ResourceId,
    /// The permit, for its release.
    pub permit: String,
}

/// Extends the time of a permit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CheckRenewRequest {
    /// The permit.
    pub permit: String,
    /// The seconds from now on after which the permit ends by itself: more than 0, at most 3600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<f64>, exclusive_minimum = 0, maximum = 3600, default = 60.0))]
    pub hold_seconds: Option<Seconds>,
}

/// The response to a renewal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CheckRenewResponse {
    /// The seconds from now on after which the permit ends: more than those of the request if it
    /// would have ended later anyway.
    pub hold_seconds: Seconds,
}

/// Gives permits back. Unknown and released ones are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CheckReleaseRequest {
    /// The permits; at most 10,000.
    #[cfg_attr(feature = "schema", schema(max_items = 10000))]
    pub permits: Vec<PermitRelease>,
}

/// A permit to give back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(
    untagged,
    expecting = "must be a permit, or an object with `permit` and `outcome`: ok, overloaded, failed or none"
)]
pub enum PermitRelease {
    /// The permit, of an operation whose outcome is not counted.
    Silent(String),
    /// The same with the outcome.
    WithOutcome(EndedPermit),
}

/// The permit of an operation, and its outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct EndedPermit {
    /// The permit.
    pub permit: String,
    /// The outcome of its operation. The units of an overloaded one are free 0.1 s later.
    pub outcome: CheckOutcome,
}

/// The outcome of an admitted operation at its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum CheckOutcome {
    /// The target served it.
    Ok,
    /// The target refused it because of its load or of a limit of its own, as by status 429.
    Overloaded,
    /// It failed for another reason.
    Failed,
    /// It says nothing about the target, and is not counted.
    None,
}

/// Reports outcomes of operations that checks admitted, for the control plane. A repeated request
/// counts again. Not for operations with a permit: its release has the outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CheckOutcomeRequest {
    /// The outcomes. Those of resources that the agent does not know are ignored.
    #[cfg_attr(feature = "schema", schema(min_items = 1, max_items = 100))]
    pub resources: Vec<ResourceOutcome>,
}

/// Operations with one outcome at the target of a resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ResourceOutcome {
    /// The resource.
    pub resource_id: ResourceId,
    /// The outcome.
    pub outcome: CheckOutcome,
    /// For `overloaded`: the seconds that the target asks to wait, as by `Retry-After`; at most
    /// 3600.
    #[serde(
        default,
        deserialize_with = "deserialize_pause",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "schema", schema(value_type = Option<f64>, minimum = 0, maximum = 3600))]
    pub pause: Option<Seconds>,
    /// The target's own limit, as it states it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Seen>,
    /// The number of operations: 1 to 1,000,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000, default = 1))]
    pub count: Option<RequestCount>,
}

impl ResourceOutcome {
    /// The largest `count`.
    pub const MAX_COUNT: u64 = 1_000_000;
}

/// The response to a release of permits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CheckReleaseResponse {
    /// The number of permits given back now.
    pub released: usize,
}
