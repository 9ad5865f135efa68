//! How a resource is divided, and what its capacity counts.

use serde::{Deserialize, Serialize};

use crate::Seconds;

/// The algorithms that divide a resource's capacity among its holders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum AlgorithmKind {
    /// Everyone gets what they want, even if that is more than there is.
    NoAlgorithm,
    /// Everyone gets what they want, up to the capacity, whatever the others hold.
    Static,
    /// When overloaded, an equal share for all; what some leave goes to the others in proportion to what they want beyond it.
    ProportionalShare,
    /// When overloaded, the weighted max-min fair share.
    FairShare,
    /// Not divided: every holder admits each request with one probability, so that all together come to the capacity. For rates.
    Suppression,
    /// Not divided: every holder spends from one token bucket, of which each keeps a copy and reports what it has used. For rates.
    SharedBucket,
}

/// The algorithm of a resource and the terms of its leases.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Algorithm {
    /// Which one.
    pub kind: AlgorithmKind,
    /// How long a lease lasts.
    pub lease_length: Seconds,
    /// How long after a request a holder should come back.
    pub refresh_interval: Seconds,
}

/// What a resource's capacity counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// So much per `per` seconds.
    #[default]
    Rate,
    /// So much at any one time.
    Gauge,
}
