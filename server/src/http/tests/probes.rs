//! Liveness and readiness.

use std::time::Duration;

use serde_json::json;

use super::*;

#[tokio::test]
async fn draining_server_is_alive_but_not_ready() {
    let app = app();
    let router = crate::http::router(app.clone());
    // Orchestrators may add a query.
    for path in ["/livez", "/readyz", "/livez?verbose", "/readyz?verbose"] {
        let reply = get(&router, path).await;
        assert_eq!(reply.status, 200);
        // No proxy may cache a probe.
        assert_eq!(reply.header("cache-control"), "no-store");
    }
    app.draining.begin();
    assert_eq!(get(&router, "/livez").await.status, 200);
    let reply = get(&router, "/readyz").await;
    reply.problem(503);
    assert_eq!(reply.header("retry-after"), "1");
}

#[tokio::test]
async fn draining_server_still_serves_requests() {
    let app = app();
    let router = crate::http::router(app.clone());
    app.draining.begin();
    let body = r#"{"client_id":"c","resources":[{"resource_id":"db","wants":1}]}"#;
    assert_eq!(post(&router, "/v1/capacity", body).await.status, 200);
}

fn text(reply: &Reply) -> &str {
    std::str::from_utf8(&reply.body).unwrap()
}

#[tokio::test]
async fn readiness_and_status_report_learning_mode_and_document_errors() {
    let settings = ledger::Settings {
        predecessor: Predecessor::Until(clock::now().after(Duration::from_secs(1000))),
        ..SETTINGS
    };
    let app = app_of(Document::built_in(), settings, Moment::NEVER);
    let router = crate::http::router(app.clone());
    for client in ["a", "b"] {
        let body = json!({"client_id": client, "resources": [{"resource_id": client, "wants": 1}]});
        post(&router, "/v1/capacity", body.to_string()).await;
    }
    let reply = get(&router, "/readyz").await;
    assert_eq!(reply.status, 200);
    let left = text(&reply).strip_prefix("ok\nlearning mode for another ");
    let left = left.and_then(|rest| rest.split_once(" s: ")?.0.parse::<u64>().ok());
    assert!(
        left.is_some_and(|left| (900..=1000).contains(&left)),
        "{reply:?}"
    );
    assert!(!text(&reply).contains("config_error"), "{reply:?}");
    app.document.reject("line 3: secret");
    let reply = get(&router, "/readyz").await;
    assert!(
        text(&reply).ends_with(
            "\nthe source of the document has a problem: see config_error in /v1/status\n"
        ),
        "{reply:?}"
    );
    assert!(!text(&reply).contains("secret"), "{reply:?}");
    let status = get(&router, "/v1/status").await.json();
    assert_eq!(status["resources_learning"], 2, "{status}");
    let left = status["learning_ends_in"].as_f64().unwrap();
    assert!((900.0..=1000.0).contains(&left), "{status}");
}

#[tokio::test]
async fn server_without_predecessor_reports_no_learning_mode() {
    let router = crate::http::router(app());
    assert_eq!(text(&get(&router, "/readyz").await), "ok\n");
    let status = get(&router, "/v1/status").await.json();
    for field in ["learning_ends_in", "resources_learning", "unmet_since"] {
        assert!(status.get(field).is_none(), "{status}");
    }
}
