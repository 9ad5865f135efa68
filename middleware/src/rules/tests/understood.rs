//! What is not understood, and what cannot be followed.

use super::*;

#[tokio::test(start_paused = true)]
async fn what_is_not_understood_never_replaces_good_rules() {
    let it = Followed::new(10.0, []);
    it.told("1", [rule("all", "api")]);
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
        let why = it.refused("2", [rule("all", "other"), bad]);
        assert!(why.contains(&format!("the rule `{name}`")), "{why}");
        assert_eq!(it.rules.snapshot().unwrap().version.as_deref(), Some("1"));
    }
    let many: Vec<_> = (0..=doorman_openapi::MAX_RULES)
        .map(|index| rule(&index.to_string(), "x"))
        .collect();
    assert!(it.refused("2", many).contains("more than 1000"));
    assert_eq!(it.pass("/", 20).await, 10);
}

#[tokio::test(start_paused = true)]
async fn what_this_process_cannot_follow_is_said_and_the_rest_is_followed() {
    let it = Followed::new(10.0, []);
    let gauge = Rule {
        unit: doorman_openapi::Unit::Gauge,
        ..rule("in-flight", "db")
    };
    let change = it.told("1", [gauge, rule("all", "api")]).unwrap();
    assert_eq!((change.applied, change.not_applied.len()), (1, 1));
    let snapshot = it.rules.snapshot().unwrap();
    let [left_out] = &snapshot.not_applied[..] else {
        panic!("{snapshot:?}");
    };
    assert_eq!(left_out.rule, "in-flight");
    assert!(left_out.reason.contains("no gauges"), "{left_out:?}");
    assert_eq!(it.pass("/", 20).await, 10);
}
