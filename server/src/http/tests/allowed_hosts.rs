//! Requests by other host names and from other sites, without authentication.

use axum::http::Method;

use super::{authentication::routes, *};
use crate::http::AllowedHosts;

fn on_loopback() -> Router {
    let hosts = AllowedHosts::of_loopback("http://127.0.0.1:7300");
    let app = app().with_allowed_hosts(hosts);
    crate::http::router(app)
}

async fn call(router: &Router, method: Method, path: &str, headers: &[(&str, &str)]) -> Reply {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    send(router, request.body(Body::empty()).unwrap()).await
}

#[tokio::test]
async fn foreign_host_is_rejected_on_every_route() {
    let router = on_loopback();
    let host = [("host", "attacker.example:7300")];
    for (method, path) in routes() {
        let probe = path == "/livez" || path == "/readyz";
        let reply = call(&router, method.clone(), &path, &host).await;
        if probe {
            assert_eq!(reply.status, 200, "{path}");
        } else {
            let problem = reply.problem(421);
            assert_eq!(problem.kind, "/problems/misdirected-request");
        }
        let reply = call(&router, method, &path, &[("host", "localhost:7300")]).await;
        assert_ne!(reply.status, 421, "{path}");
    }
    call(&router, Method::GET, "/nowhere", &host)
        .await
        .problem(421);
}

#[tokio::test]
async fn metrics_listener_checks_hosts_on_loopback_only() {
    for (loopback, expected) in [(true, 421), (false, 200)] {
        let router = crate::http::metrics_router(app(), loopback);
        let foreign = [("host", "attacker.example:9090")];
        let reply = call(&router, Method::GET, "/metrics", &foreign).await;
        assert_eq!(reply.status, expected);
        let ours = [("host", "127.0.0.1:9090")];
        let reply = call(&router, Method::GET, "/metrics", &ours).await;
        assert_eq!(reply.status, 200);
    }
}

#[tokio::test]
async fn cross_origin_pages_can_neither_change_nor_read() {
    let stored = Stored::new();
    let foreign = ("origin", "http://attacker.example");
    let host = ("host", "127.0.0.1:7300");
    let glob = "/v1/templates/a";
    let json = ("content-type", "application/json");
    for method in [Method::PUT, Method::DELETE] {
        call(&stored.router, method, glob, &[host, foreign, json])
            .await
            .problem(403);
    }
    // No route reads the content types of forms.
    for media in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
    ] {
        let form = [host, ("content-type", media)];
        call(&stored.router, Method::POST, "/v1/capacity", &form)
            .await
            .problem(415);
    }
    // No CORS header allows another site anything.
    let request = ("access-control-request-method", "PUT");
    let preflight = call(
        &stored.router,
        Method::OPTIONS,
        glob,
        &[host, foreign, request],
    )
    .await;
    let read = call(
        &stored.router,
        Method::GET,
        "/v1/templates",
        &[host, foreign],
    )
    .await;
    assert_eq!(preflight.status, 405);
    for reply in [preflight, read] {
        let allows = |name: &axum::http::HeaderName| name.as_str().starts_with("access-control");
        assert!(!reply.headers.keys().any(allows), "{reply:?}");
    }
}
