//! Metrics, as Prometheus parses them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use axum::http::Method;
use tower_doorman::lease::Failure;

use super::*;

/// The samples of a scrape by name and labels; checks the format of every line.
async fn scrape(router: &Router) -> BTreeMap<String, f64> {
    let reply = get(router, "/metrics").await;
    assert_eq!(reply.status, 200);
    assert_eq!(
        reply.header("content-type"),
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    );
    let text = String::from_utf8(reply.body).unwrap();
    let lines = text.strip_suffix("# EOF\n").unwrap().lines();
    let mut types = BTreeMap::new();
    let mut samples = BTreeMap::new();
    for line in lines {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (what, name, rest) = (words.next(), words.next().unwrap(), words.next().unwrap());
            if what == Some("TYPE") {
                assert!(
                    types.insert(name.to_owned(), rest.to_owned()).is_none(),
                    "{name} comes twice"
                );
            }
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let name = series.split('{').next().unwrap();
        assert!(name.starts_with("doorman_"), "{line}");
        assert!(
            name.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
            "{line}"
        );
        let typed = types.iter().any(|(family, kind)| {
            let suffix = name.strip_prefix(family.as_str());
            match kind.as_str() {
                "counter" => suffix == Some("_total"),
                "gauge" => suffix == Some(""),
                "info" => suffix == Some("_info"),
                "histogram" => matches!(suffix, Some("_bucket" | "_count" | "_sum")),
                other => panic!("{other}"),
            }
        });
        assert!(typed, "{line}");
        let value = value.parse().unwrap();
        assert!(
            samples.insert(series.to_owned(), value).is_none(),
            "{series} comes twice"
        );
    }
    samples
}

async fn ask(router: &Router, resource: &str, wants: f64) {
    let body = serde_json::json!({"client_id": "c", "resources": [{"resource_id": resource, "wants": wants}]});
    assert_eq!(
        post(router, "/v1/capacity", body.to_string()).await.status,
        200
    );
}

