//! Rules for tests.

use doorman_openapi::{Rule, RulesResponse};

/// A rule that has but a name and a resource.
pub(crate) fn rule(name: &str, resource: &str) -> Rule {
    let text = serde_json::json!({"name": name, "service": "*", "resource": resource});
    serde_json::from_value(text).unwrap()
}

/// These rules, under this version.
pub(crate) fn told(version: &str, rules: impl Into<Vec<Rule>>) -> RulesResponse {
    RulesResponse {
        version: version.to_owned(),
        rules: rules.into(),
    }
}
