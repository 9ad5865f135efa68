//! `POST /v1/capacity` and its release: a client leases for itself.

use serde::{Deserialize, Serialize};

use crate::{
    Balance, Capacity, ClientId, Epoch, HeldLease, Lease, NodeId, Probability, ResourceId,
    SafeCapacity, Seconds, Seq, Unit, deserialize_priority,
};

/// Asks for leases on several resources at once. Unknown fields are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CapacityRequest {
    /// Who asks.
    pub client_id: ClientId,
    /// The number of this transmission. A client that sends none must never have two requests under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub seq: Option<Seq>,
    /// What is asked for; a resource may stand only once, and there may be at most 10,000.
    #[cfg_attr(feature = "schema", schema(max_items = 10000))]
    pub resources: Vec<ResourceRequest>,
}

/// What a client asks of one resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ResourceRequest {
    /// Of which resource.
    pub resource_id: ResourceId,
    /// The demand, in the resource's own unit.
    pub wants: Capacity,
    /// Larger is more important. Only algorithms that say so read it.
    #[serde(
        default,
        deserialize_with = "deserialize_priority",
        skip_serializing_if = "is_default"
    )]
    pub priority: i32,
    /// The lease now held; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub has: Option<HeldLease>,
    /// What is in use and cannot be given back at once.
    #[serde(default, skip_serializing_if = "is_default")]
    pub outstanding: Capacity,
    /// The total cost admitted since the client first asked for this resource: a running total, never a delta.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub used: Option<Capacity>,
}

/// The answers, in the order of the request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CapacityResponse {
    /// The node that answers.
    pub node: NodeId,
    /// The reign of its master; drop an answer of a lower epoch of the same node.
    pub epoch: Epoch,
    /// One answer a resource, in the order of the request.
    pub resources: Vec<ResourceResponse>,
}

/// What a holder is told of one resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ResourceResponse {
    /// Of which resource.
    pub resource_id: ResourceId,
    /// The lease.
    pub gets: Lease,
    /// Why so much.
    pub reason: Reason,
    /// The `identifier_glob` of the template that matched; null when none did.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub template: Option<String>,
    /// The template's whole capacity; null when no template matched.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub limit: Option<Capacity>,
    /// What the capacity counts; null when no template matched.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub unit: Option<Unit>,
    /// The seconds that a rate is counted over; null when no template matched.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub per: Option<Seconds>,
    /// What the holder may use by itself when it has no lease; −1: unlimited.
    #[cfg_attr(feature = "schema", schema(value_type = f64, minimum = -1.0, maximum = 1e15, example = 2.0))]
    pub safe_capacity: SafeCapacity,
    /// The probability with which the holder admits each request, beside the lease; sent for SUPPRESSION only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub admission_probability: Option<Probability>,
    /// What is left in the bucket that all holders share, with all that they have reported to have used taken out; sent for SHARED_BUCKET
    /// only. Negative: the holders have used more than there was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub balance: Option<Balance>,
}

/// Why a lease is as large as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// As wanted.
    Granted,
    /// Less than wanted, and that is the holder's share.
    Share,
    /// More will come: the server is learning, or the capacity is still in other hands.
    Pending,
    /// The capacity is 0.
    Blocked,
    /// The server's books have no room for another lease.
    Full,
}

/// Gives leases back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ReleaseRequest {
    /// Whose leases.
    pub client_id: ClientId,
    /// The number of this transmission, from the same counter as those of the requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub seq: Option<Seq>,
    /// Which resources; absent: all of the client's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false, max_items = 10000))]
    pub resource_ids: Option<Vec<ResourceId>>,
}

/// An empty object: the leases are back, or were never there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ReleaseResponse {}

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
