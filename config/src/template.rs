//! A resource template: how much there is of what, and how it is divided.

use doorman_openapi::{Algorithm, AlgorithmKind, Capacity, SafeCapacity, Seconds, Unit};
use serde::{Serialize, Serializer, ser::SerializeStruct};

use crate::{Glob, version::Version};

/// The terms for every resource whose identifier matches a glob. Checked: it can only come from a [`Document`](crate::Document).
///
/// Serialises to the form of the document, with every default written out, but for the `algorithm` of a template that takes it from the
/// one for everything: it goes on to follow that.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    pub(crate) identifier_glob: Glob,
    pub(crate) capacity: Capacity,
    pub(crate) safe_capacity: SafeCapacityRule,
    pub(crate) description: Option<String>,
    pub(crate) unit: Unit,
    pub(crate) per: Seconds,
    pub(crate) minimum_refresh_interval: Seconds,
    pub(crate) terms: Terms,
    /// Whether the terms are its own, and not those of the template that matches everything.
    pub(crate) has_own_terms: bool,
}

/// What a holder that has lost its lease may use by itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SafeCapacityRule {
    /// An equal part of the capacity: the capacity divided by the number of clients.
    Dynamic,
    /// The same for every holder, however many there are.
    Fixed(SafeCapacity),
}

/// The `algorithm` section of a template, its own or that of the template that matches everything.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Terms {
    pub(crate) algorithm: Algorithm,
    pub(crate) learning_mode_duration: Option<Seconds>,
    pub(crate) parameters: Parameters,
}

/// The named parameters of an algorithm, as far as they are given.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Parameters {
    pub(crate) surplus: Option<f64>,
    pub(crate) granularity: Option<Capacity>,
}

impl Template {
    /// Which resources it is for, as it was written.
    #[must_use]
    pub fn identifier_glob(&self) -> &str {
        self.identifier_glob.as_str()
    }

    /// Identifies what the template says: 32 hexadecimal digits. Templates that say the same have the same version.
    #[must_use]
    pub fn version(&self) -> String {
        Version::of([self]).text()
    }

    /// How much there is of each of these resources: for a rate, per [`per`](Self::per).
    #[must_use]
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// What a holder that has lost its lease may use.
    #[must_use]
    pub fn safe_capacity(&self) -> SafeCapacityRule {
        self.safe_capacity
    }

    /// What the template is for, in the operator's words.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// What the capacity counts.
    #[must_use]
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// What time a rate is counted over; from a millisecond to a year.
    #[must_use]
    pub fn per(&self) -> Seconds {
        self.per
    }

    /// How long after a decision an early request only gets that decision again; from 0, and at most the refresh
    /// interval.
    #[must_use]
    pub fn minimum_refresh_interval(&self) -> Seconds {
        self.minimum_refresh_interval
    }

    /// How the capacity is divided. The lease length and the refresh interval are from a millisecond to a year, and the refresh
    /// interval is the shorter.
    #[must_use]
    pub fn algorithm(&self) -> &Algorithm {
        &self.terms.algorithm
    }

    /// For how long a server that may have had a predecessor learns what that has leased, when the operator says so; from a
    /// millisecond to a year. `None`: as long as needed.
    #[must_use]
    pub fn learning_mode_duration(&self) -> Option<Seconds> {
        self.terms.learning_mode_duration
    }

    /// The part of what nobody wants that is handed out on top, from 0 to 1, so that a holder can absorb a spike.
    #[must_use]
    pub fn surplus(&self) -> f64 {
        self.terms.parameters.surplus.unwrap_or(0.0)
    }

    /// The size of the steps in which shares come; 0: any size. Half an operation cannot be in flight, so a gauge comes in whole ones
    /// unless the operator says otherwise.
    #[must_use]
    pub fn granularity(&self) -> Capacity {
        let default = match self.unit {
            Unit::Rate => 0.0,
            Unit::Gauge => 1.0,
        };
        self.terms
            .parameters
            .granularity
            .unwrap_or(Capacity::saturating(default))
    }
}

/// The terms of a lease when nothing else is said: NO_ALGORITHM, 60 s, to be refreshed every 5 s. A resource that no template
/// matches gets exactly these; an `algorithm` section without lengths gets these lengths.
#[must_use]
pub fn default_algorithm() -> Algorithm {
    Algorithm {
        kind: AlgorithmKind::NoAlgorithm,
        lease_length: Seconds::saturating(60.0),
        refresh_interval: Seconds::saturating(5.0),
    }
}

impl Serialize for Template {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self {
            identifier_glob,
            capacity,
            safe_capacity,
            description,
            unit,
            per,
            minimum_refresh_interval,
            terms,
            has_own_terms,
        } = self;
        let mut fields = serializer.serialize_struct("Template", 8)?;
        fields.serialize_field("identifier_glob", identifier_glob.as_str())?;
        fields.serialize_field("capacity", capacity)?;
        match safe_capacity {
            SafeCapacityRule::Dynamic => fields.skip_field("safe_capacity")?,
            SafeCapacityRule::Fixed(fixed) => fields.serialize_field("safe_capacity", fixed)?,
        }
        match description {
            None => fields.skip_field("description")?,
            Some(description) => fields.serialize_field("description", description)?,
        }
        fields.serialize_field("unit", unit)?;
        fields.serialize_field("per", per)?;
        fields.serialize_field("minimum_refresh_interval", minimum_refresh_interval)?;
        if *has_own_terms {
            fields.serialize_field("algorithm", terms)?;
        } else {
            fields.skip_field("algorithm")?;
        }
        fields.end()
    }
}

impl Serialize for Terms {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self {
            algorithm:
                Algorithm {
                    kind,
                    lease_length,
                    refresh_interval,
                },
            learning_mode_duration,
            parameters,
        } = self;
        let mut fields = serializer.serialize_struct("Algorithm", 5)?;
        fields.serialize_field("kind", kind)?;
        fields.serialize_field("lease_length", lease_length)?;
        fields.serialize_field("refresh_interval", refresh_interval)?;
        match learning_mode_duration {
            None => fields.skip_field("learning_mode_duration")?,
            Some(duration) => fields.serialize_field("learning_mode_duration", duration)?,
        }
        let parameters = parameters.named();
        if parameters.is_empty() {
            fields.skip_field("parameters")?;
        } else {
            fields.serialize_field("parameters", &parameters)?;
        }
        fields.end()
    }
}

/// A parameter as documents have it: the value is text.
#[derive(Debug, Serialize)]
struct NamedParameter {
    name: &'static str,
    value: String,
}

impl Parameters {
    fn named(self) -> Vec<NamedParameter> {
        let Self {
            surplus,
            granularity,
        } = self;
        [
            ("surplus", surplus),
            ("granularity", granularity.map(Capacity::get)),
        ]
        .into_iter()
        .filter_map(|(name, value)| {
            Some(NamedParameter {
                name,
                value: value?.to_string(),
            })
        })
        .collect()
    }
}
