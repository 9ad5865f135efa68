//! A resource template: the capacity of the resources that match a glob, and how it is divided.

use doorman_openapi::{
    Algorithm, AlgorithmKind, Capacity, Glob, Parameter, SafeCapacity, Seconds, ServerAlgorithm,
    ServerResourceResponse, Unit,
};
use serde::{Serialize, Serializer, ser::SerializeStruct};

use crate::version::Version;

/// The default of [`Template::decay_factor`].
const DECAY_FACTOR: f64 = 0.5;

/// The shortest refresh interval that a node derives from its parent's, in seconds.
const MIN_REFRESH_INTERVAL: f64 = 1.0;

/// A valid template of a [`Document`](crate::Document).
///
/// Serializes with all defaults, but without an `algorithm` that it takes from the template for
/// `*`.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    pub(crate) identifier_glob: Glob,
    pub(crate) capacity: Capacity,
    pub(crate) safe_capacity: SafeCapacityRule,
    pub(crate) description: Option<String>,
    pub(crate) unit: Unit,
    pub(crate) per: Seconds,
    pub(crate) minimum_refresh_interval: Seconds,
    pub(crate) section: AlgorithmSection,
    /// Whether the section is its own, not that of the template for `*`.
    pub(crate) has_own_algorithm: bool,
}

/// The capacity that a holder may use after its lease has expired.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SafeCapacityRule {
    /// The capacity divided by the number of clients.
    Dynamic,
    /// The same for every holder.
    Fixed(SafeCapacity),
}

/// The `algorithm` section of a template.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AlgorithmSection {
    pub(crate) algorithm: Algorithm,
    pub(crate) learning_mode_duration: Option<Seconds>,
    pub(crate) parameters: Parameters,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Parameters {
    pub(crate) surplus: Option<f64>,
    pub(crate) granularity: Option<Capacity>,
    pub(crate) floor: Option<f64>,
    pub(crate) decay_factor: Option<f64>,
}

impl Parameters {
    fn to_list(self) -> Vec<Parameter> {
        let Self {
            surplus,
            granularity,
            floor,
            decay_factor,
        } = self;
        let parameters = [
            ("surplus", surplus),
            ("granularity", granularity.map(Capacity::get)),
            ("floor", floor),
            ("decay_factor", decay_factor),
        ];
        let set = parameters.into_iter().filter_map(|(name, value)| {
            Some(Parameter {
                name: name.to_owned(),
                value: value?.to_string(),
            })
        });
        set.collect()
    }

    /// Ignores unknown parameters and invalid values, which a later version may send.
    fn from_list(list: &[Parameter]) -> Self {
        let mut parameters = Self::default();
        for Parameter { name, value } in list {
            let Some(value) = value.parse().ok().and_then(|it| Capacity::new(it).ok()) else {
                continue;
            };
            let part = Some(value.get()).filter(|part| *part <= 1.0);
            match name.as_str() {
                "surplus" => parameters.surplus = part,
                "granularity" => parameters.granularity = Some(value),
                "floor" => parameters.floor = part,
                "decay_factor" => parameters.decay_factor = part.filter(|factor| *factor > 0.0),
                _ => {}
            }
        }
        parameters
    }
}

impl Template {
    /// The template of a resource that is leased from a parent node, by its response: `None` if no
    /// template of the parent matched. Refresh intervals are those of the parent times the
    /// [`decay_factor`](Self::decay_factor), but at least a second.
    #[must_use]
    pub fn of_parent(response: &ServerResourceResponse) -> Option<Self> {
        let ServerResourceResponse {
            answer,
            algorithm:
                ServerAlgorithm {
                    algorithm,
                    parameters,
                },
            levels: _,
        } = response;
        let parameters = Parameters::from_list(parameters);
        let factor = parameters.decay_factor.unwrap_or(DECAY_FACTOR);
        let interval = algorithm.refresh_interval.get() * factor;
        let shortest = MIN_REFRESH_INTERVAL.min(algorithm.refresh_interval.get());
        Some(Self {
            identifier_glob: Glob::new(answer.template.as_deref()?).ok()?,
            capacity: answer.limit?,
            // The parent's response has it: it knows the clients of the whole tree.
            safe_capacity: SafeCapacityRule::Dynamic,
            description: None,
            unit: answer.unit.unwrap_or_default(),
            per: answer.per.filter(|per| *per > Seconds::ZERO)?,
            minimum_refresh_interval: Seconds::ZERO,
            section: AlgorithmSection {
                algorithm: Algorithm {
                    refresh_interval: Seconds::saturating(interval.max(shortest)),
                    ..algorithm.clone()
                },
                learning_mode_duration: None,
                parameters,
            },
            has_own_algorithm: true,
        })
    }

