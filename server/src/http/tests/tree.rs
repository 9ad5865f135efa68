//! Nodes of the server tree: as holders, and as servers below a parent.

use std::time::Duration;

use doorman_openapi::{CLOCK_DRIFT, Discovery};
use serde_json::json;
use tower_doorman::lease::Failure;

use super::*;

async fn ask(router: &Router, address: Value) -> Reply {
    let wants = json!([{"priority": 0, "num_clients": 2, "wants": 30}]);
    let resources = json!([{"resource_id": "db", "wants": wants}]);
    let body = json!({"node_id": "eu", "address": address, "resources": resources});
    post(router, "/v1/server-capacity", body.to_string()).await
}

#[tokio::test]
async fn leases_of_a_node_have_its_address_and_clients() {
    let router = router();
    let address = "https://eu.example:7300/doorman";
    assert_eq!(ask(&router, json!(address)).await.status, 200);
    let leases = get(&router, "/v1/resources/db/leases").await.json();
    let node = &leases["leases"][0];
    assert_eq!(
        (&node["kind"], &node["clients"], &node["address"]),
        (&json!("node"), &json!(2), &json!(address))
    );
}

#[tokio::test]
async fn node_with_the_name_of_its_parent_is_rejected() {
    let router = router();
    let body = json!({"node_id": "node-a", "resources": []});
    let reply = post(&router, "/v1/server-capacity", body.to_string()).await;
    let problem = reply.problem(422);
    assert_eq!(problem.errors[0].pointer, "/node_id");
    assert!(problem.errors[0].detail.contains("--node"), "{problem:?}");
}

#[tokio::test]
async fn address_of_a_node_is_that_of_a_server() {
    let router = router();
    for (address, expected) in [
        (json!("eu.example"), "must begin with http://"),
        (
            json!("http://user:secret@eu"),
            "must be like http://host:7300",
        ),
        (json!(7), "a string"),
    ] {
        let problem = ask(&router, address).await.problem(422);
        let error = &problem.errors[0];
        assert_eq!(error.pointer, "/address");
        assert!(error.detail.contains(expected), "{error:?}");
    }
}

#[tokio::test]
async fn status_of_a_node_has_its_parent() {
    let (app, parent) = node_app();
    let router = crate::http::router(app);
    parent.on_failure(&Failure::TooLarge, "too large", clock::now());
    let status = get(&router, "/v1/status").await.json();
    assert_eq!(status["parents"], json!(["http://127.0.0.1:7399"]));
    assert_eq!(status["parent"], json!({"error": "too large"}));
    assert_eq!(status["level"], 1);
    let status = get(&crate::http::tests::router(), "/v1/status").await;
    assert_eq!(status.json().get("parent"), None);
}

/// A client of a node asks for `db`.
async fn ask_node(router: &Router) {
    let body = json!({"client_id": "c", "resources": [{"resource_id": "db", "wants": 50}]});
    let reply = post(router, "/v1/capacity", body.to_string()).await;
    assert_eq!(reply.status, 200);
}

#[tokio::test(start_paused = true)]
async fn status_of_a_node_has_its_leases() {
    let (app, parent) = node_app();
    let router = crate::http::router(app.clone());
    ask_node(&router).await;
    answer_of_parent(&app, &parent, 40.0, "share");
    let status = async |seconds| {
        tokio::time::advance(Duration::from_secs(seconds)).await;
        get(&router, "/v1/status").await.json()
    };
    let first = status(3).await;
    assert_eq!(
        first["parent"],
        json!({"node": "root", "epoch": 9, "answered_ago": 3.0, "leases_end_in": 17.0})
    );
    assert_eq!(first["level"], 1);
    let last = status(17).await;
    assert_eq!(
        last["parent"],
        json!({"node": "root", "epoch": 9, "answered_ago": 20.0})
    );
    // The address of the root is not in responses to requests for leases.
    let discovery = get(&router, "/v1/discovery").await.json();
    assert_eq!(discovery.get("root"), None, "{discovery}");
}

#[tokio::test(start_paused = true)]
async fn status_has_learning_that_a_parent_began() {
    let (app, parent) = node_app();
    let router = crate::http::router(app.clone());
    ask_node(&router).await;
    let learning = async || {
        let status = get(&router, "/v1/status").await.json();
        let left = status["learning_ends_in"].as_f64();
        (left, status["resources_learning"].as_u64())
    };
    assert_eq!(learning().await, (None, None));
    // Its last master has handed out 40.
    answer_of_parent(&app, &parent, 40.0, "pending");
    let learns = 20.0 * CLOCK_DRIFT * CLOCK_DRIFT;
    let (left, resources) = learning().await;
    assert!((left.unwrap() - learns).abs() < 1e-6, "{left:?}");
    assert_eq!(resources, Some(1));
    tokio::time::advance(Duration::from_secs(23)).await;
    assert_eq!(learning().await, (None, None));
}

#[tokio::test]
async fn node_has_no_rules_until_its_parent_answers() {
    let (app, parent) = node_app();
    let router = crate::http::router(app);
    for path in ["/v1/rules?service=shop", "/v1/rules", "/v1/rules/all"] {
        get(&router, path).await.problem(503);
    }
    parent.set_has_rules();
    let rules = get(&router, "/v1/rules?service=shop").await.json();
    assert_eq!(rules["rules"], json!([]));
}

