//! Polling and application of rules.

use bytes::Bytes;
use doorman_openapi::{Rule, RulesResponse, paths};
use http::{Response, header};
use serde_json::json;

use super::*;
use crate::{
    RulesSnapshot,
    rules::testing::{rule, rules_response},
    testing::Inner,
};
use tower_layer::Layer as _;

/// Grants leases and serves these rules.
fn serves(response: RulesResponse) -> impl FnMut(&Received) -> Reply + Send + 'static {
    let mut leases = grants(10.0);
    move |call| match call.path.as_str() {
        paths::RULES => rules(call, &response),
        _ => leases(call),
    }
}

fn rules(call: &Received, rules: &RulesResponse) -> Reply {
    let tag = format!("\"{}\"", rules.version);
    let response = Response::builder().header(header::ETAG, &tag);
    let response = if call.if_none_match.as_deref() == Some(&tag) {
        response.status(304).body(Bytes::new())
    } else {
        response.body(serde_json::to_vec(rules).unwrap().into())
    };
    Reply::Response(response.unwrap())
}

fn polls(plane: &Plane) -> Vec<Received> {
    let calls = plane.calls().into_iter();
    calls.filter(|call| call.path == paths::RULES).collect()
}

fn snapshot(doorman: &Doorman) -> RulesSnapshot {
    doorman.snapshot().rules.unwrap()
}

fn version(doorman: &Doorman) -> Option<String> {
    snapshot(doorman).version
}

async fn admitted(layer: &crate::LimitLayer, requests: u32) -> u32 {
    let service = layer.layer(Inner);
    let mut admitted = 0;
    for _ in 0..requests {
        admitted += u32::from(crate::testing::status(&service).await == 200);
    }
    admitted
}

#[tokio::test(start_paused = true)]
async fn rules_are_fetched_once_followed_and_ready_waits() {
    let plane = Plane::new(serves(rules_response("1", [rule("all", "api")])));
    let (doorman, _worker) = run(builder().service("a b/ü"), &plane);
    doorman.ready(SECOND).await.unwrap();
    sleep(60 * SECOND).await;
    assert_eq!(polls(&plane).len(), 0);
    assert_eq!(doorman.snapshot().rules, None);

    let layer = doorman.rules();
    doorman.ready(SECOND).await.unwrap();
    assert_eq!(version(&doorman).as_deref(), Some("1"));
    assert_eq!(held(&doorman, "api"), Some(10.0));
    assert_eq!(polls(&plane)[0].query, "service=a%20b%2F%C3%BC");
    assert_eq!(admitted(&layer, 20).await, 10);
}

