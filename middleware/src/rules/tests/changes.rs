//! Changes of rules.

use super::*;

#[tokio::test(start_paused = true)]
async fn rules_apply_until_they_are_removed() {
    let it = Followed::new(10.0, []);
    assert_eq!(it.pass("/a", 20).await, 20);
    let a = Rule {
        path: Some("/a".to_owned()),
        ..rule("a", "api")
    };
    let change = it.apply("1", [a]).unwrap();
    assert_eq!((change.version.as_str(), change.applied), ("1", 1));
    assert_eq!(it.pass("/a", 20).await, 10);
    assert_eq!(it.pass("/b", 20).await, 20);
    it.apply("2", []);
    assert_eq!(it.pass("/a", 20).await, 20);
}

#[tokio::test(start_paused = true)]
async fn later_layer_follows_the_active_rules() {
    let it = Followed::new(10.0, []);
    it.apply("1", [rule("all", "api")]);
    let late = LimitLayer::new(Arc::clone(&it.registry), Callers::new(), [])
        .with_rules(Arc::clone(&it.rules))
        .and_rules()
        .layer(Inner);
    assert_eq!(it.pass("/", 6).await, 6);
    let mut passed = 0;
    for _ in 0..6 {
        passed += u32::from(send(&late, Request::new(())).await.status() == 200);
    }
    assert_eq!(passed, 4, "both share the resource");
}

#[tokio::test(start_paused = true)]
async fn changed_rule_reaches_existing_limiters() {
    let it = Followed::new(10.0, []);
    let with_burst = |seconds: f64| Rule {
        burst: Seconds::new(seconds).unwrap(),
        ..rule("all", "api/{method}")
    };
    it.apply("1", [with_burst(2.0)]);
    assert_eq!(it.pass("/", 40).await, 20);
    it.apply("2", [with_burst(0.5)]);
    advance(10 * SECOND).await;
    assert_eq!(it.pass("/", 40).await, 5);
    // The same resource under another name.
    let renamed = Rule {
        priority: 7,
        ..rule("renamed", "api/{method}")
    };
    it.apply("3", [renamed]);
    advance(10 * SECOND).await;
    assert_eq!(it.pass("/", 40).await, 10);
    assert_eq!(it.registry.known("api/GET").priority(), 7);
}

#[tokio::test(start_paused = true)]
async fn header_name_case_is_no_change() {
    let it = Followed::new(10.0, []);
    let by = |name: &str, burst: f64| Rule {
        burst: Seconds::new(burst).unwrap(),
        ..rule("all", &format!("api/{{header:{name}}}"))
    };
    it.apply("1", [by("X-Tenant", 2.0)]);
    assert_eq!(it.pass("/", 40).await, 20);
    it.apply("2", [by("x-tenant", 0.5)]);
    advance(10 * SECOND).await;
    assert_eq!(it.pass("/", 40).await, 5);
}

#[tokio::test(start_paused = true)]
async fn resource_is_retained_while_its_rule_exists() {
    let (registry, _nudges) = leased_registry(10);
    let it = Followed::of(registry, [Limit::rate("code")]);
    it.apply("1", [rule("a", "a"), rule("b", "b"), rule("code", "code")]);
    let [a, b, code] = ["a", "b", "code"].map(|id| it.registry.known(id));
    it.apply("2", [rule("b", "b")]);
    assert!(it.registry.forget(a));
    assert!(!it.registry.forget(b), "a rule names it");
    assert!(!it.registry.forget(code), "the program names it");
    it.apply("3", [rule("a", "a")]);
    assert!(!it.registry.forget(it.registry.known("a")));
    assert!(it.registry.forget(b));
}

#[tokio::test(start_paused = true)]
async fn same_version_changes_nothing() {
    let it = Followed::new(10.0, []);
    assert!(it.apply("1", [rule("all", "api")]).is_some());
    it.rules.set_error("no response".to_owned());
    assert!(it.apply("1", [rule("all", "api")]).is_none());
    assert_eq!(it.rules.snapshot().unwrap().error, None);
}

#[tokio::test(start_paused = true)]
async fn dropped_layers_are_forgotten() {
    let it = Followed::new(10.0, []);
    for _ in 0..100 {
        let layer = LimitLayer::new(Arc::clone(&it.registry), Callers::new(), []);
        drop(layer.with_rules(Arc::clone(&it.rules)).and_rules());
    }
    // The service's and the last one.
    assert_eq!(it.rules.state().layers.len(), 2);
}