#[tokio::test]
async fn document_of_a_node_is_at_the_root() {
    let (app, parent) = node_app();
    let app = app.with_document_store(DocumentStore::Parent(Arc::clone(&parent)));
    let router = crate::http::router(app);
    let details = async || {
        let mut details = Vec::new();
        for path in ["/v1/templates", "/v1/templates/db"] {
            details.push(get(&router, path).await.problem(404).detail);
        }
        for (path, body) in [
            ("/v1/templates", r#"{"resources": []}"#),
            ("/v1/templates?dry_run=true", r#"{"resources": []}"#),
            ("/v1/templates/db", r#"{"capacity": 5}"#),
            ("/v1/rules/all", r#"{"service": "*", "resource": "db"}"#),
        ] {
            details.push(put(&router, path, body).await.problem(409).detail);
        }
        details
    };
    let expected = "at the root; the parent is http://127.0.0.1:7399";
    for detail in details().await {
        assert!(detail.ends_with(expected), "{detail}");
    }
    let discovery = get(&router, "/v1/discovery").await.json();
    let mut discovery: Discovery = serde_json::from_value(discovery).unwrap();
    assert_eq!(discovery.root, None);
    discovery.root = Some("http://root:7300".to_owned());
    parent.on_discovery(&discovery, clock::now());
    for detail in details().await {
        assert!(
            detail.ends_with("at the root, http://root:7300"),
            "{detail}"
        );
    }
    let status = get(&router, "/v1/discovery").await.json();
    assert_eq!(
        (&status["root"], &status["level"]),
        (&json!("http://root:7300"), &json!(2))
    );
}

/// All that users of a node read while its parent is away names the parent.
#[tokio::test(start_paused = true)]
async fn cut_node_names_its_parent_everywhere() {
    let (app, parent) = node_app();
    let router = crate::http::router(app.clone());
    ask_node(&router).await;
    answer_of_parent(&app, &parent, 40.0, "share");
    let silent = Failure::Unavailable { retry_after: None };
    parent.on_failure(&silent, "timed out", clock::now());
    parent.on_rules_failure(Some(&silent), "timed out", clock::now());
    app.document
        .reject("cannot fetch the rules of the parent: timed out");
    let advance = async |seconds| tokio::time::advance(Duration::from_secs(seconds)).await;
    let readiness = async || String::from_utf8(get(&router, "/readyz").await.body.clone()).unwrap();
    advance(5).await;
    let expected = "ok\nparent unreachable for 5 s; its last lease ends in 15 s\n";
    assert_eq!(readiness().await, expected);

    // The lease from the parent ends.
    advance(25).await;
    let problem = "parent unreachable for 30 s";
    let expected = format!("ok\n{problem}; this node has no leases, and fallbacks apply\n");
    assert_eq!(readiness().await, expected);
    let status = get(&router, "/v1/status").await.json();
    assert_eq!(status["parent"]["problem"], problem);
    let error = format!("{problem}: cannot fetch the rules of the parent: timed out");
    assert_eq!(status["config_error"], json!(error));
    let body = json!({"client_id": "c", "resources": [{"resource_id": "db", "wants": 50}]});
    let leased = post(&router, "/v1/capacity", body.to_string()).await.json();
    assert_eq!(leased["warnings"], json!([problem]));
    assert_eq!(leased["resources"][0]["gets"]["lease_length"], 0.0);
    for path in ["/v1/resources/db/leases", "/v1/leases?client_id=c"] {
        let leases = get(&router, path).await.json();
        let lease = leases["leases"][0]
            .get("lease")
            .unwrap_or(&leases["leases"][0]);
        let why = format!("this node has no lease from its parent; {problem}");
        let expected = (&json!("parent"), &json!(why));
        assert_eq!((&lease["held_back_by"], &lease["why"]), expected, "{path}");
    }
    let resource = get(&router, "/v1/resources/db").await.json();
    assert_eq!(resource["parent"]["problem"], problem);
    let resources = get(&router, "/v1/resources").await.json();
    assert_eq!(resources["resources"][0]["parent"]["problem"], problem);

    // It is over with the next answer.
    answer_of_parent(&app, &parent, 40.0, "share");
    assert!(!readiness().await.contains("parent"));
    let leased = post(&router, "/v1/capacity", body.to_string()).await.json();
    assert_eq!(leased.get("warnings"), None, "{leased}");
}

#[tokio::test(start_paused = true)]
async fn what_a_parent_reports_of_its_own_parent_is_passed_down() {
    let (app, parent) = node_app();
    let router = crate::http::router(app);
    let response = json!({"node": "eu", "epoch": 1, "level": 1, "resources": [],
        "warnings": ["parent unreachable for 30 s"]});
    let now = clock::now();
    parent.on_leases(&serde_json::from_value(response).unwrap(), now, now);
    let status = get(&router, "/v1/status").await.json();
    let expected = "reported by the parent: parent unreachable for 30 s";
    assert_eq!(status["parent"]["problem"], expected);
}

/// A parent that leases, but rejects the token for its rules, is not unreachable.
#[tokio::test(start_paused = true)]
async fn rejected_rules_are_no_unreachable_parent() {
    let (app, parent) = node_app();
    let silent = Failure::Unavailable { retry_after: None };
    let rejected = Failure::Rejected {
        positions: Vec::new(),
    };
    parent.on_rules_failure(Some(&rejected), "forbidden", clock::now());
    assert_eq!(parent.problem(clock::now()), None);
    parent.on_rules_failure(Some(&silent), "timed out", clock::now());
    tokio::time::advance(Duration::from_secs(5)).await;
    assert!(parent.problem(clock::now()).is_some());
    answer_of_parent(&app, &parent, 40.0, "share");
    assert_eq!(parent.problem(clock::now()), None);
}