#[tokio::test(start_paused = true)]
async fn rules_are_polled_every_ten_seconds_with_etag() {
    let plane = Plane::new(serves(rules_response("1", [rule("all", "api")])));
    let (doorman, _worker) = run(builder(), &plane);
    let _layer = doorman.rules();
    sleep(120 * SECOND).await;
    let polls = polls(&plane);
    assert!((11..=14).contains(&polls.len()), "{}", polls.len());
    assert_eq!(polls[0].if_none_match, None);
    for pair in polls.windows(2) {
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
async fn changed_rules_reach_existing_layers() {
    let plane = Plane::new(serves(rules_response("1", [rule("all", "api")])));
    let (doorman, _worker) = run(builder(), &plane);
    let layer = doorman.rules();
    doorman.ready(SECOND).await.unwrap();
    assert_eq!(admitted(&layer, 20).await, 10);
    plane.set(serves(rules_response("2", [])));
    sleep(12 * SECOND).await;
    assert_eq!(admitted(&layer, 100).await, 100);
    plane.set(serves(rules_response("3", [rule("all", "api")])));
    sleep(12 * SECOND).await;
    assert_eq!(admitted(&layer, 20).await, 10);
}

/// Grants leases and answers polls for rules.
fn answers(
    mut rules: impl FnMut() -> Reply + Send + 'static,
) -> impl FnMut(&Received) -> Reply + Send {
    let mut leases = grants(10.0);
    move |call| match call.path.as_str() {
        paths::RULES => rules(),
        _ => leases(call),
    }
}

#[tokio::test(start_paused = true)]
async fn last_valid_rules_survive_outage_and_invalid_responses() {
    let plane = Plane::new(serves(rules_response("1", [rule("all", "api")])));
    let (doorman, _worker) = run(builder(), &plane);
    let layer = doorman.rules();
    doorman.ready(SECOND).await.unwrap();
    let stays = async |word: &str| {
        sleep(30 * SECOND).await;
        let now = snapshot(&doorman);
        assert_eq!(now.version.as_deref(), Some("1"), "{word}");
        let error = now.error.unwrap();
        assert!(error.contains(word), "{error}");
        assert_eq!(admitted(&layer, 20).await, 10, "{word}");
    };
    plane.set(answers(|| Reply::Disconnect));
    stays("connection refused").await;
    plane.set(answers(|| Reply::json(404, &json!({}))));
    stays("responded 404").await;
    plane.set(answers(|| Reply::json(200, &json!({"version": "2"}))));
    stays("missing field `rules`").await;
    let unknown = || rules_response("2", [rule("all", "{asn}")]);
    plane.set(answers(move || Reply::json(200, &unknown())));
    stays("{asn}").await;
    let mut newer = json!(rules_response("2", [rule("all", "other")]));
    newer["rules"][0]["weather"] = json!("rain");
    plane.set(answers(move || Reply::json(200, &newer)));
    stays("weather").await;

    plane.set(serves(rules_response("2", [])));
    sleep(12 * SECOND).await;
    let now = snapshot(&doorman);
    assert_eq!((now.version.as_deref(), now.error), (Some("2"), None));
}

#[tokio::test(start_paused = true)]
async fn missing_rules_are_retried_soon_at_every_server() {
    let plane = Plane::new(|_| Reply::Disconnect);
    let (doorman, _worker) = run(builder(), &plane);
    let _layer = doorman.rules();
    sleep(SECOND).await;
    let asked = polls(&plane);
    assert!(asked.len() >= 4, "{}", asked.len());
    assert_eq!((asked[0].host.as_str(), asked[1].host.as_str()), ("a", "b"));
    sleep(600 * SECOND).await;
    let before = polls(&plane).len();
    sleep(100 * SECOND).await;
    let rate = polls(&plane).len() - before;
    assert!(
        (14..=66).contains(&rate),
        "two servers after each pause of up to ten seconds, 40 on average: {rate}"
    );
}

#[tokio::test(start_paused = true)]
async fn rule_that_cannot_be_applied_is_reported() {
    let gauge = Rule {
        unit: doorman_openapi::Unit::Gauge,
        ..rule("in-flight", "api")
    };
    let plane = Plane::new(serves(rules_response("1", [rule("all", "api"), gauge])));
    let (doorman, _worker) = run(builder(), &plane);
    let layer = doorman.rules();
    doorman.ready(SECOND).await.unwrap();
    assert_eq!(snapshot(&doorman).not_applied[0].rule, "in-flight");
    assert_eq!(admitted(&layer, 20).await, 10);
}

#[tokio::test(start_paused = true)]
async fn rule_of_another_unit_applies_after_idle_time() {
    let plane = Plane::new(serves(rules_response("1", [rule("all", "api")])));
    let (doorman, _worker) = run(builder().idle_after(30 * SECOND), &plane);
    let layer = doorman.rules();
    doorman.ready(SECOND).await.unwrap();
    assert_eq!(admitted(&layer, 20).await, 10);

    let gauge = Rule {
        unit: doorman_openapi::Unit::Gauge,
        ..rule("in-flight", "api")
    };
    let response = rules_response("2", [gauge]);
    plane.set(move |call| {
        if call.path == paths::RULES {
            return rules(call, &response);
        }
        let Some(request) = call.capacity() else {
            return Reply::json(200, &json!({}));
        };
        let mut leases = grant_all(&request, 1.0);
        for lease in &mut leases.resources {
            lease.unit = Some(doorman_openapi::Unit::Gauge);
        }
        leases.into()
    });
    sleep(15 * SECOND).await;
    assert_eq!(snapshot(&doorman).not_applied[0].rule, "in-flight");
    assert_eq!(admitted(&layer, 20).await, 20);

    sleep(50 * SECOND).await;
    assert_eq!(snapshot(&doorman).not_applied, []);
    let service = layer.layer(Inner);
    let send = || send(&service, http::Request::new(()));
    let held = send().await;
    assert_eq!(
        [held.status().as_u16(), send().await.status().as_u16()],
        [200, 429]
    );
    let before = polls(&plane).len();
    sleep(30 * SECOND).await;
    let later = &polls(&plane)[before..];
    assert!(
        later
            .iter()
            .skip(1)
            .all(|call| call.if_none_match.is_some())
    );
}

#[tokio::test(start_paused = true)]
async fn rate_limited_poll_waits_as_the_server_says() {
    let mut refused = 0;
    let mut serves = serves(rules_response("1", [rule("all", "api")]));
    let plane = Plane::new(move |call| {
        if call.path == paths::RULES && refused < 3 {
            refused += 1;
            let busy = Response::builder()
                .status(429)
                .header(header::RETRY_AFTER, "7");
            return Reply::Response(busy.body(Bytes::new()).unwrap());
        }
        serves(call)
    });
    let (doorman, _worker) = run(builder(), &plane);
    let _layer = doorman.rules();
    let began = clock::now();
    doorman.ready(60 * SECOND).await.unwrap();
    let took = clock::now().seconds_since(began);
    assert!((21.0..=32.0).contains(&took), "{took}");
    assert_eq!(polls(&plane).len(), 4);
    assert!(polls(&plane).iter().all(|call| call.host == "a"));
}
