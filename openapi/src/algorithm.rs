//! Algorithms, and units of capacity.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, IgnoredAny, Visitor},
};

use crate::Seconds;

/// The algorithms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum AlgorithmKind {
    /// Every holder gets what it wants, without a limit.
    NoAlgorithm,
    /// Every holder gets what it wants, up to the capacity, regardless of the others.
    Static,
    /// In overload an equal share for all; the unused part goes to the others in proportion to
    /// their excess demand.
    ProportionalShare,
    /// In overload the weighted max-min fair share.
    FairShare,
    /// In overload higher priorities first. Within a priority the weighted max-min fair share.
    PriorityShare,
    /// Every holder admits each request with the same probability, so that all together reach the
    /// capacity. For rates.
    Suppression,
    /// All holders share one token bucket and report what they have used. For rates.
    SharedBucket,
}

/// The algorithm of a resource, and the durations of its leases.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Algorithm {
    /// The algorithm.
    pub kind: AlgorithmKind,
    /// The length of a lease, in seconds.
    pub lease_length: Seconds,
    /// The seconds after which a holder refreshes its lease.
    pub refresh_interval: Seconds,
}

/// The unit of a capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// An amount per `per` seconds.
    #[default]
    Rate,
    /// An amount in use at any one time.
    Gauge,
}

/// Deserializes a unit. The error for any other value names the units.
pub(crate) fn deserialize_unit<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Unit>, D::Error> {
    deserializer.deserialize_str(UnitName).map(Some)
}

/// Deserializes a unit that only informs: one of a later release is none.
pub(crate) fn deserialize_known_unit<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Unit>, D::Error> {
    let name = String::deserialize(deserializer)?;
    Ok(UnitName.visit_str::<D::Error>(&name).ok())
}

/// Deserializes a value that only informs: one of a later release is none.
pub(crate) fn deserialize_known<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Known<T> {
        Value(T),
        Other(IgnoredAny),
    }
    Ok(match Known::deserialize(deserializer)? {
        Known::Value(value) => Some(value),
        Known::Other(IgnoredAny) => None,
    })
}

struct UnitName;

impl Visitor<'_> for UnitName {
    type Value = Unit;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`rate` or `gauge`")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Unit, E> {
        match name {
            "rate" => Ok(Unit::Rate),
            "gauge" => Ok(Unit::Gauge),
            _ => Err(E::custom("must be `rate` or `gauge`")),
        }
    }
}