#[tokio::test]
async fn scrape_has_requests_and_leases() {
    let router = router();
    ask(&router, "db", 50.0).await;
    ask(&router, "say \"hi\"\\", 5.0).await;
    assert_eq!(post(&router, "/v1/capacity", "{").await.status, 400);
    assert_eq!(get(&router, "/nowhere").await.status, 404);
    let samples = scrape(&router).await;
    for (series, value) in [
        (
            r#"http_requests_total{method="POST",route="/v1/capacity"}"#,
            3.0,
        ),
        (
            r#"http_errors_total{method="POST",route="/v1/capacity",status="400"}"#,
            1.0,
        ),
        (
            r#"http_errors_total{method="GET",route="other",status="404"}"#,
            1.0,
        ),
        (
            r#"http_request_duration_seconds_count{method="POST",route="/v1/capacity"}"#,
            3.0,
        ),
        (r#"resource_capacity{resource="db"}"#, 1000.0),
        (r#"resource_has{resource="db"}"#, 50.0),
        (r#"resource_wants{resource="db"}"#, 50.0),
        (r#"resource_holders{resource="db"}"#, 1.0),
        (r#"resource_learning{resource="db"}"#, 0.0),
        (r#"resource_wants{resource="say \"hi\"\\"}"#, 5.0),
        ("resources", 2.0),
        ("leases", 2.0),
        ("resources_learning", 0.0),
        ("resources_over_capacity", 0.0),
        ("unmatched_answers_total", 0.0),
        ("epoch", 7.0),
        (r#"build_info{version="0.1.0"}"#, 1.0),
        (r#"config_reloads_total{outcome="applied"}"#, 0.0),
        (r#"config_reloads_total{outcome="refused"}"#, 0.0),
        ("config_last_reload_successful", 1.0),
        (r#"bound_writes_total{outcome="written"}"#, 0.0),
        (r#"bound_writes_total{outcome="failed"}"#, 0.0),
        (r#"handovers_total{outcome="received"}"#, 0.0),
        (r#"handovers_total{outcome="unreachable"}"#, 0.0),
        (r#"handovers_total{outcome="stalled"}"#, 0.0),
        (r#"handovers_total{outcome="broken"}"#, 0.0),
        (r#"terms_writes_total{outcome="written"}"#, 0.0),
        (r#"terms_writes_total{outcome="failed"}"#, 0.0),
        ("connections", 0.0),
        ("connections_most", 0.0),
        ("connections_gave_way_total", 0.0),
        ("connections_flooded_total", 0.0),
    ] {
        let series = format!("doorman_{series}");
        assert_eq!(
            samples.get(&series),
            Some(&value),
            "{series} in {samples:#?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn scrape_of_a_node_has_its_parent() {
    let samples = scrape(&router()).await;
    let has_parent = |series: &String| series.starts_with("doorman_parent");
    assert!(!samples.keys().any(has_parent), "{samples:#?}");

    let (app, parent) = node_app();
    parent.on_failure(&Failure::TooLarge, "too large", clock::now());
    tokio::time::advance(Duration::from_secs(3)).await;
    let silent = Failure::Unavailable { retry_after: None };
    parent.on_failure(&silent, "timed out", clock::now());
    tokio::time::advance(Duration::from_secs(4)).await;
    let samples = scrape(&crate::http::router(app)).await;
    for (series, value) in [
        (r#"parent_requests_total{outcome="answered"}"#, 0.0),
        (r#"parent_requests_total{outcome="too_large"}"#, 1.0),
        (r#"parent_requests_total{outcome="unavailable"}"#, 1.0),
        ("parent_last_answer_age_seconds", 7.0),
        ("parent_unreachable_seconds", 4.0),
    ] {
        let found = samples.get(&format!("doorman_{series}"));
        assert_eq!(found, Some(&value), "{series} in {samples:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn scrape_of_a_node_has_what_its_parent_leases() {
    let root = scrape(&router()).await;
    assert!(
        !root.contains_key("doorman_resources_unleased"),
        "{root:#?}"
    );

    let (app, parent) = node_app();
    let router = crate::http::router(app.clone());
    let values = async || {
        ask(&router, "db", 50.0).await;
        let samples = scrape(&router).await;
        let value = |name: &str| samples.get(name).copied();
        [
            value("doorman_resources_unleased"),
            value(r#"doorman_resource_capacity{resource="db"}"#),
            value(r#"doorman_resource_limit{resource="db"}"#),
            value(r#"doorman_parent_requests_total{outcome="answered"}"#),
        ]
    };
    let [unleased, _, limit, _] = values().await;
    assert_eq!((unleased, limit), (Some(1.0), None), "not answered yet");
    answer_of_parent(&app, &parent, 40.0, "share");
    let leased = [0.0, 40.0, 100.0, 1.0].map(Some);
    assert_eq!(values().await, leased);
    tokio::time::advance(Duration::from_secs(19)).await;
    assert_eq!(values().await, leased);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(values().await, [1.0, 0.0, 100.0, 1.0].map(Some));
}

#[tokio::test]
async fn every_operation_has_its_own_label() {
    let router = router();
    let document = get(&router, "/openapi.json").await.json();
    let calls = document["paths"].as_object().unwrap();
    for call in calls.keys() {
        let mut path = call.clone();
        while let (Some(from), Some(to)) = (path.find('{'), path.find('}')) {
            path.replace_range(from..=to, "a");
        }
        get(&router, &path).await;
    }
    let samples = scrape(&router).await;
    for call in calls.keys() {
        let series = format!(r#"doorman_http_requests_total{{method="GET",route="{call}"}}"#);
        assert!(samples.contains_key(&series), "{series} in {samples:#?}");
    }
}

#[tokio::test]
async fn every_safety_exception_is_counted() {
    let app = app();
    let router = crate::http::router(app.clone());
    let exceptions = async || {
        let samples = scrape(&router).await;
        let of = |name: &str| {
            samples[&format!("doorman_safety_exceptions_total{{exception=\"{name}\"}}")]
        };
        let counts = [
            "cut",
            "excess_claim",
            "first_start",
            "no_algorithm",
            "outlived",
            "shared_bucket",
            "short_learning",
            "static",
            "suppression",
            "unknown_longest",
        ]
        .map(of);
        (counts, samples["doorman_resources_over_capacity"])
    };
    assert_eq!(exceptions().await, ([0.0; 10], 0.0));

    ask(&router, "db", 50.0).await;
    let document = |text: &str| Arc::new(Document::parse(text).unwrap());
    let reconfigure = |text: &str| {
        let document = document(text);
        app.ledger
            .with(|core, _| core.reconfigure(document))
            .unwrap();
    };
    reconfigure(
        "resources: [\
           {identifier_glob: static, capacity: 9, algorithm: {kind: STATIC}}, \
           {identifier_glob: none, capacity: 9, algorithm: {kind: NO_ALGORITHM}}, \
           {identifier_glob: bucket, capacity: 9, algorithm: {kind: SHARED_BUCKET}}, \
           {identifier_glob: part, capacity: 9, algorithm: {kind: SUPPRESSION}}, \
           {identifier_glob: db, capacity: 10, algorithm: {kind: FAIR_SHARE}}]",
    );
    ask(&router, "static", 9.0).await;
    ask(&router, "none", 9.0).await;
    ask(&router, "bucket", 9.0).await;
    ask(&router, "part", 9.0).await;
    for claims in [
        r#"{"client_id":"d","resources":[{"resource_id":"db","wants":5,"has":{"capacity":500}}]}"#,
        r#"{"client_id":"e","resources":[{"resource_id":"static","wants":0,"outstanding":5}]}"#,
    ] {
        assert_eq!(post(&router, "/v1/capacity", claims).await.status, 200);
    }
    assert_eq!(
        exceptions().await,
        ([1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0], 1.0)
    );
}

#[tokio::test]
async fn duplicate_clients_are_counted() {
    let router = router();
    for (run, duplicates) in [(1, 0.0), (2, 1.0), (2, 1.0), (3, 2.0)] {
        let body = format!(
            r#"{{"client_id":"c","run":{run},"resources":[{{"resource_id":"db","wants":1}}]}}"#
        );
        let reply = post(&router, "/v1/capacity", body).await;
        assert_eq!(reply.status, 200);
        let samples = scrape(&router).await;
        assert_eq!(samples["doorman_duplicate_clients_total"], duplicates);
    }
}

#[tokio::test]
async fn number_of_series_is_bounded() {
    let router = router();
    for hundred in 0..100 {
        let resources: Vec<Value> = (0..100)
            .map(|one| {
                let number = hundred * 100 + one;
                serde_json::json!({"resource_id": format!("tenant/{number}"), "wants": number})
            })
            .collect();
        let body = serde_json::json!({"client_id": format!("c{hundred}"), "resources": resources});
        assert_eq!(
            post(&router, "/v1/capacity", body.to_string()).await.status,
            200
        );
        get(&router, &format!("/nowhere/{hundred}")).await;
        get(&router, &format!("/v1/resources/tenant%2F{hundred}")).await;
        let invented = Method::from_bytes(format!("INVENTED{hundred}").as_bytes()).unwrap();
        let request = Request::builder().method(invented).uri("/v1/capacity");
        send(&router, request.body(Body::empty()).unwrap()).await;
    }
    let samples = scrape(&router).await;
    assert_eq!(samples["doorman_resources"], 10_000.0);
    let named: BTreeSet<_> = samples
        .keys()
        .filter(|series| series.starts_with("doorman_resource_wants{"))
        .cloned()
        .collect();
    let most: BTreeSet<_> = (9950..10_000)
        .map(|number| format!("doorman_resource_wants{{resource=\"tenant/{number}\"}}"))
        .collect();
    assert_eq!(named, most);
    assert!(samples.len() < 500, "{} samples", samples.len());
}
