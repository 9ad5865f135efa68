//! Rules: the resources that requests use. Layers fetch the rules of their service.

use serde::{Deserialize, Serialize};

use crate::{Capacity, RuleName, Seconds, TargetHeaders, Unit};

/// The rules of a service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RulesResponse {
    /// The version of the rules: the `ETag` without quotes.
    pub version: String,
    /// The rules, in the order in which they apply.
    pub rules: Vec<Rule>,
}

/// A rule. Every rule that matches a request applies, in order, all or nothing.
///
/// Unknown fields are rejected: such a field may narrow what the rule applies to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The unique name.
    pub name: RuleName,
    /// The services: a glob over the service names of layers.
    #[cfg_attr(feature = "schema", schema(value_type = crate::Glob))]
    pub service: String,
    /// The methods. Default: any. `GET` includes `HEAD`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub methods: Option<Vec<String>>,
    /// The path in the syntax of axum 0.8: `/v1/orders/{id}`, `/static/{*rest}`; in the canonical
    /// spelling: `/caf%C3%A9`. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, max_length = 1024, pattern = "^/[^\\u0000-\\u001f\\u007f-\\u009f]*$"))]
    pub path: Option<String>,
    /// The key template of the resource: constant text with `{header:NAME}`, `{jwt:CLAIM}`,
    /// `{client_ip}`, `{method}`, `{route}`, `{host}` and `{api_key}`. Prefix lengths of addresses:
    /// `{client_ip:v4=24,v6=56}`, by default 32 and 64. Optional if the action is `exempt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, min_length = 1, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$"))]
    pub resource: Option<String>,
    /// The unit of the resource, as in its template: `gauge` limits what is in flight at once.
    #[serde(default)]
    pub unit: Unit,
    /// The cost of a request; more than 0.
    #[serde(default = "Rule::default_cost")]
    #[cfg_attr(feature = "schema", schema(value_type = f64, exclusive_minimum = 0, maximum = 1e15, default = 1.0))]
    pub cost: Capacity,
    /// The burst: the seconds of the rate that may be saved up; at most a day.
    #[serde(default = "Rule::default_burst")]
    #[cfg_attr(feature = "schema", schema(value_type = f64, minimum = 0, maximum = 86_400, default = 1.0))]
    pub burst: Seconds,
    /// The action for a request beyond the limit.
    #[serde(default)]
    pub on_limit: OnLimit,
    /// The action for a request without a value for a placeholder.
    #[serde(default)]
    pub on_missing_key: OnMissingKey,
    /// The limit while there is no lease.
    #[serde(default)]
    pub fallback: Fallback,
    /// The priority for PRIORITY_SHARE; larger is more important.
    #[serde(default)]
    pub priority: i32,
    /// Headers that layers read of the responses to the requests. Default: none; outcomes are always
    /// counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcomes: Option<RuleOutcomes>,
}

/// Headers that layers read of responses, beside outcomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RuleOutcomes {
    /// The headers by which the target tells of its own limit, which is that of the resource.
    pub headers: TargetHeaders,
}

impl Rule {
    /// The default of `cost`: 1.
    #[must_use]
    pub fn default_cost() -> Capacity {
        Capacity::saturating(1.0)
    }

    /// The default of `burst`: one second.
    #[must_use]
    pub fn default_burst() -> Seconds {
        Seconds::saturating(1.0)
    }
}

/// The action for a request beyond the limit.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(tag = "action", rename_all = "snake_case", try_from = "RawOnLimit")]
pub enum OnLimit {
    /// The request is rejected.
    #[default]
    Reject,
    /// The request waits.
    Delay {
        /// The longest delay, in seconds; more than 0.
        max_delay: Seconds,
    },
    /// The request passes and is counted.
    Shadow,
    /// The request passes at no cost, and later rules do not apply to it.
    Exempt,
}

