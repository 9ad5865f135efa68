//! Nodes of the server tree: as holders, and as servers below a parent.

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
    parent.on_failure(&Failure::TooLarge, "too large");
    let status = get(&router, "/v1/status").await.json();
    assert_eq!(status["parents"], json!(["http://127.0.0.1:7399"]));
    assert_eq!(status["parent"], json!({"error": "too large"}));
    assert_eq!(status["level"], 1);
    let status = get(&crate::http::tests::router(), "/v1/status").await;
    assert_eq!(status.json().get("parent"), None);
}
