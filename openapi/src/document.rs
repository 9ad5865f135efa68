//! The configuration document on the wire: templates, rules, history and dry runs.
//!
//! These types check the form. The control plane checks what spans fields, such as unique globs.

use serde::{Deserialize, Serialize};

use crate::{
    AlgorithmKind, Capacity, Fraction, Rule, SafeCapacity, Seconds, Unit, capacity::is_default,
};

/// The configuration document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// The templates. A resource uses the template whose glob equals its identifier, else the first
    /// that matches. A template for `*` is the last.
    pub resources: Vec<Template>,
    /// The rules, in the order in which they apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(max_items = 1000))]
    pub rules: Vec<Rule>,
}

/// A resource template: capacity and algorithm of all resources that match a glob.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// The glob over resource identifiers: `*` matches any run of characters, `/` included, `?` one
    /// character, `[…]` one of a class; `\` escapes the next character.
    #[cfg_attr(feature = "schema", schema(value_type = crate::Glob))]
    pub identifier_glob: String,
    /// The capacity of each matching resource; for a rate, per `per` seconds: 0, or from 1e-9 to 1e9
    /// per second. A gauge has at most 1e12 units; its capacity is 0, or at least 1.
    pub capacity: Capacity,
    /// The capacity that a holder may use without a lease: -1 is unlimited, 0 is none. Default: the
    /// capacity divided by the number of clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<f64>))]
    pub safe_capacity: Option<SafeCapacity>,
    /// A description for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether the capacity is a rate or a gauge.
    #[serde(default)]
    pub unit: Unit,
    /// The period of a rate, in seconds.
    #[serde(default = "one_second")]
    #[cfg_attr(feature = "schema", schema(value_type = f64, minimum = 0.001, maximum = 31_536_000, default = 1.0))]
    pub per: Seconds,
    /// The seconds after a decision within which a holder gets the same decision again; at most
    /// `refresh_interval`.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(value_type = f64, minimum = 0, maximum = 31_536_000, default = 0.0))]
    pub minimum_refresh_interval: Seconds,
    /// The algorithm. Default: that of the template for `*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<TemplateAlgorithm>,
    /// How the capacity follows the target. Default: outcomes of requests are only shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feedback: Option<Feedback>,
}

/// The algorithm of a template, and the durations of its leases.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TemplateAlgorithm {
    /// The algorithm.
    pub kind: AlgorithmKind,
    /// The length of a lease, in seconds.
    #[serde(default = "a_minute")]
    #[cfg_attr(feature = "schema", schema(value_type = f64, minimum = 0.001, maximum = 31_536_000, default = 60.0))]
    pub lease_length: Seconds,
    /// The seconds after which a holder refreshes its lease; less than `lease_length`.
    #[serde(default = "five_seconds")]
    #[cfg_attr(feature = "schema", schema(value_type = f64, minimum = 0.001, maximum = 31_536_000, default = 5.0))]
    pub refresh_interval: Seconds,
    /// The seconds for which a new master learns the leases of the previous one. Default: as long
    /// as needed. 0 disables learning mode: capacity can be exceeded after a restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<f64>, minimum = 0, maximum = 31_536_000))]
    pub learning_mode_duration: Option<Seconds>,
    /// Further parameters of the algorithm.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<Parameter>,
}

/// How the effective capacity of each matching resource follows the outcomes of requests to its
/// target. It never exceeds the `capacity`. In a tree of servers only the root follows; nodes lease
/// what is left of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Feedback {
    /// Whether the capacity is changed.
    #[serde(default)]
    pub mode: FeedbackMode,
    /// The least part of the `capacity` that overloads leave. During a pause that the target asks
    /// for, and by its `headers`, it may be less.
    #[serde(default = "a_tenth")]
    #[cfg_attr(feature = "schema", schema(value_type = f64, minimum = 0, maximum = 1, default = 0.1))]
    pub floor: Fraction,
    /// The share of overloaded requests that is no reason to lower the capacity.
    #[serde(default = "a_hundredth")]
    #[cfg_attr(feature = "schema", schema(value_type = f64, minimum = 0, maximum = 0.5, default = 0.01))]
    pub tolerate: Fraction,
    /// Whether the capacity follows the target's own limit, by the headers of its responses.
    #[serde(default = "yes")]
    #[cfg_attr(feature = "schema", schema(default = true))]
    pub headers: bool,
    /// The mean time of a request, in seconds, above which the target is overloaded. Gauges only.
    /// Default: the time does not matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<f64>, exclusive_minimum = 0, maximum = 31_536_000))]
    pub latency: Option<Seconds>,
}

