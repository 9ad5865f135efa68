//! `X-Request-Id` of responses.

use axum::routing::get as on_get;
use tower_http::catch_panic::CatchPanicLayer;

use super::*;
use crate::{
    auth::testing::{Home, SECRET},
    observe::context,
};

const ID: &str = "x-request-id";

async fn named(router: &Router, request: Request<Body>, name: &str) -> Reply {
    let mut request = request;
    request.headers_mut().insert(ID, name.parse().unwrap());
    send(router, request).await
}

fn lease(body: impl Into<Body>) -> Request<Body> {
    let request = Request::post("/v1/capacity").header("content-type", "application/json");
    request.body(body.into()).unwrap()
}

fn asked_for(uri: &str) -> Request<Body> {
    Request::get(uri).body(Body::empty()).unwrap()
}

#[tokio::test]
async fn every_response_has_the_request_id() {
    const GOOD: &str = r#"{"client_id":"c","resources":[{"resource_id":"db","wants":1}]}"#;

    let app = app();
    let router = crate::http::router(app.clone());
    let mut bare = lease(GOOD);
    bare.headers_mut().remove("content-type");
    let put = Request::put("/v1/templates/db").header("content-type", "application/json");
    for (status, request) in [
        (200, lease(GOOD)),
        (200, asked_for("/openapi.json")),
        (400, lease("{")),
        (404, asked_for("/nowhere")),
        (404, asked_for("/docs/nothing")),
        (405, asked_for("/v1/capacity")),
        (409, put.body(Body::from(r#"{"capacity":1}"#)).unwrap()),
        (413, lease(vec![b' '; doorman_openapi::MAX_BODY_BYTES + 1])),
        (415, bare),
        (422, lease("{}")),
    ] {
        let what = format!("{} {}", request.method(), request.uri());
        let reply = named(&router, request, "mine").await;
        assert_eq!(reply.status, status, "{what}: {reply:?}");
        assert_eq!(reply.header(ID), "mine", "{what}: {reply:?}");
    }
    app.draining.begin();
    let reply = named(&router, asked_for("/readyz"), "mine").await;
    assert_eq!((reply.status.as_u16(), reply.header(ID)), (503, "mine"));

    let auth = Arc::new(Home::new().secret(SECRET).load().unwrap());
    let authenticating = super::app().with_auth(Some(auth));
    let authenticating = crate::http::router(authenticating);
    let reply = named(&authenticating, lease(GOOD), "mine").await;
    assert_eq!((reply.status.as_u16(), reply.header(ID)), (401, "mine"));

    let alone = crate::http::metrics_router(app, false);
    for (status, uri) in [(200, "/metrics"), (404, "/v1/status")] {
        let reply = named(&alone, asked_for(uri), "mine").await;
        assert_eq!((reply.status.as_u16(), reply.header(ID)), (status, "mine"));
    }

    let panics = Router::new()
        .route("/", on_get(async || -> () { panic!("a bug") }))
        .layer(CatchPanicLayer::custom(crate::http::panicked))
        .layer(context::layer());
    let reply = named(&panics, asked_for("/"), "mine").await;
    assert_eq!((reply.status.as_u16(), reply.header(ID)), (500, "mine"));
}

#[tokio::test]
async fn request_id_is_at_most_128_visible_bytes() {
    let router = router();
    for name in ["1", "a,b", "\"'\\{}%", "~", &"x".repeat(128)] {
        let reply = named(&router, asked_for("/livez"), name).await;
        assert_eq!(reply.header(ID), name);
    }
}

#[tokio::test]
async fn request_without_valid_id_gets_a_new_one() {
    let router = router();
    let mut given = std::collections::BTreeSet::new();
    let mut requests = vec![asked_for("/livez"), asked_for("/nowhere")];
    for wrong in [&b""[..], b"two words", b"\xff", b"\xc3\xbc", &[b'x'; 129]] {
        let mut request = asked_for("/livez");
        let value = axum::http::HeaderValue::from_bytes(wrong).unwrap();
        request.headers_mut().insert(ID, value);
        requests.push(request);
    }
    let mut doubled = asked_for("/livez");
    for name in ["one", "other"] {
        doubled.headers_mut().append(ID, name.parse().unwrap());
    }
    requests.push(doubled);
    let count = requests.len();
    for request in requests {
        let reply = send(&router, request).await;
        let name = reply.header(ID).to_owned();
        assert_eq!(name.len(), 32, "{reply:?}");
        assert!(name.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
        given.insert(name);
    }
    assert_eq!(given.len(), count, "all are different");
}
