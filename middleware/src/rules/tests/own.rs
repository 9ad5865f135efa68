//! Layers of rules that do not come from the control plane.

use super::*;
use crate::{Doorman, RequestHead};

fn admits(layer: &LimitLayer, path: &str) -> bool {
    let request = Request::get(path).body(()).unwrap();
    layer.try_admit(&RequestHead::of(&request)).is_ok()
}

#[test]
fn own_rules_mean_the_same_as_followed_ones() {
    let rules = Doorman::fixed([("a", 1.0)]).own_rules();
    let layer = rules.layer();
    let exempt = Rule {
        path: Some("/healthz".to_owned()),
        resource: None,
        on_limit: WireOnLimit::Exempt,
        ..rule("health", "a")
    };
    let limited = Rule {
        path: Some("/orders/{id}".to_owned()),
        ..rule("orders", "a")
    };
    rules
        .replace(&[exempt, limited, rule("none", "b")])
        .unwrap();
    assert!(admits(&layer, "/healthz"));
    // The second resource is blocked, and the first one not spent.
    assert!(!admits(&layer, "/orders/7"));
    rules.replace(&[rule("orders", "a")]).unwrap();
    assert!(admits(&layer, "/") && !admits(&layer, "/"));
}

#[tokio::test(start_paused = true)]
async fn replaced_own_rule_changes_its_burst() {
    let rules = Doorman::fixed([("a", 1.0)]).own_rules();
    let layer = rules.layer();
    let with_burst = |seconds: f64| Rule {
        burst: Seconds::new(seconds).unwrap(),
        ..rule("all", "a")
    };
    rules.replace(&[with_burst(1.0)]).unwrap();
    let admitted = || (0..9).filter(|_| admits(&layer, "/")).count();
    assert_eq!(admitted(), 1);
    rules.replace(&[with_burst(3.0)]).unwrap();
    advance(10 * SECOND).await;
    assert_eq!(admitted(), 3);
}

#[test]
fn invalid_own_rules_change_nothing() {
    let rules = Doorman::fixed([("a", 1.0)]).own_rules();
    let layer = rules.layer();
    rules.replace(&[rule("all", "a")]).unwrap();
    let twice = [rule("a", "x"), rule("a", "y")];
    let error = rules.replace(&twice).unwrap_err();
    assert_eq!(error.to_string(), "rule `a` has a duplicate name");
    assert!(admits(&layer, "/") && !admits(&layer, "/"));
}

#[test]
fn own_rule_of_another_unit_is_reported() {
    let rules = Doorman::fixed([("a", 1.0)]).own_rules();
    let gauge = Rule {
        unit: doorman_openapi::Unit::Gauge,
        ..rule("in-flight", "a")
    };
    let not_applied = rules.replace(&[rule("all", "a"), gauge]).unwrap();
    assert_eq!(not_applied[0].rule, "in-flight");
}
