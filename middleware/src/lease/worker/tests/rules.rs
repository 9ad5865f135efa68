//! The rules are fetched, followed as they change, and kept while they cannot be had.

use bytes::Bytes;
use doorman_openapi::{Rule, RulesResponse, paths};
use http::{Response, header};
use serde_json::json;

use super::*;
use crate::{
    RulesSnapshot,
    rules::testing::{rule, told},
    testing::Inner,
};
use tower_layer::Layer as _;

/// Leases as much as is wanted, and tells these rules.
fn tells(told: RulesResponse) -> impl FnMut(&Call) -> Reply + Send + 'static {
    let mut leases = grants(10.0);
    move |call| match call.path.as_str() {
        paths::RULES => rules(call, &told),
        _ => leases(call),
    }
}

fn rules(call: &Call, told: &RulesResponse) -> Reply {
    let tag = format!("\"{}\"", told.version);
    let response = Response::builder().header(header::ETAG, &tag);
    let response = if call.if_none_match.as_deref() == Some(&tag) {
        response.status(304).body(Bytes::new())
    } else {
        response.body(serde_json::to_vec(told).unwrap().into())
    };
    Reply::Is(response.unwrap())
}

fn questions(plane: &Plane) -> Vec<Call> {
    let calls = plane.calls().into_iter();
    calls.filter(|call| call.path == paths::RULES).collect()
}

fn snapshot(doorman: &Doorman) -> RulesSnapshot {
    doorman.snapshot().rules.unwrap()
}

fn version(doorman: &Doorman) -> Option<String> {
    snapshot(doorman).version
}

async fn passed(layer: &crate::LimitLayer, requests: u32) -> u32 {
    let service = layer.layer(Inner);
    let mut passed = 0;
    for _ in 0..requests {
        passed += u32::from(crate::testing::status(&service).await == 200);
    }
    passed
}

#[tokio::test(start_paused = true)]
async fn rules_are_fetched_once_somebody_follows_them_and_ready_waits_for_them() {
    let plane = Plane::new(tells(told("1", [rule("all", "api")])));
    let (doorman, _worker) = run(builder().service("a b/ü"), &plane);
    doorman.ready(SECOND).await.unwrap();
    sleep(60 * SECOND).await;
    assert_eq!(questions(&plane).len(), 0);
    assert_eq!(doorman.snapshot().rules, None);

    let layer = doorman.rules();
    doorman.ready(SECOND).await.unwrap();
    assert_eq!(version(&doorman).as_deref(), Some("1"));
    assert_eq!(held(&doorman, "api"), Some(10.0));
    assert_eq!(questions(&plane)[0].query, "service=a%20b%2F%C3%BC");
    assert_eq!(passed(&layer, 20).await, 10);
}

#[tokio::test(start_paused = true)]
async fn they_are_asked_for_every_ten_seconds_by_their_tag() {
    let plane = Plane::new(tells(told("1", [rule("all", "api")])));
    let (doorman, _worker) = run(builder(), &plane);
    let _layer = doorman.rules();
    sleep(120 * SECOND).await;
    let questions = questions(&plane);
    assert!((11..=14).contains(&questions.len()), "{}", questions.len());
    assert_eq!(questions[0].if_none_match, None);
    for pair in questions.windows(2) {
        assert_eq!(pair[1].if_none_match.as_deref(), Some("\"1\""));
        let apart = pair[1].at.seconds_since(pair[0].at);
        assert!((9.0..=11.01).contains(&apart), "{apart}");
    }
    assert_eq!(
        version(&doorman).as_deref(),
        Some("1"),
        "304 changes nothing"
    );
}

#[tokio::test(start_paused = true)]
async fn a_change_is_followed_by_layers_that_are_worn_already() {
    let plane = Plane::new(tells(told("1", [rule("all", "api")])));
    let (doorman, _worker) = run(builder(), &plane);
    let layer = doorman.rules();
    doorman.ready(SECOND).await.unwrap();
    assert_eq!(passed(&layer, 20).await, 10);
    plane.now(tells(told("2", [])));
    sleep(12 * SECOND).await;
    assert_eq!(passed(&layer, 100).await, 100);
    plane.now(tells(told("3", [rule("all", "api")])));
    sleep(12 * SECOND).await;
    assert_eq!(passed(&layer, 20).await, 10);
}

