//! Effects of rules on requests.

use super::*;

#[tokio::test(start_paused = true)]
async fn without_rules_only_code_limits_apply() {
    let it = Followed::new(10.0, [Limit::rate("api")]);
    assert_eq!(it.pass("/", 20).await, 10);
    assert_eq!(limit_of(&it.get("/").await), "api");
}

#[tokio::test(start_paused = true)]
async fn rules_and_code_limits_are_all_or_nothing() {
    let registry = static_registry(|resource| LeaseState::Fixed {
        rate: match resource.as_str() {
            "narrow" => 1.0,
            _ => 10.0,
        },
    });
    let it = Followed::of(registry, [Limit::rate("code")]);
    it.apply("1", [rule("wide", "wide"), rule("narrow", "narrow")]);
    assert_eq!(it.pass("/", 5).await, 1);
    assert_eq!(limit_of(&it.get("/").await), "narrow");
    for spared in ["code", "wide"] {
        assert_eq!(it.registry.known(spared).tally().admitted, 1.0, "{spared}");
    }
}

#[tokio::test(start_paused = true)]
async fn first_rejecting_rule_is_named() {
    let it = Followed::new(1.0, []);
    it.apply("1", [rule("first", "a"), rule("second", "b")]);
    it.get("/").await;
    let answer = it.get("/").await;
    assert_eq!(limit_of(&answer), "first");
    let fields = answer.headers()["ratelimit"].to_str().unwrap();
    assert_eq!(fields, r#""first";r=0;t=1, "second";r=0;t=1"#);
}

#[tokio::test(start_paused = true)]
async fn exemption_skips_only_later_rules() {
    let it = Followed::new(10.0, [Limit::rate("code")]);
    let exempt = Rule {
        path: Some("/healthz".to_owned()),
        resource: None,
        on_limit: WireOnLimit::Exempt,
        ..rule("health", "-")
    };
    it.apply(
        "1",
        [rule("before", "before"), exempt, rule("behind", "behind")],
    );
    assert_eq!(it.get("/healthz").await.status(), 200);
    assert_eq!(it.get("/").await.status(), 200);
    for (resource, spent) in [("code", 2.0), ("before", 2.0), ("behind", 1.0)] {
        assert_eq!(
            it.registry.known(resource).tally().admitted,
            spent,
            "{resource}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn rule_sets_cost_and_action() {
    let it = Followed::new(10.0, []);
    let dear = Rule {
        cost: Capacity::new(5.0).unwrap(),
        ..rule("dear", "dear")
    };
    it.apply("1", [dear]);
    assert_eq!(it.pass("/", 4).await, 2);

    let shadow = Rule {
        on_limit: WireOnLimit::Shadow,
        ..rule("shadow", "shadow")
    };
    it.apply("2", [shadow]);
    assert_eq!(it.pass("/", 15).await, 15);
    assert_eq!(it.registry.known("shadow").tally().refused, 5.0);

    let delay = Rule {
        on_limit: WireOnLimit::Delay {
            max_delay: Seconds::new(0.25).unwrap(),
        },
        ..rule("delay", "delay")
    };
    it.apply("3", [delay]);
    assert_eq!(it.pass("/", 10).await, 10);
    let before = clock::now();
    assert_eq!(it.pass("/", 1).await, 1);
    assert_eq!(clock::now().since(before), SECOND / 10);
}

#[tokio::test(start_paused = true)]
async fn rule_keys_callers_and_handles_missing_keys() {
    let it = Followed::new(1.0, []);
    let per_tenant = |on_missing_key| Rule {
        on_missing_key,
        ..rule("per-tenant", "tenant/{header:x-tenant}")
    };
    it.apply("1", [per_tenant(OnMissingKey::Shared)]);
    for (tenant, status) in [("a", 200), ("b", 200), ("a", 429)] {
        let mut request = Request::new(());
        let value = HeaderValue::from_static(tenant);
        request.headers_mut().insert("x-tenant", value);
        assert_eq!(
            send(&it.service, request).await.status(),
            status,
            "{tenant}"
        );
    }
    assert_eq!(it.pass("/", 3).await, 1);
    it.apply("2", [per_tenant(OnMissingKey::Skip)]);
    assert_eq!(it.pass("/", 3).await, 3);
    it.apply("3", [per_tenant(OnMissingKey::Reject)]);
    assert_eq!(it.get("/").await.status(), 400);
}

#[tokio::test(start_paused = true)]
async fn gauge_limits_what_is_in_flight() {
    let it = Followed::new(2.0, []);
    let gauge = Rule {
        unit: doorman_openapi::Unit::Gauge,
        fallback: Fallback::Pessimistic,
        ..rule("in-flight", "db")
    };
    it.apply("1", [gauge]).unwrap();
    let held = [it.get("/").await, it.get("/").await];
    let refused = it.get("/").await;
    assert_eq!(
        (refused.status().as_u16(), limit_of(&refused)),
        (429, "in-flight")
    );
    drop(held);
    assert_eq!(it.pass("/", 20).await, 20);
}
