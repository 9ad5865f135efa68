//! Layers that follow rules, as the rules change.

use std::time::Duration;

use doorman_openapi::{Capacity, OnLimit as Told, OnMissingKey, Rule, Seconds};
use http::{HeaderValue, Request};
use tokio::time::advance;
use tower_layer::Layer as _;

use super::testing::{rule, told};
use super::*;
use crate::{
    Callers, Fallback, Key, Limit, LimitLayer, LimitService, Refusal, clock,
    limiter::{
        Standing,
        testing::{given, leasing},
    },
    testing::{Answer, Inner, send},
};

const SECOND: Duration = Duration::from_secs(1);

/// A layer that follows the rules, of resources that admit so much a second each.
struct Followed {
    rules: Arc<Rules>,
    registry: Arc<Registry>,
    service: LimitService<Inner>,
}

impl Followed {
    fn new(rate: f64, in_code: impl IntoIterator<Item = Limit>) -> Self {
        Self::of(given(move |_| Standing::Fixed { rate }), in_code)
    }

    fn of(registry: Arc<Registry>, in_code: impl IntoIterator<Item = Limit>) -> Self {
        let rules = Arc::new(Rules::default());
        let layer = LimitLayer::new(Arc::clone(&registry), Callers::new(), in_code);
        Self {
            service: layer
                .with_rules(Arc::clone(&rules))
                .and_rules()
                .layer(Inner),
            registry,
            rules,
        }
    }

    fn told(&self, version: &str, rules: impl Into<Vec<Rule>>) -> Option<Change> {
        let told = told(version, rules);
        self.rules.take_up(told, &self.registry).unwrap()
    }

    fn refused(&self, version: &str, rules: impl Into<Vec<Rule>>) -> String {
        let told = told(version, rules);
        self.rules
            .take_up(told, &self.registry)
            .unwrap_err()
            .to_string()
    }

    async fn get(&self, path: &str) -> Answer {
        send(&self.service, Request::get(path).body(()).unwrap()).await
    }

    /// How many of so many requests pass.
    async fn pass(&self, path: &str, requests: u32) -> u32 {
        let mut passed = 0;
        for _ in 0..requests {
            passed += u32::from(self.get(path).await.status() == 200);
        }
        passed
    }
}

fn limit_of(answer: &Answer) -> &str {
    answer.extensions().get::<Refusal>().unwrap().limit()
}

#[tokio::test(start_paused = true)]
async fn without_rules_only_the_limits_in_code_count() {
    let it = Followed::new(10.0, [Limit::rate("api")]);
    assert_eq!(it.pass("/", 20).await, 10);
    assert_eq!(limit_of(&it.get("/").await), "api");
}

