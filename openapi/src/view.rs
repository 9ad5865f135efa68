//! What operators look at: live resources, who holds them, and the server itself.

use serde::{Deserialize, Serialize};

use crate::{
    AlgorithmKind, Balance, Band, Capacity, Epoch, NodeId, Probability, ResourceId, SafeCapacity,
    Seconds, ServerId,
};

/// A page of live resources, by identifier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ResourcePage {
    /// The resources of this page: none, maybe, although others follow.
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
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub capacity: Option<Capacity>,
    /// The most that all holders together may be using now, by the books.
    pub sum_has: f64,
    /// What all holders together want.
    pub sum_wants: f64,
    /// What nobody holds now; absent where the capacity is not divided, so that nobody has to wait for another's part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub free: Option<f64>,
    /// The most that the share of one client is now: who wants less gets that. For FAIR_SHARE while more is wanted than there is. Where
    /// shares come in whole steps, some get up to a step more, others up to a step less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub fill_level: Option<f64>,
    /// How many clients hold it or wait for it, those behind nodes included.
    pub clients: u64,
    /// Whether the server is still learning what its predecessor leased.
    pub in_learning_mode: bool,
    /// Seconds until it has learned that; absent when it is not learning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub learning_ends_in: Option<Seconds>,
    /// The template that matched; null when none did.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub template: Option<String>,
    /// How it is divided.
    pub algorithm: AlgorithmKind,
    /// How long a lease lasts.
    pub lease_length: Seconds,
    /// How often holders come back; within a second while more is to come for them.
    pub refresh_interval: Seconds,
    /// What a holder may use by itself when it has lost its lease; −1: as much as it likes.
    #[cfg_attr(feature = "schema", schema(value_type = f64, minimum = -1.0, maximum = 1e15))]
    pub safe_capacity: SafeCapacity,
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

/// What keeps a holder from having what it wants, by the books as they are now.
///
/// An answer says `pending` for `learning` and for `others`. Who was refused as `full` is in no list: it is not in the books.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum HeldBackBy {
    /// It has its share, and wants more.
    Share,
    /// Its share is more than it has, and still in the hands of other holders.
    Others,
    /// The server is learning what its predecessor leased.
    Learning,
    /// The capacity is 0.
    Blocked,
    /// It would be granted more, and does not know: it has not come back since.
    NotRefreshed,
    /// The bucket that all holders share is empty.
    Balance,
    /// All holders admit only a part of what they are asked.
    Suppressed,
    /// The server has not written down yet until when the lease lasts, and tells of none that lasts longer than what it has written.
    Bound,
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
    /// What it should have, by what all want now: of a capacity that is divided, its part; else what each holder may have at most, or
    /// what it wants. In whole steps where leases come in such.
    pub share: Capacity,
    /// The lease last granted, while it lasts.
    pub has: Capacity,
    /// What keeps it from having what it wants; absent when nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub held_back_by: Option<HeldBackBy>,
    /// The same in a sentence for people, with the numbers that it comes from.
    pub why: String,
    /// The most it may be using now, by the books: the lease, or an older and larger one that has not ended.
    pub booked: f64,
    /// What it said that it cannot give back at once.
    pub outstanding: Capacity,
    /// The total cost it said that it has admitted; null when it never said.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub used: Option<Capacity>,
    /// Seconds since a request of it was last decided; absent when none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub refreshed_ago: Option<Seconds>,
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
    #[cfg_attr(feature = "schema", schema(required = true))]
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
    /// How many resources are live; absent for a token that is bound to some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub resources: Option<usize>,
    /// How many leases the books hold, of all resources together; absent as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub leases: Option<usize>,
    /// The most that they may hold: from then on newcomers get nothing (`full`).
    pub max_leases: usize,
}
