//! Keys by route in an axum router.
#![cfg(feature = "axum")]

use std::convert::Infallible;

use axum::{Router, body::Body, routing::get};
use http::{Request, Response};
use tower::{Layer as _, Service, ServiceExt as _, service_fn};
use tower_doorman::{Doorman, Key, Limit, LimitLayer};

/// Checks the route in the key of a request.
async fn check<S>(wrap: impl Fn(LimitLayer) -> S, path: &str, expected: &str)
where
    S: Service<Request<Body>, Error = Infallible>,
{
    let doorman = Doorman::unlimited();
    let service = wrap(
        doorman
            .layer([Limit::rate(Key::route())])
            .expect("valid limits"),
    );
    let request = Request::get(path).body(Body::empty()).expect("a request");
    let Ok(_) = service.oneshot(request).await;
    let limits = doorman.snapshot().limits.into_iter();
    let ids: Vec<_> = limits.map(|limit| limit.resource.to_string()).collect();
    let encoded = [("/", "%2F"), ("{", "%7B"), ("}", "%7D")];
    let encode = |text: String, (plain, code): &(&str, &str)| text.replace(plain, code);
    let expected = encoded.iter().fold(expected.to_owned(), encode);
    assert_eq!(ids, [format!("route/{expected}")], "{path}");
}

/// A router with every kind of route.
fn app() -> Router {
    let users = Router::new().route("/users/{id}", get(async || "user"));
    let empty = async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty()));
    Router::new()
        .route("/orders/{id}", get(async || "order"))
        .nest("/api", users)
        .nest_service("/files", service_fn(empty))
        .fallback(async || "not found")
}

#[tokio::test]
async fn layer_of_router_knows_the_whole_template() {
    let wrap = |limits| app().layer(limits);
    for (path, template) in [
        ("/orders/7", "/orders/{id}"),
        ("/orders/8?page=2", "/orders/{id}"),
        ("/api/users/7", "/api/users/{id}"),
    ] {
        check(wrap, path, template).await;
    }
}

#[tokio::test]
async fn unmatched_and_nested_services_share_a_key() {
    let wrap = |limits| app().layer(limits);
    for path in [
        "/nowhere",
        "/orders",
        "/api/nowhere",
        "/files/a",
        "/files/b/c",
    ] {
        check(wrap, path, "(unmatched)").await;
    }
}

#[tokio::test]
async fn layer_in_nested_router_knows_the_whole_template() {
    let wrap = |limits: LimitLayer| {
        let files = Router::new().route("/{name}", get(async || "file"));
        Router::new()
            .nest("/api", files.clone().layer(limits.clone()))
            .nest_service("/files", files.layer(limits))
    };
    check(wrap, "/api/a", "/api/{name}").await;
    check(wrap, "/files/a", "/files/{name}").await;
}

#[tokio::test]
async fn layer_around_router_knows_no_template() {
    check(|limits| limits.layer(app()), "/orders/7", "(unmatched)").await;
}
