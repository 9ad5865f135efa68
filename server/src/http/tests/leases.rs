//! Lease calls over HTTP. `ledger` tests what is granted.

use serde_json::json;

use super::*;

fn ids(reply: &Reply) -> Vec<String> {
    let responses = reply.json()["resources"].as_array().unwrap().clone();
    responses
        .iter()
        .map(|response| response["resource_id"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn responses_have_node_epoch_and_request_order() {
    let router = router();
    let body = json!({"client_id": "c", "resources": [
        {"resource_id": "z", "wants": 1}, {"resource_id": "a", "wants": 2}, {"resource_id": "m/ü", "wants": 3}
    ]});
    let reply = post(&router, "/v1/capacity", body.to_string()).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("cache-control"), "no-store");
    let response = reply.json();
    assert_eq!(
        (&response["node"], &response["epoch"]),
        (&json!("node-a"), &json!(7))
    );
    assert_eq!(ids(&reply), ["z", "a", "m/ü"]);
    let first = &response["resources"][0];
    assert_eq!(first["gets"]["capacity"], 1.0);
    assert_eq!(first["reason"], "granted");
    assert_eq!(first["template"], "*");
    let lease_length = first["gets"]["lease_length"].as_f64().unwrap() as u64;
    let expires = first["gets"]["expiry_time"].as_u64().unwrap();
    assert!(expires.abs_diff(clock::unix_seconds() + lease_length) <= 2);

    let body = json!({"node_id": "n", "resources": [
        {"resource_id": "b", "wants": [{"priority": 0, "num_clients": 2, "wants": 10}]}, {"resource_id": "a", "wants": [{"priority": 1, "num_clients": 1, "wants": 1}]}
    ]});
    let reply = post(&router, "/v1/server-capacity", body.to_string()).await;
    assert_eq!(reply.header("cache-control"), "no-store");
    let response = reply.json();
    assert_eq!(
        (&response["node"], &response["epoch"]),
        (&json!("node-a"), &json!(7))
    );
    assert_eq!(ids(&reply), ["b", "a"]);
    assert!(
        response["resources"][0]["algorithm"]["kind"].is_string(),
        "{response}"
    );
}

#[tokio::test]
async fn requests_state_the_unit_of_their_amounts() {
    let text = "resources: [{identifier_glob: q, capacity: 600, per: 60, \
                algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 5}}]";
    let router = super::super::router(app_with(Document::parse(text).unwrap()));
    let ask = async |resource: Value| {
        let body = json!({"client_id": "c", "resources": [resource]});
        let reply = post(&router, "/v1/capacity", body.to_string()).await;
        let answer = &reply.json()["resources"][0];
        assert_eq!(
            (&answer["unit"], &answer["per"]),
            (&json!("rate"), &json!(60.0))
        );
        answer["gets"]["capacity"].as_f64().unwrap()
    };
    let in_seconds = json!({"resource_id": "q", "wants": 5, "unit": "rate", "per": 1});
    assert_eq!(ask(in_seconds).await, 300.0);
    let claim = json!({"resource_id": "q", "wants": 10, "has": {"capacity": 5}, "per": 1});
    assert_eq!(ask(claim).await, 600.0);
    let units_in_use = json!({"resource_id": "q", "wants": 10, "unit": "gauge"});
    assert_eq!(ask(units_in_use).await, 0.0);
}

#[tokio::test]
async fn invalid_request_has_no_effect() {
    let router = router();
    let body = r#"{"client_id":"c","resources":[{"resource_id":"a","wants":1},{"resource_id":"b","wants":-1}]}"#;
    post(&router, "/v1/capacity", body).await.problem(422);
    assert_eq!(
        get(&router, "/v1/resources").await.json(),
        json!({"resources": []})
    );
}

#[tokio::test]
async fn runs_of_a_client_lease_and_release_on_their_own() {
    let text = "resources: [{identifier_glob: db, capacity: 10, \
                algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 5}}]";
    let router = super::super::router(app_with(Document::parse(text).unwrap()));
    let ask = async |run: u64, seq: u64| {
        let db = json!([{"resource_id": "db", "wants": 10}]);
        let body = json!({"client_id": "c", "run": run, "seq": seq, "resources": db});
        let reply = post(&router, "/v1/capacity", body.to_string()).await;
        let response = reply.json()["resources"][0].clone();
        (
            response["gets"]["capacity"].as_f64().unwrap(),
            response["reason"].as_str().unwrap().to_owned(),
        )
    };
    let shown = async || {
        let page = get(&router, "/v1/leases?client_id=c").await.json();
        let leases = page["leases"].as_array().unwrap().iter();
        let shown = leases.map(|it| (it["lease"]["run"].clone(), it["lease"]["has"].clone()));
        shown.collect::<Vec<_>>()
    };
    let release = async |body: Value| {
        let reply = post(&router, "/v1/capacity/release", body.to_string()).await;
        reply.json()["released"].as_u64().unwrap()
    };
    let largest = 9_007_199_254_740_991;
    assert_eq!(ask(7, 5).await, (10.0, "granted".to_owned()));
    assert_eq!(ask(largest, 1).await, (0.0, "pending".to_owned()));
    assert_eq!(
        shown().await,
        [(json!(largest), json!(0.0)), (json!(7), json!(10.0))]
    );
    let holders = get(&router, "/v1/resources/db/leases?client_id=c").await;
    let leases = holders.json()["leases"].clone();
    assert_eq!(leases[0]["duplicate_client"], true, "{leases}");
    assert_eq!(release(json!({"client_id": "c", "run": 8})).await, 0);
    assert_eq!(release(json!({"client_id": "c", "seq": 9})).await, 0);
    assert_eq!(
        release(json!({"client_id": "c", "run": 7, "seq": 6})).await,
        1
    );
    assert_eq!(shown().await, [(json!(largest), json!(0.0))]);
    assert_eq!(ask(largest, 2).await, (10.0, "granted".to_owned()));
    assert_eq!(ask(7, 7).await, (0.0, "pending".to_owned()));
    // An operator's release is of all runs.
    assert_eq!(release(json!({"client_id": "c"})).await, 2);
    assert!(shown().await.is_empty());
}

#[tokio::test]
async fn release_is_idempotent() {
    let router = router();
    let live = async || {
        let page = get(&router, "/v1/resources").await.json();
        page["resources"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|resource| resource["sum_has"] != 0.0)
            .map(|resource| resource["resource_id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let lease = r#"{"client_id":"c","resources":[{"resource_id":"a","wants":1},{"resource_id":"b","wants":1},{"resource_id":"d","wants":1}]}"#;
    post(&router, "/v1/capacity", lease).await;
    assert_eq!(live().await, ["a", "b", "d"]);
    for released in [1, 0] {
        let release = r#"{"client_id":"c","resource_ids":["b","unknown"]}"#;
        let reply = post(&router, "/v1/capacity/release", release).await;
        let expected = json!({"released": released});
        assert_eq!((reply.status.as_u16(), reply.json()), (200, expected));
        assert_eq!(live().await, ["a", "d"]);
    }
    // An empty list is not all.
    post(
        &router,
        "/v1/capacity/release",
        r#"{"client_id":"c","resource_ids":[]}"#,
    )
    .await;
    assert_eq!(live().await, ["a", "d"]);
    post(&router, "/v1/capacity/release", r#"{"client_id":"c"}"#).await;
    assert!(live().await.is_empty());
}

async fn ids_of_all(router: &Router) -> Vec<String> {
    ids(&get(router, "/v1/resources").await)
}

/// Which of two calls completes first if the long one starts first.
async fn first_answered(router: &Router, long: (&str, String), short: (&str, String)) -> String {
    let order = Mutex::new(Vec::new());
    let call = async |(path, body): (&str, String), name: &str| {
        let reply = post(router, path, body).await;
        assert_eq!(reply.status, 200);
        order.lock().unwrap().push(name.to_owned());
    };
    tokio::join!(call(long, "long"), call(short, "short"));
    order.into_inner().unwrap().remove(0)
}

#[tokio::test]
async fn long_request_does_not_block_others() {
    let router = router();
    let ids = || (0..10_000).map(|n| format!("r/{n}"));
    let clients: Vec<_> = ids()
        .map(|id| json!({"resource_id": id, "wants": 1}))
        .collect();
    let bands: Vec<_> = ids()
        .map(|id| json!({"resource_id": id, "wants": [{"priority": 0, "num_clients": 1, "wants": 1}]}))
        .collect();
    let ids: Vec<_> = ids().collect();
    for (path, body) in [
        (
            "/v1/capacity",
            json!({"client_id": "c", "resources": clients}),
        ),
        (
            "/v1/server-capacity",
            json!({"node_id": "n", "resources": bands}),
        ),
        (
            "/v1/capacity/release",
            json!({"client_id": "c", "resource_ids": ids}),
        ),
        ("/v1/server-capacity/release", json!({"node_id": "n"})),
    ] {
        let short = json!({"client_id": "short", "resources": [{"resource_id": "s", "wants": 1}]});
        let long = (path, body.to_string());
        let short = ("/v1/capacity", short.to_string());
        assert_eq!(
            first_answered(&router, long, short).await,
            "short",
            "{path}"
        );
    }
    // All leases are released.
    assert_eq!(ids_of_all(&router).await, ["s"]);
}
