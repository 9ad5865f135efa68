//! `POST /v1/server-capacity` and its release: leases of nodes of the server tree.

use serde::{Deserialize, Serialize};

use crate::{
    Algorithm, Capacity, ClientCount, Epoch, HeldLease, NodeId, Outcomes, Parameter, ResourceId,
    ResourceResponse, Seconds, Seen, Seq, ServerUrl, Unit, algorithm::deserialize_unit,
    capacity::is_default, deserialize_priority, number::deserialize_period,
    outcomes::deserialize_pause,
};

/// The most entries of one priority in [`ServerResourceRequest::wants`].
pub const MAX_ENTRIES_PER_PRIORITY: usize = 3;

/// Requests leases of several resources for the clients of a node. Unknown fields are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ServerCapacityRequest {
    /// The node.
    pub node_id: NodeId,
    /// The epoch of the node's master. Requests are ordered by (`epoch`, `seq`). Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
    /// The sequence number of this transmission within the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<Seq>,
    /// The highest epoch of the parent in a response to a lease request of the node. Absent before
    /// the first one. Other responses, such as hints and discovery, do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_epoch: Option<Epoch>,
    /// The base URL of the node's master, for operators. The parent shows it with the node's
    /// leases, and never sends anything there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub address: Option<ServerUrl>,
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
    /// The demand of its clients by priority; at least one entry, and at most three of a priority.
    /// Several entries separate clients with a small demand from those with a large one, so that
    /// shares are fair among all clients of the tree.
    #[cfg_attr(feature = "schema", schema(min_items = 1))]
    pub wants: Vec<Band>,
    /// The current lease. Absent means unknown: nothing is lowered, and the response states what
    /// the node holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has: Option<HeldLease>,
    /// The capacity leased to clients that cannot be revoked immediately.
    #[serde(default, skip_serializing_if = "is_default")]
    pub outstanding: Capacity,
    /// The total cost admitted by all of its clients so far: a running total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Capacity>,
    /// The outcomes of the requests of its clients: sums that clients which have gone still count
    /// in. Absent: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcomes: Option<Outcomes>,
    /// The seconds that the target asks to wait, from when the request was sent, by the latest
    /// `Retry-After` of an overloaded response; at most 3,600. Absent: none.
    #[serde(
        default,
        deserialize_with = "deserialize_pause",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "schema", schema(value_type = Option<f64>, minimum = 0.0, maximum = 3_600))]
    pub pause: Option<Seconds>,
    /// The target's own limit, as it last told. Absent: nothing new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Seen>,
    /// The unit of all amounts of this entry but `used` and `outcomes`, as in the last response.
    /// Leave it out where that has null, which is invalid here. Default: a rate if `per` is given;
    /// else the unit that the server last told the holder for this resource or, if it does not know
    /// the holder, that of its predecessor or its own.
    #[serde(
        default,
        deserialize_with = "deserialize_unit",
        skip_serializing_if = "Option::is_none"
    )]
    pub unit: Option<Unit>,
    /// The period of a rate, in seconds. Leave it out where the last response has null. Default: 1
    /// if `unit` is given.
    #[serde(
        default,
        deserialize_with = "deserialize_period",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "schema", schema(value_type = Option<f64>, minimum = 0.001, maximum = 31_536_000))]
    pub per: Option<Seconds>,
}

/// The demand of clients of one priority.
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
    /// The level of the server in the tree: 0 for the root.
    #[serde(default)]
    pub level: u32,
    /// As for a client.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// One entry per resource, in the order of the request.
    pub resources: Vec<ServerResourceResponse>,
}

/// The lease and the terms of one resource, and the terms by which the node divides it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ServerResourceResponse {
    /// As for a client.
    #[serde(flatten)]
    pub answer: ResourceResponse,
    /// The algorithm.
    pub algorithm: ServerAlgorithm,
    /// The demand per client up to which clients get all that they want; absent while every demand
    /// is met. The node splits the demand of its clients there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<FillLevel>,
}

/// The algorithm of a resource with its parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ServerAlgorithm {
    /// The algorithm and its durations.
    #[serde(flatten)]
    pub algorithm: Algorithm,
    /// The parameters that the template sets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<Parameter>,
}

/// The demand per client that separates clients whose demand is met from those that share the
/// rest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FillLevel {
    /// The priority, for PRIORITY_SHARE. Absent: for all priorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// The demand per client.
    pub level: Capacity,
}

/// Releases leases of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ServerReleaseRequest {
    /// The node.
    pub node_id: NodeId,
    /// The epoch of the node's master. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
    /// The sequence number of this transmission, from the same counter as requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<Seq>,
    /// The highest epoch of the parent in a response to a lease request of the node. Absent before
    /// the first one. Other responses, such as hints and discovery, do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_epoch: Option<Epoch>,
    /// The resources. Default: all of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(max_items = 10000))]
    pub resource_ids: Option<Vec<ResourceId>>,
}