#[tokio::test(start_paused = true)]
async fn rules_count_from_when_they_are_known_until_they_are_gone() {
    let it = Followed::new(10.0, []);
    assert_eq!(it.pass("/a", 20).await, 20);
    let a = Rule {
        path: Some("/a".to_owned()),
        ..rule("a", "api")
    };
    let change = it.told("1", [a]).unwrap();
    assert_eq!((change.version.as_str(), change.applied), ("1", 1));
    assert_eq!(it.pass("/a", 20).await, 10);
    assert_eq!(it.pass("/b", 20).await, 20);
    it.told("2", []);
    assert_eq!(it.pass("/a", 20).await, 20);
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_comes_later_follows_the_same_rules() {
    let it = Followed::new(10.0, []);
    it.told("1", [rule("all", "api")]);
    let late = LimitLayer::new(Arc::clone(&it.registry), Callers::new(), [])
        .with_rules(Arc::clone(&it.rules))
        .and_rules()
        .layer(Inner);
    assert_eq!(it.pass("/", 6).await, 6);
    let mut passed = 0;
    for _ in 0..6 {
        passed += u32::from(send(&late, Request::new(())).await.status() == 200);
    }
    assert_eq!(passed, 4, "they share the resource");
}

#[tokio::test(start_paused = true)]
async fn rules_and_limits_in_code_are_all_or_nothing() {
    let registry = given(|resource| Standing::Fixed {
        rate: match resource.as_str() {
            "narrow" => 1.0,
            _ => 10.0,
        },
    });
    let it = Followed::of(registry, [Limit::rate("code")]);
    it.told("1", [rule("wide", "wide"), rule("narrow", "narrow")]);
    assert_eq!(it.pass("/", 5).await, 1);
    assert_eq!(limit_of(&it.get("/").await), "narrow");
    for spared in ["code", "wide"] {
        assert_eq!(it.registry.known(spared).tally().admitted, 1.0, "{spared}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_rule_that_refuses_is_named_and_all_are_told_of() {
    let it = Followed::new(1.0, []);
    it.told("1", [rule("first", "a"), rule("second", "b")]);
    it.get("/").await;
    let answer = it.get("/").await;
    assert_eq!(limit_of(&answer), "first");
    let fields = answer.headers()["ratelimit"].to_str().unwrap();
    assert_eq!(fields, r#""first";r=0;t=1, "second";r=0;t=1"#);
}

#[tokio::test(start_paused = true)]
async fn what_is_exempt_is_spared_the_rules_behind_and_nothing_else() {
    let it = Followed::new(10.0, [Limit::rate("code")]);
    let exempt = Rule {
        path: Some("/healthz".to_owned()),
        resource: None,
        on_limit: Told::Exempt,
        ..rule("health", "-")
    };
    it.told(
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
async fn a_rule_says_what_a_request_costs_and_what_becomes_of_it() {
    let it = Followed::new(10.0, []);
    let dear = Rule {
        cost: Capacity::new(5.0).unwrap(),
        ..rule("dear", "dear")
    };
    it.told("1", [dear]);
    assert_eq!(it.pass("/", 4).await, 2);

    let shadow = Rule {
        on_limit: Told::Shadow,
        ..rule("shadow", "shadow")
    };
    it.told("2", [shadow]);
    assert_eq!(it.pass("/", 15).await, 15);
    assert_eq!(it.registry.known("shadow").tally().refused, 5.0);

    let delay = Rule {
        on_limit: Told::Delay {
            max_delay: Seconds::new(0.25).unwrap(),
        },
        ..rule("delay", "delay")
    };
    it.told("3", [delay]);
    assert_eq!(it.pass("/", 10).await, 10);
    let before = clock::now();
    assert_eq!(it.pass("/", 1).await, 1);
    assert_eq!(clock::now().since(before), SECOND / 10);
}

#[tokio::test(start_paused = true)]
async fn callers_are_told_apart_and_those_who_cannot_be_are_treated_as_the_rule_says() {
    let it = Followed::new(1.0, []);
    let per_tenant = |on_missing_key| Rule {
        on_missing_key,
        ..rule("per-tenant", "tenant/{header:x-tenant}")
    };
    it.told("1", [per_tenant(OnMissingKey::Shared)]);
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
    it.told("2", [per_tenant(OnMissingKey::Skip)]);
    assert_eq!(it.pass("/", 3).await, 3);
    it.told("3", [per_tenant(OnMissingKey::Reject)]);
    assert_eq!(it.get("/").await.status(), 400);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_rule_reaches_the_limiters_that_there_are() {
    let it = Followed::new(10.0, []);
    let with_burst = |seconds: f64| Rule {
        burst: Seconds::new(seconds).unwrap(),
        ..rule("all", "api/{method}")
    };
    it.told("1", [with_burst(2.0)]);
    assert_eq!(it.pass("/", 40).await, 20);
    it.told("2", [with_burst(0.5)]);
    advance(10 * SECOND).await;
    assert_eq!(it.pass("/", 40).await, 5);
    // Under another name it is the same resource.
    let renamed = Rule {
        priority: 7,
        ..rule("renamed", "api/{method}")
    };
    it.told("3", [renamed]);
    advance(10 * SECOND).await;
    assert_eq!(it.pass("/", 40).await, 10);
    assert_eq!(it.registry.known("api/GET").priority(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_case_of_a_headers_name_is_none() {
    let it = Followed::new(10.0, []);
    let by = |name: &str, burst: f64| Rule {
        burst: Seconds::new(burst).unwrap(),
        ..rule("all", &format!("api/{{header:{name}}}"))
    };
    it.told("1", [by("X-Tenant", 2.0)]);
    assert_eq!(it.pass("/", 40).await, 20);
    it.told("2", [by("x-tenant", 0.5)]);
    advance(10 * SECOND).await;
    assert_eq!(it.pass("/", 40).await, 5);
}

#[tokio::test(start_paused = true)]
async fn two_rules_on_one_resource_share_its_tokens() {
    let it = Followed::new(10.0, []);
    let low = Rule {
        priority: -1,
        ..rule("one", "api")
    };
    let high = Rule {
        priority: 3,
        path: Some("/a".to_owned()),
        ..rule("two", "api")
    };
    it.told("1", [low.clone(), high]);
    assert_eq!(it.pass("/a", 20).await, 5, "each takes one for each");
    assert_eq!(it.registry.known("api").priority(), 3);
    it.told("2", [low]);
    assert_eq!(it.registry.known("api").priority(), -1);
}

fn priority(it: &Followed, resource: &str) -> i32 {
    it.registry.known(resource).priority()
}

#[tokio::test(start_paused = true)]
async fn a_priority_counts_beside_that_of_a_limit_in_code_as_long_as_its_rule_says_it() {
    for (key, resource) in [("api", "api"), ("api/{method}", "api/GET")] {
        let in_code = Limit::rate(Key::template(key).unwrap()).priority(1);
        let it = Followed::new(10.0, [in_code]);
        for (version, stated, expected) in [("1", 5, 5), ("2", 3, 3), ("3", 0, 1), ("4", 7, 7)] {
            let priority_of = Rule {
                priority: stated,
                ..rule("all", key)
            };
            it.told(version, [priority_of]);
            it.pass("/", 1).await;
            assert_eq!(priority(&it, resource), expected, "{key} {version}");
        }
        it.told("5", []);
        assert_eq!(priority(&it, resource), 1, "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_priority_of_a_limit_in_code_outlasts_every_rule_before_it() {
    for (key, resource) in [("api", "api"), ("api/{method}", "api/GET")] {
        let it = Followed::new(10.0, []);
        let of = |priority| Rule {
            priority,
            ..rule("all", key)
        };
        it.told("1", [of(2)]);
        it.pass("/", 1).await;
        let in_code = Limit::rate(Key::template(key).unwrap()).priority(-1);
        let layer = LimitLayer::new(Arc::clone(&it.registry), Callers::new(), [in_code]);
        let request = Request::new(());
        layer.try_admit(&crate::RequestHead::of(&request)).unwrap();
        for (version, rules, expected) in [
            ("2", vec![of(3)], 3),
            ("3", vec![of(-5)], -1),
            ("4", vec![of(4)], 4),
            ("5", vec![], -1),
            ("6", vec![of(6)], 6),
        ] {
            it.told(version, rules);
            it.pass("/", 1).await;
            assert_eq!(priority(&it, resource), expected, "{key} {version}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_resource_of_a_rule_stays_as_long_as_the_rule() {
    let (registry, _nudges) = leasing(10);
    let it = Followed::of(registry, [Limit::rate("code")]);
    it.told("1", [rule("a", "a"), rule("b", "b"), rule("code", "code")]);
    let [a, b, code] = ["a", "b", "code"].map(|id| it.registry.known(id));
    it.told("2", [rule("b", "b")]);
    assert!(it.registry.forget(&a));
    assert!(!it.registry.forget(&b), "a rule names it");
    assert!(!it.registry.forget(&code), "the program names it");
    it.told("3", [rule("a", "a")]);
    assert!(!it.registry.forget(&it.registry.known("a")));
    assert!(it.registry.forget(&b));
}

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

#[tokio::test(start_paused = true)]
async fn a_limit_in_code_has_the_say_over_a_resource_that_both_have() {
    let in_code = Limit::rate(Key::template("api/{method}").unwrap())
        .burst(2 * SECOND)
        .fallback(Fallback::Optimistic);
    let it = Followed::new(10.0, [in_code]);
    assert_eq!(it.pass("/", 1).await, 1);
    it.told("1", [rule("all", "api/{method}")]);
    advance(10 * SECOND).await;
    assert_eq!(
        it.pass("/", 40).await,
        10,
        "twenty, and each takes one for each"
    );
}

#[tokio::test(start_paused = true)]
async fn the_same_version_changes_nothing() {
    let it = Followed::new(10.0, []);
    assert!(it.told("1", [rule("all", "api")]).is_some());
    it.rules.are_missed("nobody answers".to_owned());
    assert!(it.told("1", [rule("all", "api")]).is_none());
    assert_eq!(it.rules.snapshot().unwrap().error, None);
}
