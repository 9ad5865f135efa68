//! PRIORITY_SHARE over HTTP, from the document to the lease.

use serde_json::json;

use super::*;

/// A client requests `db` at a priority; returns its capacity.
async fn ask(router: &Router, client: &str, priority: i32, wants: f64, has: f64) -> f64 {
    let body = json!({"client_id": client, "resources": [{
        "resource_id": "db", "priority": priority, "wants": wants, "has": {"capacity": has}
    }]});
    let reply = post(router, "/v1/capacity", body.to_string()).await;
    reply.json()["resources"][0]["gets"]["capacity"]
        .as_f64()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn higher_priority_gets_its_lease_first() {
    let stored = Stored::new();
    let router = &stored.router;
    let template = json!({"capacity": 100, "algorithm": {
        "kind": "PRIORITY_SHARE", "parameters": [{"name": "floor", "value": "0.1"}]
    }});
    let reply = put(router, "/v1/templates/db", template.to_string()).await;
    assert_eq!(reply.status, 201, "{reply:?}");
    let written = get(router, "/v1/templates/db").await.json();
    assert_eq!(written["algorithm"]["kind"], "PRIORITY_SHARE");
    assert_eq!(
        written["algorithm"]["parameters"],
        json!([{"name": "floor", "value": "0.1"}])
    );

    assert_eq!(ask(router, "batch", -1, 300.0, 0.0).await, 100.0);
    assert_eq!(ask(router, "web", 3, 300.0, 0.0).await, 0.0);
    // The lower priority keeps the floor, and reports what it gave up.
    assert_eq!(ask(router, "batch", -1, 300.0, 100.0).await, 10.0);
    assert_eq!(ask(router, "batch", -1, 300.0, 10.0).await, 10.0);
    assert_eq!(ask(router, "web", 3, 300.0, 0.0).await, 90.0);

    let shown = get(router, "/v1/resources/db/leases?client_id=batch").await;
    let lease = &shown.json()["leases"][0];
    assert_eq!(lease["priority"], -1);
    assert_eq!(lease["held_back_by"], "higher_priorities", "{lease}");
    let why = lease["why"].as_str().unwrap();
    assert!(why.contains("held back by higher priorities"), "{why}");
    let shown = get(router, "/v1/resources/db").await.json();
    assert_eq!(shown["algorithm"], "PRIORITY_SHARE");
}

/// A client requests `db` in bands; returns its lease and its safe capacity.
async fn ask_in_bands(router: &Router, client: &str, bands: &[(i32, f64)], has: f64) -> (f64, f64) {
    let wants: f64 = bands.iter().map(|(_, wants)| wants).sum();
    let highest = bands.iter().map(|(priority, _)| priority).max();
    let bands = bands.iter();
    let bands: Vec<_> = bands
        .map(|(priority, wants)| json!({"priority": priority, "wants": wants}))
        .collect();
    let body = json!({"client_id": client, "resources": [{
        "resource_id": "db", "wants": wants, "priority": highest, "bands": bands,
        "has": {"capacity": has}
    }]});
    let reply = post(router, "/v1/capacity", body.to_string()).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let lease = &reply.json()["resources"][0];
    let number = |value: &Value| value.as_f64().unwrap();
    (
        number(&lease["gets"]["capacity"]),
        number(&lease["safe_capacity"]),
    )
}

#[tokio::test(start_paused = true)]
async fn clients_get_their_share_of_each_band() {
    let stored = Stored::new();
    let router = &stored.router;
    let template = json!({"capacity": 100, "algorithm": {"kind": "PRIORITY_SHARE"}});
    let reply = put(router, "/v1/templates/db", template.to_string()).await;
    assert_eq!(reply.status, 201, "{reply:?}");

    let a: &[_] = &[(5, 30.0), (0, 70.0)];
    let b: &[_] = &[(0, 90.0), (5, 20.0)];
    let (mut has_a, mut has_b) = (0.0, 0.0);
    for _ in 0..3 {
        has_a = ask_in_bands(router, "a", a, has_a).await.0;
        has_b = ask_in_bands(router, "b", b, has_b).await.0;
    }
    // All of priority 5, and half of what is left each.
    assert_eq!((has_a, has_b), (30.0 + 25.0, 20.0 + 25.0));
    // Two clients, not four.
    assert_eq!(ask_in_bands(router, "a", a, has_a).await, (55.0, 50.0));
    let shown = get(router, "/v1/resources/db").await.json();
    assert_eq!(shown["clients"], 2);

    let shown = get(router, "/v1/resources/db/leases?client_id=b").await;
    let lease = &shown.json()["leases"][0];
    assert_eq!(
        lease["bands"],
        json!([
            {"priority": 5, "num_clients": 1, "wants": 20.0},
            {"priority": 0, "num_clients": 1, "wants": 90.0},
        ])
    );
    assert_eq!(lease["priority"], 5);
    assert_eq!(lease["held_back_by"], "higher_priorities", "{lease}");
    let why = lease["why"].as_str().unwrap();
    assert!(why.contains("priority 0 gets at most 50"), "{why}");

    // One band again.
    ask(router, "b", 5, 20.0, has_b).await;
    let shown = get(router, "/v1/resources/db/leases?client_id=b").await;
    assert!(shown.json()["leases"][0].get("bands").is_none());
}

#[tokio::test]
async fn floor_of_another_algorithm_is_invalid() {
    let stored = Stored::new();
    let template = json!({"capacity": 100, "algorithm": {
        "kind": "FAIR_SHARE", "parameters": [{"name": "floor", "value": "0.1"}]
    }});
    let reply = put(&stored.router, "/v1/templates/db", template.to_string()).await;
    let problem = reply.problem(422);
    let shown = format!("{problem:?}");
    assert!(
        shown.contains("floor is for PRIORITY_SHARE only"),
        "{shown}"
    );
}

#[tokio::test]
async fn dry_run_lists_a_changed_floor() {
    let stored = Stored::new();
    let router = &stored.router;
    let template = |floor: &str| {
        let algorithm = json!({
            "kind": "PRIORITY_SHARE", "parameters": [{"name": "floor", "value": floor}]
        });
        json!({"capacity": 100, "algorithm": algorithm}).to_string()
    };
    put(router, "/v1/templates/db", template("0")).await;
    ask(router, "batch", -1, 300.0, 0.0).await;
    let uri = "/v1/templates/db?dry_run=true";
    let dry_run = put(router, uri, template("0.2")).await.json();
    assert_eq!(
        dry_run["resources"][0]["changes"],
        json!(["floor: 0 → 0.2"])
    );
}
