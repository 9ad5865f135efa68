//! The lease list, and the reasons in it.

use std::time::Duration;

use serde_json::json;

use super::*;

const LEASES: &str = "/v1/resources/db/leases";

/// A document with the resource `db`.
fn document(kind: &str, capacity: f64) -> Document {
    let text = format!(
        "resources: [{{identifier_glob: db, capacity: {capacity}, \
         algorithm: {{kind: {kind}, lease_length: 20, refresh_interval: 5}}}}]"
    );
    Document::parse(&text).unwrap()
}

fn server(kind: &str, capacity: f64) -> Router {
    crate::http::router(app_with(document(kind, capacity)))
}

/// A client requests `db`; returns the response for it.
async fn ask(router: &Router, client: &str, requested: Value) -> Value {
    let mut resource = json!({"resource_id": "db"});
    let members = requested.as_object().unwrap().clone();
    resource.as_object_mut().unwrap().extend(members);
    let body = json!({"client_id": client, "resources": [resource]});
    let reply = post(router, "/v1/capacity", body.to_string()).await;
    reply.json()["resources"][0].clone()
}

/// The view of a holder.
async fn holder(router: &Router, client: &str) -> Value {
    let page = get(router, &format!("{LEASES}?client_id={client}")).await;
    page.json()["leases"][0].clone()
}

/// Asserts what keeps a holder from what it wants, and words of its explanation.
async fn check(router: &Router, client: &str, held_back_by: &str, words: &str) {
    let shown = holder(router, client).await;
    let why = shown["why"].as_str().unwrap();
    assert_eq!(shown["held_back_by"], held_back_by, "{shown}");
    assert!(why.contains(words), "{why}");
}