    /// The parameters of the algorithm that are set.
    #[must_use]
    pub fn parameters(&self) -> Vec<Parameter> {
        self.section.parameters.to_list()
    }

    /// The glob as written.
    #[must_use]
    pub fn identifier_glob(&self) -> &str {
        self.identifier_glob.as_str()
    }

    /// The version of the template, 32 hexadecimal digits: equal templates have equal versions.
    #[must_use]
    pub fn version(&self) -> String {
        Version::of([self]).text()
    }

    /// The capacity of each matching resource; for a rate, per [`per`](Self::per).
    #[must_use]
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// The capacity that a holder may use after its lease has expired.
    #[must_use]
    pub fn safe_capacity(&self) -> SafeCapacityRule {
        self.safe_capacity
    }

    /// The operator's description.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// Whether the capacity is a rate or a gauge.
    #[must_use]
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// The period of a rate, from a millisecond to a year.
    #[must_use]
    pub fn per(&self) -> Seconds {
        self.per
    }

    /// The time after a decision within which a request gets that decision again; at most the
    /// refresh interval.
    #[must_use]
    pub fn minimum_refresh_interval(&self) -> Seconds {
        self.minimum_refresh_interval
    }

    /// The algorithm. Its refresh interval is shorter than its lease length; both are from a
    /// millisecond to a year.
    #[must_use]
    pub fn algorithm(&self) -> &Algorithm {
        &self.section.algorithm
    }

    /// The duration of learning mode, at most a year: zero disables it, `None` means as long as
    /// needed.
    #[must_use]
    pub fn learning_mode_duration(&self) -> Option<Seconds> {
        self.section.learning_mode_duration
    }

    /// The part of the unused capacity that is granted on top of the demands, from 0 to 1. The
    /// default is for holders that poll for hints: 0.5 of a rate, which can be recalled at once.
    #[must_use]
    pub fn surplus(&self) -> f64 {
        let default = match self.unit {
            Unit::Rate => 0.5,
            Unit::Gauge => 0.0,
        };
        self.section.parameters.surplus.unwrap_or(default)
    }

    /// [`Self::surplus`] of holders that do not poll: 0 by default.
    #[must_use]
    pub fn surplus_without_polls(&self) -> f64 {
        self.section.parameters.surplus.unwrap_or(0.0)
    }

    /// The step of shares; 0 is any size. The default of a gauge is 1: half an operation cannot be
    /// in flight.
    #[must_use]
    pub fn granularity(&self) -> Capacity {
        let default = match self.unit {
            Unit::Rate => 0.0,
            Unit::Gauge => 1.0,
        };
        self.section
            .parameters
            .granularity
            .unwrap_or(Capacity::saturating(default))
    }

    /// The part of what higher priorities have left that each priority leaves to the lower ones if
    /// they want it, from 0 to 1. The default is 0. PRIORITY_SHARE only.
    #[must_use]
    pub fn floor(&self) -> f64 {
        self.section.parameters.floor.unwrap_or(0.0)
    }

    /// The part of the refresh interval after which the holders of a node below this one refresh,
    /// more than 0 and at most 1. The default is 0.5.
    #[must_use]
    pub fn decay_factor(&self) -> f64 {
        self.section.parameters.decay_factor.unwrap_or(DECAY_FACTOR)
    }
}

/// The algorithm of a resource that no template matches: NO_ALGORITHM, 60 s leases, refreshed every
/// 5 s. An `algorithm` section without durations has the same durations.
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
            section,
            has_own_algorithm,
        } = self;
        let mut fields = serializer.serialize_struct("Template", 8)?;
        fields.serialize_field("identifier_glob", identifier_glob.as_str())?;
        fields.serialize_field("capacity", capacity)?;
        if let SafeCapacityRule::Fixed(fixed) = safe_capacity {
            fields.serialize_field("safe_capacity", fixed)?;
        }
        if let Some(description) = description {
            fields.serialize_field("description", description)?;
        }
        fields.serialize_field("unit", unit)?;
        fields.serialize_field("per", per)?;
        fields.serialize_field("minimum_refresh_interval", minimum_refresh_interval)?;
        if *has_own_algorithm {
            fields.serialize_field("algorithm", section)?;
        }
        fields.end()
    }
}

impl Serialize for AlgorithmSection {
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
        if let Some(duration) = learning_mode_duration {
            fields.serialize_field("learning_mode_duration", duration)?;
        }
        let parameters = parameters.to_list();
        if !parameters.is_empty() {
            fields.serialize_field("parameters", &parameters)?;
        }
        fields.end()
    }
}
