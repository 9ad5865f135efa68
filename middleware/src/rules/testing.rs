//! Rules for tests.

use doorman_openapi::{Rule, RulesResponse};

/// A rule with only a name and a resource.
pub(crate) fn rule(name: &str, resource: &str) -> Rule {
    let text = serde_json::json!({"name": name, "service": "*", "resource": resource});
    serde_json::from_value(text).unwrap()
}

/// A response with these rules.
pub(crate) fn rules_response(version: &str, rules: impl Into<Vec<Rule>>) -> RulesResponse {
    RulesResponse {
        version: version.to_owned(),
        rules: rules.into(),
    }
}
