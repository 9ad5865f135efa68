//! Resources shared by rules or with limits in code.

use super::*;

#[tokio::test(start_paused = true)]
async fn rules_on_one_resource_share_its_tokens() {
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
    it.apply("1", [low.clone(), high]);
    assert_eq!(it.pass("/a", 20).await, 5, "each request spends two");
    assert_eq!(it.registry.known("api").priority(), 3);
    it.apply("2", [low]);
    assert_eq!(it.registry.known("api").priority(), -1);
}

fn priorities(it: &Followed, resource: &str) -> Vec<i32> {
    let bands = it.registry.known(resource).current_bands();
    let bands = bands.iter().flat_map(|bands| bands.iter());
    bands.map(|band| band.priority).collect()
}

#[tokio::test(start_paused = true)]
async fn rules_of_several_priorities_have_bands() {
    for (key, resource) in [("api", "api"), ("api/{method}", "api/GET")] {
        let it = Followed::new(10.0, []);
        let of = |path: &str, priority| Rule {
            priority,
            path: Some(path.to_owned()),
            ..rule(path, key)
        };
        for (version, rules, expected) in [
            (
                "1",
                vec![of("/a", -1), of("/b", 3), of("/c", -1)],
                vec![3, -1],
            ),
            (
                "2",
                vec![of("/a", -1), of("/b", 7), of("/c", 2)],
                vec![7, 2, -1],
            ),
            ("3", vec![of("/a", 4), of("/b", 4), of("/c", 4)], vec![]),
            ("4", vec![of("/c", 1), of("/b", 8)], vec![8, 1]),
            ("5", vec![of("/b", 8)], vec![]),
        ] {
            it.apply(version, rules);
            advance(10 * SECOND).await;
            let mut passed = 0;
            for path in ["/a", "/b", "/c"] {
                passed += it.pass(path, 2).await;
            }
            assert_eq!(passed, 6, "{key} {version}");
            assert_eq!(priorities(&it, resource), expected, "{key} {version}");
        }
    }
}

fn priority(it: &Followed, resource: &str) -> i32 {
    it.registry.known(resource).priority()
}

#[tokio::test(start_paused = true)]
async fn rule_priority_applies_while_its_rule_exists() {
    for (key, resource) in [("api", "api"), ("api/{method}", "api/GET")] {
        let in_code = Limit::rate(Key::template(key).unwrap()).priority(1);
        let it = Followed::new(10.0, [in_code]);
        for (version, stated, expected) in [("1", 5, 5), ("2", 3, 3), ("3", 0, 1), ("4", 7, 7)] {
            let priority_of = Rule {
                priority: stated,
                ..rule("all", key)
            };
            it.apply(version, [priority_of]);
            it.pass("/", 1).await;
            assert_eq!(priority(&it, resource), expected, "{key} {version}");
        }
        it.apply("5", []);
        assert_eq!(priority(&it, resource), 1, "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn code_limit_priority_outlasts_rules() {
    for (key, resource) in [("api", "api"), ("api/{method}", "api/GET")] {
        let it = Followed::new(10.0, []);
        let of = |priority| Rule {
            priority,
            ..rule("all", key)
        };
        it.apply("1", [of(2)]);
        it.pass("/", 1).await;
        let in_code = Limit::rate(Key::template(key).unwrap()).priority(-1);
        let layer = LimitLayer::new(Arc::clone(&it.registry), Callers::new(), [in_code]);
        let request = Request::new(());
        let _permit = layer.try_admit(&crate::RequestHead::of(&request)).unwrap();
        for (version, rules, expected) in [
            ("2", vec![of(3)], 3),
            ("3", vec![of(-5)], -1),
            ("4", vec![of(4)], 4),
            ("5", vec![], -1),
            ("6", vec![of(6)], 6),
        ] {
            it.apply(version, rules);
            it.pass("/", 1).await;
            assert_eq!(priority(&it, resource), expected, "{key} {version}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn code_limit_settings_win_over_rules() {
    let in_code = Limit::rate(Key::template("api/{method}").unwrap())
        .burst(2 * SECOND)
        .fallback(Fallback::Optimistic);
    let it = Followed::new(10.0, [in_code]);
    assert_eq!(it.pass("/", 1).await, 1);
    it.apply("1", [rule("all", "api/{method}")]);
    advance(10 * SECOND).await;
    assert_eq!(it.pass("/", 40).await, 10, "twenty tokens, two per request");
}