/// Whether feedback changes the capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum FeedbackMode {
    /// The effective capacity is leased. The algorithm must divide the capacity.
    #[default]
    Act,
    /// The effective capacity is computed and shown; the whole capacity is leased.
    Observe,
}

/// A parameter of an algorithm: `surplus`, `granularity`, `floor` or `decay_factor`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// The name.
    pub name: String,
    /// The value, as text.
    pub value: String,
}

/// A page of the history of the document, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HistoryPage {
    /// The changes of this page.
    pub changes: Vec<PastChange>,
    /// The `cursor` of the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// A past change of the document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PastChange {
    /// The number of the change, from 1; absent for a restricted token.
    #[serde(default, skip_serializing_if = "is_default")]
    pub revision: u64,
    /// The time of the change, in Unix seconds.
    pub changed_at: u64,
    /// The author; for a restricted token `another caller` if it is not its own subject.
    pub changed_by: String,
    /// The change in words.
    pub change: String,
    /// The resulting version of the document; absent for a restricted token.
    #[serde(default, skip_serializing_if = "is_default")]
    pub version: String,
}

/// The result of a deletion that leaves a document with warnings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
// In the schema of a `DELETE` no response may be both this and a `DryRun`.
#[serde(deny_unknown_fields)]
pub struct Deleted {
    /// Valid content of the document that is probably a mistake or a risk.
    pub warnings: Vec<String>,
}

/// The effect of a change that was not made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DryRun {
    /// The resulting version of the document.
    pub version: String,
    /// The changes of the document, one line each; at most 100.
    pub changes: Vec<String>,
    /// The number of changes.
    pub change_count: usize,
    /// Valid content that is probably a mistake or a risk.
    pub warnings: Vec<String>,
    /// The live resources that would change at the next refresh of their holders, by identifier; at
    /// most 100.
    pub resources: Vec<ResourceEffect>,
    /// The number of such resources among those examined.
    pub resource_count: usize,
    /// Whether all live resources were examined.
    pub looked_at_all: bool,
}

/// The effect of a change on a live resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ResourceEffect {
    /// The resource.
    pub resource_id: crate::ResourceId,
    /// The number of clients, those behind nodes included.
    pub clients: u64,
    /// The sum of all bookings: the most that the holders may be using now.
    pub sum_has: f64,
    /// The changes, such as `capacity: 100 → 50`.
    pub changes: Vec<String>,
}

fn one_second() -> Seconds {
    Seconds::saturating(1.0)
}

fn five_seconds() -> Seconds {
    Seconds::saturating(5.0)
}

fn a_minute() -> Seconds {
    Seconds::saturating(60.0)
}

fn a_tenth() -> Fraction {
    Fraction::saturating(0.1)
}

fn a_hundredth() -> Fraction {
    Fraction::saturating(0.01)
}

fn yes() -> bool {
    true
}

impl Default for Feedback {
    fn default() -> Self {
        Self {
            mode: FeedbackMode::Act,
            floor: a_tenth(),
            tolerate: a_hundredth(),
            headers: true,
            latency: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_fields_have_defaults() {
        let text = r#"{"resources":[{"identifier_glob":"db","capacity":5,"algorithm":{"kind":"STATIC"}}]}"#;
        let document: Document = serde_json::from_str(text).unwrap();
        let template = &document.resources[0];
        assert_eq!((template.per.get(), template.unit), (1.0, Unit::Rate));
        let algorithm = template.algorithm.as_ref().unwrap();
        assert_eq!(algorithm.lease_length.get(), 60.0);
        assert_eq!(algorithm.refresh_interval.get(), 5.0);
        assert!(document.rules.is_empty() && algorithm.parameters.is_empty());
        assert_eq!(template.feedback, None);
        let feedback: Feedback = serde_json::from_str("{}").unwrap();
        assert_eq!(feedback, Feedback::default());
        let written = serde_json::to_string(&document).unwrap();
        assert_eq!(
            serde_json::from_str::<Document>(&written).unwrap(),
            document
        );
    }

    #[test]
    fn unknown_fields_are_rejected() {
        for text in [
            r#"{"resources":[],"rule":[]}"#,
            r#"{"resources":[{"identifier_glob":"db","capacity":5,"capcity":1}]}"#,
            r#"{"resources":[{"identifier_glob":"db","capacity":5,"algorithm":{"kind":"STATIC","lease":1}}]}"#,
            r#"{"resources":[{"identifier_glob":"db","capacity":5,"feedback":{"flor":1}}]}"#,
        ] {
            assert!(serde_json::from_str::<Document>(text).is_err(), "{text}");
        }
    }
}
