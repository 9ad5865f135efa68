//! The document that operators write, as it travels: how much there is of what, and which requests spend it.
//!
//! These types say what the form is. What a document must keep beyond its form, such as globs that are unique and lengths that fit
//! together, is the control plane's to check.

use serde::{Deserialize, Serialize};

use crate::{AlgorithmKind, Capacity, Rule, SafeCapacity, Seconds, Unit};

/// The document: what operators write, and `GET /v1/templates` answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// How much there is of what. A resource falls under the template that names it to the letter, else under the first whose glob
    /// matches; a template for everything stands last.
    pub resources: Vec<Template>,
    /// Which requests spend what, in the order in which the rules apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(max_items = 1000))]
    pub rules: Vec<Rule>,
}

/// A resource template: the terms for every resource whose identifier matches a glob.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// Which resources it is for: `*` matches any run of characters, `/` included, `?` one character, `[…]` one of a class, and `\`
    /// takes the meaning from the character after it.
    #[cfg_attr(
        feature = "schema",
        schema(
            min_length = 1,
            max_length = 1024,
            pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$"
        )
    )]
    pub identifier_glob: String,
    /// How much there is of each of these resources; for a rate, per `per` seconds.
    pub capacity: Capacity,
    /// What a holder without a lease may use: -1 is unlimited, 0 nothing; absent: the capacity divided by the number of clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(schema_with = crate::schemas::safe_capacity))]
    pub safe_capacity: Option<SafeCapacity>,
    /// What it is for, in the operator's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub description: Option<String>,
    /// What the capacity counts.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(required = false))]
    pub unit: Unit,
    /// What time a rate is counted over.
    #[serde(default = "one_second")]
    #[cfg_attr(feature = "schema", schema(required = false, value_type = f64, minimum = 0.001, maximum = 31_536_000, default = 1.0))]
    pub per: Seconds,
    /// A holder that comes back earlier only hears the last decision again; at most the refresh interval.
    #[serde(default = "no_time")]
    #[cfg_attr(feature = "schema", schema(required = false, value_type = f64, minimum = 0, maximum = 31_536_000, default = 0.0))]
    pub minimum_refresh_interval: Seconds,
    /// How the capacity is divided; absent: as in the template for everything, which must have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub algorithm: Option<TemplateAlgorithm>,
}

/// The `algorithm` of a template: how the capacity is divided, and the terms of the leases.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TemplateAlgorithm {
    /// Which one.
    pub kind: AlgorithmKind,
    /// How long a lease lasts.
    #[serde(default = "a_minute")]
    #[cfg_attr(feature = "schema", schema(required = false, value_type = f64, minimum = 0.001, maximum = 31_536_000, default = 60.0))]
    pub lease_length: Seconds,
    /// How long after a request a holder should come back; shorter than the lease.
    #[serde(default = "five_seconds")]
    #[cfg_attr(feature = "schema", schema(required = false, value_type = f64, minimum = 0.001, maximum = 31_536_000, default = 5.0))]
    pub refresh_interval: Seconds,
    /// For how long a new server learns what the one before it leased; absent: as long as needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false, value_type = Option<f64>, minimum = 0.001, maximum = 31_536_000))]
    pub learning_mode_duration: Option<Seconds>,
    /// What the algorithm takes beyond that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<Parameter>,
}

/// A parameter of an algorithm, such as `surplus` or `granularity`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// Its name.
    #[cfg_attr(feature = "schema", schema(schema_with = crate::schemas::parameter_name))]
    pub name: String,
    /// Its value, as text.
    #[cfg_attr(feature = "schema", schema(schema_with = crate::schemas::parameter_value))]
    pub value: String,
}

/// A page of the past changes of the document, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HistoryPage {
    /// The changes of this page.
    pub changes: Vec<PastChange>,
    /// Send it as `cursor` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub next_cursor: Option<String>,
}

/// A change of the document that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PastChange {
    /// Counts the changes of the store, from 1.
    pub revision: u64,
    /// When it was made, in Unix seconds.
    pub changed_at: u64,
    /// Who made it.
    pub changed_by: String,
    /// What it did, in words.
    pub change: String,
    /// The version of the document that it led to.
    pub version: String,
}

/// What a change would do, and nothing of it done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DryRun {
    /// The version of the document that it would lead to.
    pub version: String,
    /// What would change in the document, a line each; of very many only the first 100.
    pub changes: Vec<String>,
    /// How many changes there would be, listed or not.
    pub change_count: usize,
    /// What is allowed, but likely a mistake.
    pub warnings: Vec<String>,
    /// The live resources whose terms would change, each at its holders' next refresh; of very many only the first 100, by identifier.
    pub resources: Vec<ResourceEffect>,
    /// How many resources that would be, listed or not, of those that were looked at.
    pub resource_count: usize,
    /// Whether all live resources were looked at; of very many it is the first only.
    pub looked_at_all: bool,
}

/// What a change would do to one live resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ResourceEffect {
    /// The resource.
    pub resource_id: crate::ResourceId,
    /// How many clients hold it or wait for it, those behind nodes included.
    pub clients: u64,
    /// The most that all holders together may be using now, by the books.
    pub sum_has: f64,
    /// What would change for it, such as `capacity: 100 → 50`.
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

fn no_time() -> Seconds {
    Seconds::ZERO
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_in_what_is_left_out() {
        let text = r#"{"resources":[{"identifier_glob":"db","capacity":5,"algorithm":{"kind":"STATIC"}}]}"#;
        let document: Document = serde_json::from_str(text).unwrap();
        let template = &document.resources[0];
        assert_eq!((template.per.get(), template.unit), (1.0, Unit::Rate));
        let algorithm = template.algorithm.as_ref().unwrap();
        assert_eq!(algorithm.lease_length.get(), 60.0);
        assert_eq!(algorithm.refresh_interval.get(), 5.0);
        assert!(document.rules.is_empty() && algorithm.parameters.is_empty());
        let written = serde_json::to_string(&document).unwrap();
        assert_eq!(
            serde_json::from_str::<Document>(&written).unwrap(),
            document
        );
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        for text in [
            r#"{"resources":[],"rule":[]}"#,
            r#"{"resources":[{"identifier_glob":"db","capacity":5,"capcity":1}]}"#,
            r#"{"resources":[{"identifier_glob":"db","capacity":5,"algorithm":{"kind":"STATIC","lease":1}}]}"#,
        ] {
            assert!(serde_json::from_str::<Document>(text).is_err(), "{text}");
        }
    }
}
