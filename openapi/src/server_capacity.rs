//! `POST /v1/server-capacity` and its release: a node of the server tree leases on behalf of its clients.

use serde::{Deserialize, Serialize};

use crate::{
    Algorithm, Capacity, ClientCount, Epoch, HeldLease, NodeId, ResourceId, ResourceResponse, Seq,
    capacity::is_default, deserialize_priority,
};

/// Asks for leases on several resources for all clients of a node. Unknown fields are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ServerCapacityRequest {
    /// Which node asks.
    pub node_id: NodeId,
    /// The reign of the node's master: its requests are ordered by (`epoch`, `seq`). Absent: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub epoch: Option<Epoch>,
    /// The number of this transmission within the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub seq: Option<Seq>,
    /// What is asked for; a resource may stand only once, and there may be at most 10,000.
    #[cfg_attr(feature = "schema", schema(max_items = 10000))]
    pub resources: Vec<ServerResourceRequest>,
}

/// What a node asks of one resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ServerResourceRequest {
    /// Of which resource.
    pub resource_id: ResourceId,
    /// The demand of the node's clients, one entry a priority, at least one.
    #[cfg_attr(feature = "schema", schema(min_items = 1))]
    pub wants: Vec<Band>,
    /// The lease now held. Absent means unknown: nothing is lowered, and the answer states what the node holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub has: Option<HeldLease>,
    /// Leases that the node has handed out and cannot take back at once.
    #[serde(default, skip_serializing_if = "is_default")]
    pub outstanding: Capacity,
    /// The total cost admitted by the node's clients: a running total that survives them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub used: Option<Capacity>,
}

/// The demand of a node's clients at one priority.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Band {
    /// Larger is more important.
    #[serde(deserialize_with = "deserialize_priority")]
    pub priority: i32,
    /// How many clients want it: the weight of the band.
    pub num_clients: ClientCount,
    /// What they want together.
    pub wants: Capacity,
}

/// The answers, in the order of the request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ServerCapacityResponse {
    /// The node that answers.
    pub node: NodeId,
    /// The reign of its master.
    pub epoch: Epoch,
    /// One answer a resource, in the order of the request.
    pub resources: Vec<ServerResourceResponse>,
}

/// What a node is told of one resource: what a client is told, and how to divide it further.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ServerResourceResponse {
    /// As a client is told.
    #[serde(flatten)]
    pub answer: ResourceResponse,
    /// The algorithm of the resource at the root.
    pub algorithm: Algorithm,
}

/// Gives a node's leases back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ServerReleaseRequest {
    /// Whose leases.
    pub node_id: NodeId,
    /// The reign of the node's master. Absent: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub epoch: Option<Epoch>,
    /// The number of this transmission, from the same counter as those of the requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub seq: Option<Seq>,
    /// Which resources; absent: all of the node's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false, max_items = 10000))]
    pub resource_ids: Option<Vec<ResourceId>>,
}