async fn wait(seconds: u64) {
    tokio::time::advance(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn share_is_explained() {
    let router = server("FAIR_SHARE", 100.0);
    for number in 0..8 {
        ask(&router, &format!("orders-{number}"), json!({"wants": 40})).await;
    }
    // The first holders have everything until they refresh.
    let late = holder(&router, "orders-7").await;
    assert_eq!(
        (&late["share"], &late["has"]),
        (&json!(12.5), &json!(0.0)),
        "{late}"
    );
    check(
        &router,
        "orders-7",
        "others",
        "others still hold 100 of 100",
    )
    .await;
    wait(5).await;
    for round in 0..2 {
        for number in 0..8 {
            let client = format!("orders-{number}");
            let has = holder(&router, &client).await["has"].clone();
            let requested = json!({"wants": 40, "has": {"capacity": has}});
            let response = ask(&router, &client, requested).await;
            if round == 0 && number == 0 {
                assert_eq!(response["reason"], "share");
                // Capacity moves when its holder has refreshed.
                check(
                    &router,
                    "orders-0",
                    "share",
                    "its share is 12.5: clients want 320 of 100, so each gets at most 12.5",
                )
                .await;
            }
        }
    }
    let shown = holder(&router, "orders-2").await;
    assert_eq!(shown["has"], 12.5, "{shown}");
    check(&router, "orders-2", "share", "clients want 320 of 100").await;

    let resource = get(&router, "/v1/resources/db").await.json();
    for (field, value) in [
        ("capacity", json!(100.0)),
        ("sum_has", json!(100.0)),
        ("sum_wants", json!(320.0)),
        ("free", json!(0.0)),
        ("fill_level", json!(12.5)),
        ("safe_capacity", json!(12.5)),
        ("lease_length", json!(20.0)),
        ("refresh_interval", json!(5.0)),
    ] {
        assert_eq!(resource[field], value, "{field}");
    }
    assert!(resource.get("learning_ends_in").is_none());
}

#[tokio::test(start_paused = true)]
async fn overdue_refresh_is_explained() {
    let router = server("FAIR_SHARE", 100.0);
    ask(&router, "a", json!({"wants": 100})).await;
    ask(&router, "b", json!({"wants": 100})).await;
    let left = json!({"client_id": "a"});
    post(&router, "/v1/capacity/release", left.to_string()).await;
    wait(1).await;
    check(
        &router,
        "b",
        "not_refreshed",
        "it gets 100 at its next refresh",
    )
    .await;
    assert_eq!(holder(&router, "b").await["refreshed_ago"], 1.0);
    ask(&router, "b", json!({"wants": 100})).await;
    let shown = holder(&router, "b").await;
    assert!(shown.get("held_back_by").is_none(), "{shown}");
    assert_eq!(shown["why"], "it has what it wants");
    wait(13).await;
    let shown = holder(&router, "b").await;
    assert_eq!(
        shown["why"],
        "it has what it wants; its refresh is 8 s overdue: without one, its capacity is free in 8 s"
    );
}

#[tokio::test(start_paused = true)]
async fn shared_signal_is_explained() {
    let router = server("SHARED_BUCKET", 4.0);
    ask(&router, "a", json!({"wants": 4, "used": 0})).await;
    let response = ask(&router, "a", json!({"wants": 4, "used": 12})).await;
    assert_eq!(response["balance"], -8.0);
    check(&router, "a", "balance", "is empty (balance -8)").await;

    let router = server("SUPPRESSION", 100.0);
    for _ in 0..30 {
        ask(&router, "a", json!({"wants": 400})).await;
        wait(1).await;
    }
    check(&router, "a", "suppressed", "with a probability of 0.25").await;

    let router = server("STATIC", 100.0);
    ask(&router, "a", json!({"wants": 400})).await;
    check(&router, "a", "share", "each holder gets at most 100").await;

    let router = server("FAIR_SHARE", 0.0);
    let response = ask(&router, "a", json!({"wants": 400})).await;
    assert_eq!(response["reason"], "blocked");
    check(&router, "a", "blocked", "the capacity is 0").await;
}

#[tokio::test(start_paused = true)]
async fn learning_mode_is_explained() {
    let settings = ledger::Settings {
        predecessor: Predecessor::Until(clock::now().after_seconds(21.0)),
        ..SETTINGS
    };
    let app = app_of(document("FAIR_SHARE", 100.0), settings, Moment::NEVER);
    let router = crate::http::router(app);
    ask(&router, "a", json!({"wants": 50, "has": {"capacity": 30}})).await;
    ask(&router, "b", json!({"wants": 50})).await;
    wait(1).await;
    check(
        &router,
        "a",
        "learning",
        "the server is in learning mode for 20 s",
    )
    .await;
    check(&router, "b", "learning", "a new holder gets nothing").await;
    let resource = get(&router, "/v1/resources/db").await.json();
    assert_eq!(resource["learning_ends_in"], 20.0);
}

#[tokio::test(start_paused = true)]
async fn lease_without_a_durable_bound_is_not_reported() {
    let app = app_of(document("FAIR_SHARE", 100.0), SETTINGS, Moment::ORIGIN);
    let router = crate::http::router(app);
    let request = json!({"client_id": "a", "resources": [{"resource_id": "db", "wants": 50}]});
    let reply = post(&router, "/v1/capacity", request.to_string()).await;
    let problem = reply.problem(503);
    assert!(problem.detail.contains("retry later"), "{problem:?}");
    check(&router, "a", "bound", "not yet on the server's disk").await;
}

#[tokio::test(start_paused = true)]
async fn holder_beyond_max_leases_is_not_listed() {
    let settings = ledger::Settings {
        max_leases: 1,
        ..SETTINGS
    };
    let app = app_of(document("FAIR_SHARE", 100.0), settings, Moment::NEVER);
    let router = crate::http::router(app);
    ask(&router, "a", json!({"wants": 50})).await;
    let response = ask(&router, "b", json!({"wants": 50})).await;
    assert_eq!(response["reason"], "full");
    let page = get(&router, &format!("{LEASES}?client_id=b")).await.json();
    assert_eq!(page, json!({"leases": []}));
    let status = get(&router, "/v1/status").await.json();
    assert_eq!(
        (&status["leases"], &status["max_leases"]),
        (&json!(1), &json!(1))
    );
}

#[tokio::test]
async fn invalid_client_id_is_malformed() {
    let router = server("FAIR_SHARE", 100.0);
    for client in ["a", "b"] {
        ask(&router, client, json!({"wants": 1})).await;
    }
    let page = get(&router, &format!("{LEASES}?limit=1")).await.json();
    let cursor = page["next_cursor"].as_str().unwrap();
    for (query, word) in [
        ("client_id=".to_owned(), "`client_id`"),
        ("client_id=%00".to_owned(), "`client_id`"),
        (format!("client_id=a&cursor={cursor}"), "`cursor`"),
    ] {
        let problem = get(&router, &format!("{LEASES}?{query}"))
            .await
            .problem(400);
        assert!(problem.detail.contains(word), "{}", problem.detail);
    }
    get(&router, "/v1/resources/nothing/leases?client_id=a")
        .await
        .problem(404);
}

#[tokio::test]
async fn leases_of_clients_are_listed_by_prefix() {
    let router = server("FAIR_SHARE", 100.0);
    let resources: Vec<_> = (0..40)
        .map(|number| json!({"resource_id": format!("r{number}"), "wants": number}))
        .collect();
    for client in ["c", "other"] {
        let body = json!({"client_id": client, "resources": resources});
        post(&router, "/v1/capacity", body.to_string()).await;
    }
    for (prefix, expected) in [("o", 40), ("c", 40), ("", 80), ("d", 0)] {
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let uri = format!("/v1/leases?prefix={prefix}&limit=33&cursor={cursor}");
            let page = get(&router, &uri).await.json();
            for lease in page["leases"].as_array().unwrap() {
                let client = lease["lease"]["client_id"].as_str().unwrap();
                assert!(client.starts_with(prefix), "{page}");
                let kind = &lease["lease"]["kind"];
                let resource = &lease["resource"]["resource_id"];
                found.push(format!("{client} {kind} {resource}"));
            }
            let Some(next) = page.get("next_cursor") else {
                break;
            };
            cursor = next.as_str().unwrap().to_owned();
        }
        let count = found.len();
        found.sort();
        found.dedup();
        assert_eq!((count, found.len()), (expected, expected), "{prefix}");
    }
}

#[tokio::test]
async fn leases_of_a_client_are_listed_over_all_resources() {
    let router = server("FAIR_SHARE", 100.0);
    let resources: Vec<_> = (0..40)
        .map(|number| json!({"resource_id": format!("r{number}"), "wants": number}))
        .collect();
    for client in ["c", "other"] {
        let body = json!({"client_id": client, "resources": resources});
        post(&router, "/v1/capacity", body.to_string()).await;
    }
    let wants = json!([{"priority": 0, "num_clients": 2, "wants": 3}]);
    let body = json!({"node_id": "c", "resources": [{"resource_id": "db", "wants": wants}]});
    let reply = post(&router, "/v1/server-capacity", body.to_string()).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let body = json!({"client_id": "c", "resource_ids": ["r3"]});
    post(&router, "/v1/capacity/release", body.to_string()).await;

    for limit in [1, 7, 1000] {
        let (mut leases, mut cursor) = (Vec::new(), String::new());
        loop {
            let uri = format!("/v1/leases?client_id=c&limit={limit}&cursor={cursor}");
            let page = get(&router, &uri).await.json();
            let part = page["leases"].as_array().unwrap();
            assert!(part.len() <= limit, "{page}");
            leases.extend(part.clone());
            let Some(next) = page.get("next_cursor") else {
                break;
            };
            cursor = next.as_str().unwrap().to_owned();
            let uri = format!("/v1/leases?client_id=other&cursor={cursor}");
            get(&router, &uri).await.problem(400);
        }
        let mut found: Vec<_> = leases
            .iter()
            .map(|it| {
                let id = it["resource"]["resource_id"].as_str().unwrap();
                assert_eq!(it["lease"]["client_id"], "c", "{it}");
                let kind = if id == "db" { "node" } else { "client" };
                assert_eq!(it["lease"]["kind"], kind, "{it}");
                (id.to_owned(), it["lease"]["wants"].as_f64().unwrap())
            })
            .collect();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let numbers = (0..40).filter(|number| *number != 3);
        let mut expected: Vec<_> = numbers
            .map(|number| (format!("r{number}"), f64::from(number)))
            .chain([("db".to_owned(), 3.0)])
            .collect();
        expected.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(found, expected, "{limit}");
    }
    let unknown = get(&router, "/v1/leases?client_id=d").await.json();
    assert_eq!(unknown, json!({"leases": []}));
    for query in [
        "?client_id=c&prefix=c",
        "?client_id=",
        "?client_id=c&limit=0",
        "?client_id=c&cursor=x",
    ] {
        let uri = format!("/v1/leases{query}");
        get(&router, &uri).await.problem(400);
    }
}

#[tokio::test(start_paused = true)]
async fn status_tells_of_lasting_unmet_demand() {
    let router = server("FAIR_SHARE", 100.0);
    let mut status = Value::Null;
    for _ in 0..7 {
        ask(&router, "a", json!({"wants": 150})).await;
        status = get(&router, "/v1/status").await.json();
        if status["resources_unmet"] == 0 {
            assert!(status.get("unmet_since").is_none(), "{status}");
        }
        wait(10).await;
    }
    assert_eq!(status["resources_unmet"], 1, "{status}");
    let resource = get(&router, "/v1/resources/db").await.json();
    let since = |view: &Value| view["unmet_since"].as_u64().unwrap();
    assert!(since(&status).abs_diff(since(&resource)) <= 11, "{status}");
    let left = json!({"client_id": "a"});
    post(&router, "/v1/capacity/release", left.to_string()).await;
    let status = get(&router, "/v1/status").await.json();
    assert_eq!(status["resources_unmet"], 0, "{status}");
}