/// Leases as before, and answers the question for rules so.
fn answers(mut rules: impl FnMut() -> Reply + Send + 'static) -> impl FnMut(&Call) -> Reply + Send {
    let mut leases = grants(10.0);
    move |call| match call.path.as_str() {
        paths::RULES => rules(),
        _ => leases(call),
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_good_rules_stay_through_an_outage_and_through_nonsense() {
    let plane = Plane::new(tells(told("1", [rule("all", "api")])));
    let (doorman, _worker) = run(builder(), &plane);
    let layer = doorman.rules();
    doorman.ready(SECOND).await.unwrap();
    let stays = async |word: &str| {
        sleep(30 * SECOND).await;
        let now = snapshot(&doorman);
        assert_eq!(now.version.as_deref(), Some("1"), "{word}");
        let error = now.error.unwrap();
        assert!(error.contains(word), "{error}");
        assert_eq!(passed(&layer, 20).await, 10, "{word}");
    };
    plane.now(answers(|| Reply::Breaks));
    stays("connection refused").await;
    plane.now(answers(|| Reply::json(404, &json!({}))));
    stays("answers 404").await;
    plane.now(answers(|| Reply::json(200, &json!({"version": "2"}))));
    stays("missing field `rules`").await;
    let unknown = || told("2", [rule("all", "{asn}")]);
    plane.now(answers(move || Reply::json(200, &unknown())));
    stays("{asn}").await;
    let mut newer = json!(told("2", [rule("all", "other")]));
    newer["rules"][0]["weather"] = json!("rain");
    plane.now(answers(move || Reply::json(200, &newer)));
    stays("weather").await;

    plane.now(tells(told("2", [])));
    sleep(12 * SECOND).await;
    let now = snapshot(&doorman);
    assert_eq!((now.version.as_deref(), now.error), (Some("2"), None));
}

#[tokio::test(start_paused = true)]
async fn while_there_are_none_they_are_asked_for_soon_and_of_every_server() {
    let plane = Plane::new(|_| Reply::Breaks);
    let (doorman, _worker) = run(builder(), &plane);
    let _layer = doorman.rules();
    sleep(SECOND).await;
    let asked = questions(&plane);
    assert!(asked.len() >= 4, "{}", asked.len());
    assert_eq!((asked[0].host.as_str(), asked[1].host.as_str()), ("a", "b"));
    sleep(600 * SECOND).await;
    let before = questions(&plane).len();
    sleep(100 * SECOND).await;
    let rate = questions(&plane).len() - before;
    assert!(
        (18..=44).contains(&rate),
        "two servers, each five to ten seconds: {rate}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_cannot_be_followed_is_told_of() {
    let gauge = Rule {
        unit: doorman_openapi::Unit::Gauge,
        ..rule("in-flight", "db")
    };
    let plane = Plane::new(tells(told("1", [gauge, rule("all", "api")])));
    let (doorman, _worker) = run(builder(), &plane);
    let layer = doorman.rules();
    doorman.ready(SECOND).await.unwrap();
    assert_eq!(snapshot(&doorman).not_applied[0].rule, "in-flight");
    assert_eq!(passed(&layer, 20).await, 10);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_has_too_much_to_do_is_asked_for_them_when_it_says() {
    let mut refused = 0;
    let mut tells = tells(told("1", [rule("all", "api")]));
    let plane = Plane::new(move |call| {
        if call.path == paths::RULES && refused < 3 {
            refused += 1;
            let busy = Response::builder()
                .status(429)
                .header(header::RETRY_AFTER, "7");
            return Reply::Is(busy.body(Bytes::new()).unwrap());
        }
        tells(call)
    });
    let (doorman, _worker) = run(builder(), &plane);
    let _layer = doorman.rules();
    let began = clock::now();
    doorman.ready(60 * SECOND).await.unwrap();
    let took = clock::now().seconds_since(began);
    assert!((21.0..=32.0).contains(&took), "{took}");
    assert_eq!(questions(&plane).len(), 4);
    assert!(questions(&plane).iter().all(|call| call.host == "a"));
}
