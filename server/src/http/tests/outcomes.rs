//! Outcomes in lease requests, and the rights to move a capacity by them.

use doorman_openapi::paths;
use serde_json::{Value, json};

use super::*;
use crate::auth::testing::{Home, Issuer, SECRET, claims};

const DOCUMENT: &str = "resources: [{identifier_glob: '*', capacity: 100, feedback: {}, \
                        algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}}]";

fn app_with_feedback() -> AppState {
    app_with(Document::parse(DOCUMENT).unwrap())
}

fn request(seq: u64, ok: u64) -> Value {
    json!({"client_id": "c", "seq": seq, "resources": [{
        "resource_id": "partner", "wants": 10, "used": ok,
        "outcomes": {"refused": 2.5, "ok": ok}
    }]})
}

#[tokio::test]
async fn client_without_the_scope_is_told_once_that_its_outcomes_move_nothing() {
    let home = Home::new().secret(SECRET);
    let app = app_with_feedback().with_auth(Some(Arc::new(home.load().unwrap())));
    let router = crate::http::router(app);
    let lease = async |scope: &str, client: &str, seq: u64| {
        let claims = claims(&json!({"iss": "doorman", "scope": scope}));
        let token = Issuer::of_secret(SECRET).sign(&claims);
        let mut body = request(seq, 10 * seq);
        body["client_id"] = client.into();
        let request = Request::post(paths::CAPACITY)
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json")
            .body(Body::from(body.to_string()))
            .unwrap();
        send(&router, request).await.json()
    };
    let warning = "outcomes of `partner` are shown and move no capacity: the token lacks the \
                   scope `feedback`";
    let answer = lease("capacity", "a", 1).await;
    assert_eq!(answer["warnings"], json!([warning]));
    assert_eq!(answer["resources"][0]["gets"].get("effective"), None);
    let answer = lease("capacity", "a", 2).await;
    assert_eq!(answer.get("warnings"), None, "{answer}");
    let answer = lease("capacity feedback", "b", 1).await;
    assert_eq!(answer.get("warnings"), None, "{answer}");
    assert_eq!(answer["resources"][0]["report"], true);
    assert_eq!(answer["resources"][0]["gets"]["effective"], 100.0);
}

#[tokio::test]
async fn outcomes_are_shown_and_absent_ones_are_null() {
    let router = crate::http::router(app_with_feedback());
    for (seq, ok) in [(1, 0), (2, 30)] {
        post(&router, paths::CAPACITY, request(seq, ok).to_string()).await;
    }
    post(
        &router,
        paths::CAPACITY,
        json!({"client_id": "silent", "resources": [{"resource_id": "other", "wants": 1}]})
            .to_string(),
    )
    .await;
    let resource = get(&router, "/v1/resources/partner").await.json();
    assert_eq!(resource["outcomes"]["total"]["ok"], 30);
    assert_eq!(resource["effective"], 100.0);
    assert_eq!(resource["feedback"]["state"], "open");
    let leases = get(&router, "/v1/resources/partner/leases").await.json();
    assert_eq!(leases["leases"][0]["outcomes"]["refused"], 2.5);
    let other = get(&router, "/v1/resources/other").await.json();
    assert_eq!(other["outcomes"], Value::Null);
    let leases = get(&router, "/v1/resources/other/leases").await.json();
    assert_eq!(leases["leases"][0]["outcomes"], Value::Null);
}

#[tokio::test]
async fn invalid_totals_are_rejected_at_their_field() {
    let router = crate::http::router(app_with_feedback());
    for (field, value) in [
        ("outcomes", json!({"ok": -1})),
        ("outcomes", json!({"refused": -1})),
        ("pause", json!(3601)),
        ("seen", json!({"remaining": 1, "reset": 0})),
    ] {
        let mut body = request(1, 1);
        body["resources"][0][field] = value;
        let reply = post(&router, paths::CAPACITY, body.to_string()).await;
        let problem = reply.problem(422);
        let pointer = &problem.errors[0].pointer;
        assert!(
            pointer.starts_with(&format!("/resources/0/{field}")),
            "{pointer}"
        );
    }
    assert_eq!(get(&router, "/v1/resources/partner").await.status, 404);
}
