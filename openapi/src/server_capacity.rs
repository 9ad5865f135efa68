//! `POST /v1/server-capacity` and its release: leases of nodes of the server tree.

use serde::{Deserialize, Serialize};

use crate::{
    Algorithm, Capacity, ClientCount, Epoch, HeldLease, NodeId, ResourceId, ResourceResponse, Seq,
    capacity::is_default, deserialize_priority,
};

/// Requests leases of several resources for the clients of a node. Unknown fields are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ServerCapacityRequest {
    /// The node.
    pub node_id: NodeId,
    /// The epoch of the node's master. Requests are ordered by (`epoch`, `seq`). Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub epoch: Option<Epoch>,
    /// The sequence number of this transmission within the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub seq: Option<Seq>,
    /// The highest epoch of the parent that the node has heard in a response. Absent before the
    /// first response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub heard_epoch: Option<Epoch>,
    /// The resources, each at most once; at most 10,000.
    #[cfg_attr(feature = "schema", schema(max_items = 10000))]
    pub resources: Vec<ServerResourceRequest>,
}

/// The request of a node for one resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ServerResourceRequest {
    /// The resource.
    pub resource_id: ResourceId,
    /// The demand of its clients, one entry per priority; at least one.
    #[cfg_attr(feature = "schema", schema(min_items = 1))]
    pub wants: Vec<Band>,
    /// The current lease. Absent means unknown: nothing is lowered, and the response states what
    /// the node holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub has: Option<HeldLease>,
    /// The capacity leased to clients that cannot be revoked immediately.
    #[serde(default, skip_serializing_if = "is_default")]
    pub outstanding: Capacity,
    /// The total cost admitted by all of its clients so far: a running total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub used: Option<Capacity>,
}

/// The demand of the clients of one priority.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Band {
    /// The priority for PRIORITY_SHARE; larger is more important.
    #[serde(deserialize_with = "deserialize_priority")]
    pub priority: i32,
    /// The number of clients: the weight of the band. A client has 1 in each of its own bands.
    pub num_clients: ClientCount,
    /// The sum of their demands.
    pub wants: Capacity,
}

/// The response to a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ServerCapacityResponse {
    /// The node of the server.
    pub node: NodeId,
    /// The epoch of its master.
    pub epoch: Epoch,
    /// One entry per resource, in the order of the request.
    pub resources: Vec<ServerResourceResponse>,
}

/// The lease and the terms of one resource, and its algorithm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ServerResourceResponse {
    /// As for a client.
    #[serde(flatten)]
    pub answer: ResourceResponse,
    /// The algorithm at the root.
    pub algorithm: Algorithm,
}

/// Releases leases of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ServerReleaseRequest {
    /// The node.
    pub node_id: NodeId,
    /// The epoch of the node's master. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub epoch: Option<Epoch>,
    /// The sequence number of this transmission, from the same counter as requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub seq: Option<Seq>,
    /// The highest epoch of the parent that the node has heard in a response. Absent before the
    /// first response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub heard_epoch: Option<Epoch>,
    /// The resources. Default: all of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false, max_items = 10000))]
    pub resource_ids: Option<Vec<ResourceId>>,
}
