use doorman_openapi::{
    Fallback, OnLimit, OnMissingKey, RuleOutcomes, Seconds, TargetHeaders, Unit,
};

use crate::Document;

fn parse(rules: &str) -> Document {
    let text = format!(
        "resources: [{{identifier_glob: '*', capacity: 1, algorithm: {{kind: STATIC}}}}]\nrules:\n{rules}"
    );
    Document::parse(&text).unwrap_or_else(|errors| panic!("{text}\n{errors}"))
}

const THREE: &str = "
- {name: health, service: '*', path: /healthz, on_limit: {action: exempt}}
- name: per-tenant
  service: 'orders*'
  methods: [GET, POST]
  path: '/v1/orders/{id}'
  resource: 'tenant/{jwt:sub}'
  unit: rate
  cost: 2
  burst: 0.5
  on_limit: {action: delay, max_delay: 0.25}
  on_missing_key: skip
  fallback: optimistic
  priority: -3
  outcomes: {headers: openai-tokens}
- {name: all, service: 'orders', resource: api}
";

#[test]
fn rules_are_read_with_defaults() {
    let document = parse(THREE);
    let [health, tenant, all] = document.rules() else {
        panic!("{document:?}");
    };
    let tenant = tenant.definition();
    assert_eq!(tenant.name.as_str(), "per-tenant");
    assert_eq!(
        tenant.methods.as_deref(),
        Some(&["GET".to_owned(), "POST".to_owned()][..])
    );
    assert_eq!(tenant.path.as_deref(), Some("/v1/orders/{id}"));
    assert_eq!(tenant.resource.as_deref(), Some("tenant/{jwt:sub}"));
    assert_eq!((tenant.cost.get(), tenant.burst.get()), (2.0, 0.5));
    let max_delay = Seconds::new(0.25).unwrap();
    assert_eq!(tenant.on_limit, OnLimit::Delay { max_delay });
    assert_eq!(tenant.on_missing_key, OnMissingKey::Skip);
    assert_eq!(tenant.fallback, Fallback::Optimistic);
    assert_eq!(tenant.priority, -3);
    let headers = TargetHeaders::OpenaiTokens;
    assert_eq!(tenant.outcomes, Some(RuleOutcomes { headers }));

    let all = all.definition();
    assert_eq!((&all.methods, &all.path), (&None, &None));
    assert_eq!((all.cost.get(), all.burst.get()), (1.0, 1.0));
    assert_eq!(all.on_limit, OnLimit::Reject);
    assert_eq!(all.on_missing_key, OnMissingKey::Shared);
    assert_eq!(
        (all.unit, all.fallback, all.priority),
        (Unit::Rate, Fallback::Safe, 0)
    );
    assert_eq!(all.outcomes, None);
    assert_eq!(health.definition().resource, None);
}

#[test]
fn fallback_of_a_gauge_is_pessimistic() {
    let document = parse(
        "- {name: a, service: s, resource: r, unit: gauge}\n- {name: b, service: s, resource: r, unit: gauge, fallback: safe}\n",
    );
    let fallbacks = document
        .rules()
        .iter()
        .map(|rule| rule.definition().fallback);
    assert_eq!(
        fallbacks.collect::<Vec<_>>(),
        [Fallback::Pessimistic, Fallback::Safe]
    );
}

#[test]
fn service_gets_its_rules_in_order() {
    let document = parse(THREE);
    let names = |service: &str| {
        let rules = document.rules_for(Some(service)).rules.into_iter();
        rules.map(|rule| rule.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names("orders"), ["health", "per-tenant", "all"]);
    assert_eq!(names("orders-eu"), ["health", "per-tenant"]);
    assert_eq!(names("shop"), ["health"]);
}

#[test]
fn service_version_depends_on_its_rules_only() {
    let before = parse(THREE);
    let after = parse(&THREE.replace("orders*", "orders?*"));
    let same = |service: &str| {
        before.rules_for(Some(service)).version == after.rules_for(Some(service)).version
    };
    assert_eq!(
        ["shop", "orders", "orders-eu"].map(same),
        [true, false, false]
    );
    assert_ne!(before.version(), after.version());
    assert_ne!(before, after);
}

#[test]
fn service_version_depends_on_order_and_content() {
    let rules = [
        "- {name: a, service: s, resource: r}\n",
        "- {name: b, service: s, resource: r}\n",
        "- {name: b, service: s, resource: r, cost: 2}\n",
    ];
    let version = |indices: &[usize]| {
        let text: String = indices.iter().map(|at| rules[*at]).collect();
        let document = parse(&text);
        assert_eq!(
            document.rules_version_for(Some("s")),
            document.rules_for(Some("s")).version
        );
        document.rules_version_for(Some("s"))
    };
    let versions = [
        version(&[0]),
        version(&[1]),
        version(&[0, 1]),
        version(&[1, 0]),
        version(&[0, 2]),
    ];
    let different: std::collections::HashSet<_> = versions.iter().collect();
    assert_eq!(different.len(), versions.len());
    assert_eq!(version(&[0, 1]), versions[2]);
}

#[test]
fn written_rules_parse_as_equal() {
    let document = parse(THREE);
    let written = serde_json::to_string(&document).unwrap();
    let again = Document::parse(&written).unwrap();
    assert_eq!(again, document);
    assert_eq!(again.version(), document.version());
    let response = document.rules_for(Some("orders"));
    let written = serde_json::to_string(&response).unwrap();
    assert_eq!(
        serde_json::from_str::<doorman_openapi::RulesResponse>(&written).unwrap(),
        response
    );
}
