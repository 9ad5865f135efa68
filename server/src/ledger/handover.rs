//! What one server leaves to the next when it stops cleanly: the books, with what is left of everything.
//!
//! Lengths, not moments: a moment means nothing to another process. All of them count from the stop.

use doorman_openapi::{Balance, Band, Capacity, HolderKind, Reason, ResourceId, Seq};
use serde::{Deserialize, Serialize};

/// The books of one resource, or a part of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResourceRecord {
    /// Its identifier.
    pub resource_id: ResourceId,
    /// Who holds it, waits for it, or has given it back not long ago.
    pub holders: Vec<HolderRecord>,
    /// What is kept of a resource that is not divided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undivided: Option<FeedbackRecord>,
}

/// What is kept of a resource that is not divided, by algorithm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeedbackRecord {
    /// SHARED_BUCKET.
    Bucket {
        /// What is left in the bucket.
        balance: Balance,
    },
    /// SUPPRESSION.
    Demand {
        /// What was asked for in each of the last seconds, the newest first, which is in progress.
        asked: Vec<f64>,
        /// When that began, in nanoseconds before the stop.
        began_ago: u64,
    },
}

/// What the books keep of one holder of one resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HolderRecord {
    /// Whether it is a client or a node.
    pub kind: HolderKind,
    /// Its identifier.
    pub id: String,
    /// The epoch of the newest transmission heard of it; 0 of a client.
    pub epoch: u64,
    /// The number of that transmission.
    pub seq: Option<Seq>,
    /// What it wants, by priority; none when it has given the lease back.
    pub bands: Vec<Band>,
    /// The lease last granted, if it lasts.
    pub lease: Option<HoldRecord>,
    /// What it said it has of an older one, if that lasts.
    pub claim: Option<HoldRecord>,
    /// What it cannot give back at once.
    pub outstanding: Capacity,
    /// What it said that it has admitted.
    pub used: Option<Capacity>,
    /// When the algorithm last ran for it, and why it gave what it gave.
    pub decided: Option<DecisionRecord>,
    /// How long a released entry is still kept for its order, in nanoseconds.
    pub kept: u64,
}

/// So much, for so long.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HoldRecord {
    /// How much.
    pub amount: Capacity,
    /// How long the books keep it, in nanoseconds from the stop.
    pub left: u64,
}

/// When the algorithm ran, and what came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionRecord {
    /// Nanoseconds before the stop.
    pub ago: u64,
    /// Why so much.
    pub reason: Reason,
    /// How many nanoseconds later the holder should have come back, by what it was last told; 0 when it was not written.
    #[serde(default)]
    pub due_after: u64,
}

/// What a server that stops while it learns still has to learn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearningRecord {
    /// When it began to learn, in nanoseconds before the stop.
    pub ago: u64,
    /// How long leases of its predecessor may last after the stop, in nanoseconds.
    pub left: u64,
}

impl HolderRecord {
    /// How long the last lease or claim of it lasts after the stop, in nanoseconds.
    #[must_use]
    pub fn left(&self) -> u64 {
        [self.lease, self.claim]
            .into_iter()
            .flatten()
            .map(|hold| hold.left)
            .max()
            .unwrap_or(0)
    }
}
