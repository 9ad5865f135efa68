//! Layers of rules that do not come from the control plane.

use super::*;
use crate::{Doorman, RequestHead};

fn admits(layer: &LimitLayer, path: &str) -> bool {
    let request = Request::get(path).body(()).unwrap();
    layer.try_admit(&RequestHead::of(&request)).is_ok()
}

#[test]
fn fixed_rules_mean_the_same_as_followed_ones() {
    let doorman = Doorman::fixed([("a", 1.0)]);
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
    let layer = doorman.fixed_rules(&[exempt, limited, rule("none", "b")]);
    let layer = layer.unwrap();
    assert!(admits(&layer, "/healthz"));
    // The second resource is blocked, and the first one not spent.
    assert!(!admits(&layer, "/orders/7"));
    let next = doorman.fixed_rules(&[rule("orders", "a")]).unwrap();
    drop(layer);
    assert!(admits(&next, "/") && !admits(&next, "/"));
}

#[test]
fn invalid_fixed_rules_are_rejected() {
    let doorman = Doorman::unlimited();
    let twice = [rule("a", "x"), rule("a", "y")];
    let error = doorman.fixed_rules(&twice).map(drop).unwrap_err();
    assert_eq!(error.to_string(), "rule `a` has a duplicate name");
}
