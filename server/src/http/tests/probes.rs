//! Liveness and readiness.

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
