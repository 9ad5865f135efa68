//! What operators look at: live resources, who holds them, and the server itself.

use serde::{Deserialize, Serialize};

use crate::{
    AlgorithmKind, Balance, Band, Capacity, Epoch, NodeId, Probability, ResourceId, Seconds,
    ServerId,
};

/// A page of live resources, by identifier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ResourcePage {
    /// The resources of this page.
    pub resources: Vec<ResourceView>,
    /// Send it as `cursor` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub next_cursor: Option<String>,
}

/// A live resource: one that somebody holds, waits for, or gave back less than a lease length ago.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ResourceView {
    /// Its identifier.
    pub resource_id: ResourceId,
    /// The whole capacity; null when no template matched.
    pub capacity: Option<Capacity>,
    /// The most that all holders together may be using now, by the books.
    pub sum_has: f64,
    /// What all holders together want.
    pub sum_wants: f64,
    /// How many clients hold it or wait for it, those behind nodes included.
    pub clients: f64,
    /// Whether the server is still learning what its predecessor leased.
    pub in_learning_mode: bool,
    /// The template that matched; null when none did.
    pub template: Option<String>,
    /// How it is divided.
    pub algorithm: AlgorithmKind,
    /// What is left in the bucket that all holders share, by what they have reported; for SHARED_BUCKET only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub balance: Option<Balance>,
    /// With which probability holders admit each request; for SUPPRESSION only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub admission_probability: Option<Probability>,
    /// What an operator should change, in words; absent when there is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub warning: Option<String>,
}

/// A page of the holders of a resource, in an order that their coming and going does not change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LeasePage {
    /// The holders of this page: none, maybe, although others follow.
    pub leases: Vec<HolderView>,
    /// Send it as `cursor` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub next_cursor: Option<String>,
}

/// Whether a holder leases for itself or for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum HolderKind {
    /// A process that spends its lease.
    Client,
    /// A node of the server tree that hands its lease on.
    Node,
}

/// What one holder has of a resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HolderView {
    /// The client, or the node.
    pub client_id: String,
    /// Which of the two it is.
    pub kind: HolderKind,
    /// Its priority; of a node with several, the highest.
    pub priority: i32,
    /// What it wants, of all priorities together.
    pub wants: Capacity,
    /// The lease last granted.
    pub has: Capacity,
    /// The most it may be using now, by the books: the lease, or an older and larger one that has not ended.
    pub booked: f64,
    /// What it said that it cannot give back at once.
    pub outstanding: Capacity,
    /// The total cost it said that it has admitted; null when it never said.
    pub used: Option<Capacity>,
    /// Seconds until the books take the last of it back.
    pub expires_in: Seconds,
    /// The same as a time of day in Unix seconds, for people.
    pub expiry_time: u64,
    /// What a node wants, one entry a priority; absent for a client.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bands: Vec<Band>,
}

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Status {
    /// This server.
    pub server_id: ServerId,
    /// Its node.
    pub node: NodeId,
    /// Its level in the server tree: 0 is the root.
    pub level: u32,
    /// Whether it is the master of its node.
    pub is_master: bool,
    /// The reign of the node's master.
    pub epoch: Epoch,
    /// The base address of the master; null when it is not known.
    pub master: Option<String>,
    /// The parents it leases from; empty at the root.
    pub parents: Vec<String>,
    /// How long it has been up.
    pub uptime: Seconds,
    /// The program's version.
    pub version: String,
    /// Where the document comes from, such as `file:limits.yaml`; `built-in` when none was given.
    pub config_source: String,
    /// Identifies the document now in force: equal documents have equal versions.
    pub config_version: String,
    /// Why the last change of the document's source was refused; absent while the document in force is that of the source. A line a
    /// fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub config_error: Option<String>,
    /// How many resources are live.
    pub resources: usize,
    /// How many leases the books hold, of all resources together.
    pub leases: usize,
}