/// The action for a request without a value for a placeholder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnMissingKey {
    /// All such requests share one key, with `(missing)` in place of the value.
    #[default]
    Shared,
    /// The limit does not apply to it.
    Skip,
    /// The request is rejected: with 401 if a valid token is missing, else with 400.
    Reject,
}

// To add a fallback, add a variant: documents read it by its name, and the compiler names each
// place that decides by it. Name it in the error of `config/src/parse/rule.rs` and in
// `examples/service.rs`, and describe it in `docs/LAYER.md` and `docs/RULES.md`.
/// How a limit decides while it has no lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Fallback {
    /// Apply the safe capacity last sent for the resource or its template; admit all while unknown.
    #[default]
    Safe,
    /// Admit every request.
    Optimistic,
    /// Reject requests, or let them wait for a lease.
    Pessimistic,
}

/// The JSON form. A tagged enum would ignore the fields of other actions.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawOnLimit {
    action: Action,
    max_delay: Option<Seconds>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Action {
    Reject,
    Delay,
    Shadow,
    Exempt,
}

impl TryFrom<RawOnLimit> for OnLimit {
    type Error = &'static str;

    fn try_from(written: RawOnLimit) -> Result<Self, Self::Error> {
        match (written.action, written.max_delay) {
            (Action::Delay, Some(max_delay)) => Ok(Self::Delay { max_delay }),
            (Action::Delay, None) => Err("`delay` needs a `max_delay`"),
            (Action::Reject | Action::Shadow | Action::Exempt, Some(_)) => {
                Err("only `delay` has a `max_delay`")
            }
            (Action::Reject, None) => Ok(Self::Reject),
            (Action::Shadow, None) => Ok(Self::Shadow),
            (Action::Exempt, None) => Ok(Self::Exempt),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_fields_have_defaults() {
        let rule: Rule =
            serde_json::from_str(r#"{"name":"all","service":"*","resource":"api"}"#).unwrap();
        assert_eq!((rule.cost.get(), rule.burst.get()), (1.0, 1.0));
        assert_eq!(rule.on_limit, OnLimit::Reject);
        assert_eq!(rule.on_missing_key, OnMissingKey::Shared);
        assert_eq!(rule.fallback, Fallback::Safe);
        assert_eq!((rule.unit, rule.priority), (Unit::Rate, 0));
    }

    #[test]
    fn written_rule_parses_as_equal() {
        for on_limit in [
            OnLimit::Reject,
            OnLimit::Delay {
                max_delay: Seconds::saturating(0.5),
            },
            OnLimit::Shadow,
            OnLimit::Exempt,
        ] {
            let written = serde_json::to_string(&on_limit).unwrap();
            let read: OnLimit = serde_json::from_str(&written).unwrap();
            assert_eq!(read, on_limit, "{written}");
        }
    }

    #[test]
    fn unknown_fields_and_values_are_rejected() {
        for rule in [
            r#"{"name":"all","service":"*","resource":"api","when":"night"}"#,
            r#"{"name":"all","service":"*","resource":"api","outcomes":{}}"#,
            r#"{"name":"all","service":"*","resource":"api","outcomes":{"headers":"x"}}"#,
            r#"{"name":"all","service":"*","resource":"api","outcomes":{"headers":"standard","x":1}}"#,
            r#"{"name":"all","service":"*","resource":"api","on_limit":{"action":"tarpit"}}"#,
            r#"{"name":"all","service":"*","resource":"api","on_limit":{"action":"reject","max_delay":1}}"#,
            r#"{"name":"all","service":"*","resource":"api","on_limit":{"action":"exempt","until":1}}"#,
            r#"{"name":"all","service":"*","resource":"api","on_limit":{"action":"delay"}}"#,
            r#"{"name":"all","service":"*","resource":"api","fallback":"guess"}"#,
            r#"{"name":"","service":"*","resource":"api"}"#,
        ] {
            assert!(serde_json::from_str::<Rule>(rule).is_err(), "{rule}");
        }
    }
}
