//! Unknown routes, wrong methods, panics.

use axum::routing::get as on_get;

use tower_http::catch_panic::CatchPanicLayer;

use super::*;

#[tokio::test]
async fn unknown_routes_are_not_found() {
    let router = router();
    for path in [
        "/nothing",
        "/docs/%ff",
        "/v1",
        "/v1/",
        "/v1/capacity/",
        "/v1/capacity/x",
        "/v1/resources/",
        "/v1/resources/a//b",
        "/v1/resources/a/leases/",
        "/V1/status",
        "/docs/nothing",
        "/docs/a/b",
        "/%ff",
    ] {
        let problem = get(&router, path).await.problem(404);
        assert_eq!(problem.kind, "/problems/not-found", "{path}");
        post(&router, path, "{}").await.problem(
            if ["/docs/nothing", "/docs/%ff"].contains(&path) {
                405
            } else {
                404
            },
        );
    }
    let long = format!("/{}", "x".repeat(10_000));
    assert!(get(&router, &long).await.body.len() < 1_000);
}

#[tokio::test]
async fn wrong_methods_name_the_allowed_ones() {
    let router = router();
    let all = [
        "GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW",
    ];
    for (path, right) in [
        ("/v1/capacity", "POST"),
        ("/v1/capacity/release", "POST"),
        ("/v1/server-capacity", "POST"),
        ("/v1/server-capacity/release", "POST"),
        ("/v1/discovery", "GET,HEAD"),
        ("/v1/status", "GET,HEAD"),
        ("/v1/resources", "GET,HEAD"),
        ("/v1/resources/a", "GET,HEAD"),
        ("/v1/resources/a/leases", "GET,HEAD"),
        ("/livez", "GET,HEAD"),
        ("/readyz", "GET,HEAD"),
        ("/openapi.json", "GET,HEAD"),
        ("/docs", "GET,HEAD"),
        ("/docs/", "GET,HEAD"),
        ("/", "GET,HEAD"),
    ] {
        for method in all.into_iter().filter(|method| !right.contains(method)) {
            let request = Request::builder().method(method).uri(path);
            let reply = send(&router, request.body(Body::empty()).unwrap()).await;
            let problem = reply.problem(405);
            assert_eq!(problem.kind, "/problems/method-not-allowed");
            assert!(problem.detail.contains(method), "{problem:?}");
            assert_eq!(reply.header("allow"), right, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn panic_is_an_opaque_internal_error() {
    let router = Router::new()
        .route("/panics", on_get(async || -> () { panic!("a secret") }))
        .layer(CatchPanicLayer::custom(crate::http::panicked));
    let reply = get(&router, "/panics").await;
    let problem = reply.problem(500);
    assert_eq!(problem.kind, "/problems/internal-error");
    assert!(!String::from_utf8_lossy(&reply.body).contains("secret"));
}

#[tokio::test]
async fn poisoned_ledger_grants_nothing() {
    let app = app();
    let router = crate::http::router(app.clone());
    let shared = Arc::clone(&app.ledger);
    let panicked = std::thread::spawn(move || shared.with(|_, _| panic!("in the middle of it")));
    assert!(panicked.join().is_err());

    let body = r#"{"client_id":"c","resources":[{"resource_id":"db","wants":1}]}"#;
    let reply = post(&router, "/v1/capacity", body).await;
    reply.problem(503);
    assert_eq!(reply.header("retry-after"), "1");
    for path in ["/v1/status", "/v1/resources", "/livez", "/readyz"] {
        let reply = get(&router, path).await;
        reply.problem(503);
        assert_eq!(reply.header("retry-after"), "1");
    }
    assert_eq!(get(&router, "/v1/discovery").await.status, 200);
}
