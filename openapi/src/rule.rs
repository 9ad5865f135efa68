//! Rules: which requests spend which resource. Operators write them, and the layers of services fetch and follow them.

use serde::{Deserialize, Serialize};

use crate::{Capacity, RuleName, Seconds, Unit};

/// What `GET /v1/rules` answers: the rules for one service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RulesResponse {
    /// Identifies what the rules say: equal rules have equal versions. It is the `ETag`, without its quotes.
    pub version: String,
    /// The rules, in the order in which they apply.
    pub rules: Vec<Rule>,
}

/// One rule. Every rule that matches a request applies, in order, all or nothing.
///
/// A reader refuses fields that it does not know: one of them may narrow what the rule applies to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Its name, which no other rule of the document has.
    pub name: RuleName,
    /// The services that it is for: a glob on the name that a layer gives itself.
    #[cfg_attr(
        feature = "schema",
        schema(
            min_length = 1,
            max_length = 1024,
            pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$"
        )
    )]
    pub service: String,
    /// The methods that it is for; absent: any. `GET` means `HEAD`, too, as servers answer it by the same handler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(schema_with = crate::schemas::methods))]
    pub methods: Option<Vec<String>>,
    /// The paths that it is for, as axum 0.8 writes routes: `/v1/orders/{id}`, `/static/{*rest}`; absent: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schema(
            nullable = false,
            max_length = 1024,
            pattern = "^/[^\\u0000-\\u001f\\u007f-\\u009f]*$"
        )
    )]
    pub path: Option<String>,
    /// The resource that a request spends: a template of `{header:NAME}`, `{jwt:CLAIM}`, `{client_ip}`, `{method}`, `{route}`, `{host}`,
    /// `{api_key}` and constant text. Absent only where nothing is spent, as the rule exempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schema(
            nullable = false,
            min_length = 1,
            pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$"
        )
    )]
    pub resource: Option<String>,
    /// What the resource counts.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(required = false))]
    pub unit: Unit,
    /// What each request spends; more than 0.
    #[serde(default = "one")]
    #[cfg_attr(feature = "schema", schema(required = false, value_type = f64, exclusive_minimum = 0, maximum = 1e15, default = 1.0))]
    pub cost: Capacity,
    /// How much of the rate may be saved up, as a time at that rate.
    #[serde(default = "one_second")]
    #[cfg_attr(feature = "schema", schema(required = false, default = 1.0))]
    pub burst: Seconds,
    /// What becomes of a request for which nothing is left.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(required = false))]
    pub on_limit: OnLimit,
    /// What becomes of a request that lacks what the resource is made of.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(required = false))]
    pub on_missing_key: OnMissingKey,
    /// What counts while there is no lease.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(required = false))]
    pub fallback: Fallback,
    /// How important it is: more is more important. Only algorithms that say so read it.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(required = false))]
    pub priority: i32,
}

/// What becomes of a request for which nothing is left.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case", try_from = "WrittenOnLimit")]
pub enum OnLimit {
    /// It is refused at once.
    #[default]
    Reject,
    /// It waits for its turn.
    Delay {
        /// How long at most; more than 0.
        max_delay: Seconds,
    },
    /// It is counted, and passes.
    Shadow,
    /// It passes, and nothing is spent: what stands behind this rule does not apply to it.
    Exempt,
}

/// What becomes of a request that lacks what a resource is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnMissingKey {
    /// All such requests share one key.
    #[default]
    Shared,
    /// The rule does not apply to it.
    Skip,
    /// It is refused.
    Reject,
}

/// What counts while there is no lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Fallback {
    /// The safe capacity last told for the resource; as long as it is unknown, requests pass.
    #[default]
    Safe,
    /// Requests pass.
    Optimistic,
    /// Requests are refused, or wait for a lease.
    Pessimistic,
}

/// As it comes: what belongs to another action is refused like what nobody knows, which a tagged enum would pass over.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenOnLimit {
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

impl TryFrom<WrittenOnLimit> for OnLimit {
    type Error = &'static str;

    fn try_from(written: WrittenOnLimit) -> Result<Self, Self::Error> {
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

fn one() -> Capacity {
    Capacity::saturating(1.0)
}

fn one_second() -> Seconds {
    Seconds::saturating(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_in_what_is_left_out() {
        let rule: Rule =
            serde_json::from_str(r#"{"name":"all","service":"*","resource":"api"}"#).unwrap();
        assert_eq!((rule.cost.get(), rule.burst.get()), (1.0, 1.0));
        assert_eq!(rule.on_limit, OnLimit::Reject);
        assert_eq!(rule.on_missing_key, OnMissingKey::Shared);
        assert_eq!(rule.fallback, Fallback::Safe);
        assert_eq!((rule.unit, rule.priority), (Unit::Rate, 0));
    }

    #[test]
    fn reads_what_it_writes() {
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
    fn refuses_what_it_does_not_know() {
        for rule in [
            r#"{"name":"all","service":"*","resource":"api","when":"night"}"#,
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
