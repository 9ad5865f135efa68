//! What a key by route is made of, in a real router.
#![cfg(feature = "axum")]

use std::convert::Infallible;

use axum::{Router, body::Body, routing::get};
use http::{Request, Response};
use tower::{Layer as _, Service, ServiceExt as _, service_fn};
use tower_doorman::{Doorman, Key, Limit, LimitLayer};

/// Checks the route that a request is counted for, in a service that wears the limit.
async fn check<S>(wear: impl Fn(LimitLayer) -> S, path: &str, expected: &str)
where
    S: Service<Request<Body>, Error = Infallible>,
{
    let doorman = Doorman::unlimited();
    let service = wear(doorman.layer([Limit::rate(Key::route())]));
    let request = Request::get(path).body(Body::empty()).expect("a request");
    let Ok(_) = service.oneshot(request).await;
    let limits = doorman.snapshot().limits.into_iter();
    let ids: Vec<_> = limits.map(|limit| limit.resource.to_string()).collect();
    let encoded = [("/", "%2F"), ("{", "%7B"), ("}", "%7D")];
    let encode = |text: String, (plain, code): &(&str, &str)| text.replace(plain, code);
    let expected = encoded.iter().fold(expected.to_owned(), encode);
    assert_eq!(ids, [format!("route/{expected}")], "{path}");
}

/// A router with every way to a handler.
fn app() -> Router {
    let users = Router::new().route("/users/{id}", get(async || "user"));
    let empty = async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty()));
    Router::new()
        .route("/orders/{id}", get(async || "order"))
        .nest("/api", users)
        .nest_service("/files", service_fn(empty))
        .fallback(async || "nothing here")
}

#[tokio::test]
async fn a_layer_of_the_router_knows_the_whole_template() {
    let wear = |limits| app().layer(limits);
    for (path, template) in [
        ("/orders/7", "/orders/{id}"),
        ("/orders/8?page=2", "/orders/{id}"),
        ("/api/users/7", "/api/users/{id}"),
    ] {
        check(wear, path, template).await;
    }
}

#[tokio::test]
async fn what_no_route_matches_and_what_a_nested_service_serves_share_a_key() {
    let wear = |limits| app().layer(limits);
    for path in [
        "/nowhere",
        "/orders",
        "/api/nowhere",
        "/files/a",
        "/files/b/c",
    ] {
        check(wear, path, "(unmatched)").await;
    }
}

#[tokio::test]
async fn a_layer_within_what_is_nested_knows_the_whole_template_too() {
    let wear = |limits: LimitLayer| {
        let files = Router::new().route("/{name}", get(async || "file"));
        Router::new()
            .nest("/api", files.clone().layer(limits.clone()))
            .nest_service("/files", files.layer(limits))
    };
    check(wear, "/api/a", "/api/{name}").await;
    check(wear, "/files/a", "/files/{name}").await;
}

#[tokio::test]
async fn a_layer_around_the_router_knows_none() {
    check(|limits| limits.layer(app()), "/orders/7", "(unmatched)").await;
}
