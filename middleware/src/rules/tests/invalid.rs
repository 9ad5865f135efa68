//! Invalid and unsupported rules.

use super::*;

#[tokio::test(start_paused = true)]
async fn invalid_rules_never_replace_valid_ones() {
    let it = Followed::new(10.0, []);
    it.apply("1", [rule("all", "api")]);
    let bad = [
        Rule {
            resource: None,
            ..rule("bad", "x")
        },
        rule("bad", "{asn}"),
        rule("bad", "{method}{route}"),
        rule("bad", ""),
        Rule {
            path: Some("/{".to_owned()),
            ..rule("bad", "x")
        },
        Rule {
            methods: Some(vec!["a b".to_owned()]),
            ..rule("bad", "x")
        },
        Rule {
            cost: Capacity::ZERO,
            ..rule("bad", "x")
        },
        rule("all", "x"),
    ];
    for bad in bad {
        let name = bad.name.clone();
        let error = it.error("2", [rule("all", "other"), bad]);
        assert!(error.contains(&format!("rule `{name}`")), "{error}");
        assert_eq!(it.rules.snapshot().unwrap().version.as_deref(), Some("1"));
    }
    let many: Vec<_> = (0..=doorman_openapi::MAX_RULES)
        .map(|index| rule(&index.to_string(), "x"))
        .collect();
    assert!(it.error("2", many).contains("more than 1000"));
    assert_eq!(it.pass("/", 20).await, 10);
}

#[tokio::test(start_paused = true)]
async fn rule_of_another_unit_than_its_resource_is_reported_and_the_rest_applied() {
    let it = Followed::new(10.0, []);
    let gauge = Rule {
        unit: doorman_openapi::Unit::Gauge,
        ..rule("in-flight", "api")
    };
    let change = it.apply("1", [rule("all", "api"), gauge]).unwrap();
    assert_eq!((change.applied, change.not_applied.len()), (1, 1));
    let snapshot = it.rules.snapshot().unwrap();
    let [not_applied] = &snapshot.not_applied[..] else {
        panic!("{snapshot:?}");
    };
    assert_eq!(not_applied.rule, "in-flight");
    assert_eq!(
        not_applied.reason,
        "its unit is gauge, but this process already limits its resource as a rate"
    );
    assert_eq!(it.pass("/", 20).await, 10);
}
