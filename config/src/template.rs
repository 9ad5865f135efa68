//! A resource template: the capacity of the resources that match a glob, and how it is divided.

use std::collections::BTreeMap;

use doorman_openapi::{
    Algorithm, AlgorithmKind, Capacity, Feedback, Glob, Parameter, SafeCapacity, Seconds,
    ServerAlgorithm, ServerResourceResponse, Unit,
};
use serde::{Deserialize, Serialize, Serializer};

use crate::{
    version::{Version, canonical},
    words::{value_of, word_for},
};

/// The default of [`Template::decay_factor`].
const DECAY_FACTOR: f64 = 0.5;

/// The shortest refresh interval that a node derives from its parent's, in seconds.
const MIN_REFRESH_INTERVAL: f64 = 1.0;

/// The smallest step of shares: a capacity divided by it is still an exact number.
const MIN_GRANULARITY: f64 = 1e-6;

/// A valid template of a [`Document`](crate::Document).
///
/// Serializes with all defaults, but without an `algorithm` that it takes from the template for
/// `*`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Template {
    #[serde(serialize_with = "serialize_glob")]
    pub(crate) identifier_glob: Glob,
    pub(crate) capacity: Capacity,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) safe_capacity: Option<SafeCapacity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    pub(crate) unit: Unit,
    pub(crate) per: Seconds,
    pub(crate) minimum_refresh_interval: Seconds,
    #[serde(
        rename = "algorithm",
        skip_serializing_if = "AlgorithmSection::is_inherited"
    )]
    pub(crate) section: AlgorithmSection,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) feedback: Option<Feedback>,
}

/// The `algorithm` section of a template.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct AlgorithmSection {
    #[serde(flatten)]
    pub(crate) algorithm: Algorithm,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) learning_mode_duration: Option<Seconds>,
    #[serde(skip_serializing_if = "Parameters::is_empty")]
    pub(crate) parameters: Parameters,
    /// Whether it is that of the template for `*`.
    #[serde(skip)]
    pub(crate) is_inherited: bool,
}

impl AlgorithmSection {
    fn is_inherited(&self) -> bool {
        self.is_inherited
    }
}

/// A parameter of an algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ParameterName {
    Surplus,
    Granularity,
    Floor,
    DecayFactor,
}

impl ParameterName {
    /// Whether a number is valid, and in words which ones are.
    pub(crate) fn range(self, number: f64) -> (bool, &'static str) {
        match self {
            Self::Surplus | Self::Floor => (number <= 1.0, "a number from 0 to 1"),
            Self::Granularity => (
                number == 0.0 || number >= MIN_GRANULARITY,
                "0 or a number from 0.000001",
            ),
            Self::DecayFactor => (
                number > 0.0 && number <= 1.0,
                "a number above 0 and at most 1",
            ),
        }
    }
}

/// The parameters that are set.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Parameters(pub(crate) BTreeMap<ParameterName, f64>);

impl Parameters {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn get(&self, name: ParameterName, default: f64) -> f64 {
        self.0.get(&name).copied().unwrap_or(default)
    }

    fn to_list(&self) -> Vec<Parameter> {
        let set = self.0.iter().map(|(name, value)| Parameter {
            name: word_for(name),
            value: value.to_string(),
        });
        set.collect()
    }

    /// Ignores unknown parameters and invalid values, which a later version may send.
    fn from_list(list: &[Parameter]) -> Self {
        let valid = list.iter().filter_map(|Parameter { name, value }| {
            let name: ParameterName = value_of(name)?;
            let value = Capacity::new(value.parse().ok()?).ok()?.get();
            name.range(value).0.then_some((name, value))
        });
        Self(valid.collect())
    }
}

impl Serialize for Parameters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_list().serialize(serializer)
    }
}

/// The longest lease of any template. Resources without a template are not divided, so their leases
/// do not matter here.
pub(crate) fn longest_lease<'t>(templates: impl Iterator<Item = &'t Template>) -> Seconds {
    let lengths = templates.map(|it| it.algorithm().lease_length);
    lengths.fold(Seconds::ZERO, |longest, length| {
        if length > longest { length } else { longest }
    })
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
        let factor = parameters.get(ParameterName::DecayFactor, DECAY_FACTOR);
        let interval = algorithm.refresh_interval.get() * factor;
        let shortest = MIN_REFRESH_INTERVAL.min(algorithm.refresh_interval.get());
        Some(Self {
            identifier_glob: Glob::new(answer.template.as_deref()?).ok()?,
            capacity: answer.limit?,
            // The parent's response has it: it knows the clients of the whole tree.
            safe_capacity: None,
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
                is_inherited: false,
            },
            // The root's capacity follows the target. A node leases what is left of it.
            feedback: None,
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
        Version::of([canonical(self)]).text()
    }

    /// The capacity of each matching resource; for a rate, per [`per`](Self::per).
    #[must_use]
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// The capacity that every holder may use after its lease has expired; `None` is the capacity
    /// divided by the number of clients.
    #[must_use]
    pub fn safe_capacity(&self) -> Option<SafeCapacity> {
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

    /// How the capacity follows the target; `None` leaves it as it is. A template
    /// [of a parent](Self::of_parent) has none.
    ///
    /// The `tolerate` is at most 0.5, a `latency` is above 0 and of a gauge, the capacity is not 0,
    /// and with [`FeedbackMode::Act`](doorman_openapi::FeedbackMode::Act) the algorithm divides it.
    #[must_use]
    pub fn feedback(&self) -> Option<Feedback> {
        self.feedback
    }

    /// The duration of learning mode, at most a year: zero disables it, `None` means as long as
    /// needed.
    #[must_use]
    pub fn learning_mode_duration(&self) -> Option<Seconds> {
        self.section.learning_mode_duration
    }

    /// The part of the unused capacity that is granted on top of the demands, from 0 to 1. Without
    /// it, the control plane chooses a surplus of rates, and grants none of gauges.
    #[must_use]
    pub fn surplus(&self) -> Option<f64> {
        let parameters = &self.section.parameters.0;
        parameters.get(&ParameterName::Surplus).copied()
    }

    /// The step of shares; 0 is any size. The default of a gauge is 1: half an operation cannot be
    /// in flight.
    #[must_use]
    pub fn granularity(&self) -> Capacity {
        let default = match self.unit {
            Unit::Rate => 0.0,
            Unit::Gauge => 1.0,
        };
        Capacity::saturating(
            self.section
                .parameters
                .get(ParameterName::Granularity, default),
        )
    }

    /// The part of what higher priorities have left that each priority leaves to the lower ones if
    /// they want it, from 0 to 1. The default is 0. PRIORITY_SHARE only.
    #[must_use]
    pub fn floor(&self) -> f64 {
        self.section.parameters.get(ParameterName::Floor, 0.0)
    }

    /// The part of the refresh interval after which the holders of a node below this one refresh,
    /// more than 0 and at most 1. The default is 0.5.
    #[must_use]
    pub fn decay_factor(&self) -> f64 {
        self.section
            .parameters
            .get(ParameterName::DecayFactor, DECAY_FACTOR)
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

fn serialize_glob<S: Serializer>(glob: &Glob, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(glob.as_str())
}
