mod gauges;

use std::{mem, sync::Arc, time::Duration};

use bytes::{Buf, Bytes};
use http_body_util::{BodyExt as _, Empty, Full};
use tower::{ServiceExt as _, service_fn};
use tower_layer::Layer as _;

use super::*;
use crate::{
    Callers, Limit, LimitLayer, OnLimit, Refusal, RefusalReason,
    limiter::testing::{leased, leased_registry, static_registry},
    limiter::{LeaseState, Registry},
    testing::{Inner, admitted, body, header, limited, send, status},
};

fn fixed(rate: f64) -> Arc<Registry> {
    static_registry(move |_| LeaseState::Fixed { rate })
}

#[tokio::test(start_paused = true)]
async fn admitted_request_gets_inner_response_and_headers() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [Limit::rate("api").named("per-fleet")]);
    registry.publish("api", leased(10.0, Duration::from_secs(60)));

    let response = send(&service, Request::new(())).await;
    assert_eq!(response.status(), 200);
    assert_eq!(
        header(&response, "ratelimit-policy"),
        r#""per-fleet";q=1000;w=1"#
    );
    assert_eq!(header(&response, "ratelimit"), r#""per-fleet";r=9;t=1"#);
    assert_eq!(body(response).await, "ok");
}

#[tokio::test(start_paused = true)]
async fn refused_request_gets_problem_and_retry_after() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [Limit::rate("api").named("per-fleet")]);
    registry.publish("api", leased(0.4, Duration::from_secs(60)));
    assert_eq!(status(&service).await, 200);

    let response = send(&service, Request::new(())).await;
    assert_eq!(response.status(), 429);
    assert_eq!(header(&response, "retry-after"), "3");
    assert_eq!(
        header(&response, "ratelimit-policy"),
        r#""per-fleet";q=1000;w=1"#
    );
    assert_eq!(header(&response, "ratelimit"), r#""per-fleet";r=0;t=3"#);
    assert_eq!(
        header(&response, "content-type"),
        "application/problem+json"
    );
    assert_eq!(header(&response, "cache-control"), "no-store");

    let refusal: &Refusal = response.extensions().get().unwrap();
    assert_eq!(refusal.reason(), RefusalReason::Spent);
    assert_eq!(refusal.retry_after(), Duration::from_millis(2_500));
    assert_eq!(refusal.limit(), "per-fleet");
    assert_eq!(refusal.resource().unwrap().as_str(), "api");

    let body: serde_json::Value = serde_json::from_slice(&body(response).await).unwrap();
    assert_eq!(
        body,
        serde_json::json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Request cannot be satisfied as assigned quota has been exceeded",
            "status": 429,
            "detail": "limit `per-fleet` exceeded; retry in 3 s",
            "violated-policies": ["per-fleet"],
            "reason": "spent",
        })
    );
}

#[tokio::test(start_paused = true)]
async fn retry_after_the_stated_wait_is_admitted() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [Limit::rate("api")]);
    registry.publish("api", leased(3.0, Duration::from_secs(60)));
    assert_eq!(admitted(&service, 10).await, 3);

    let response = send(&service, Request::new(())).await;
    let wait = response
        .extensions()
        .get::<Refusal>()
        .unwrap()
        .retry_after();
    // Tokio's clock has a resolution of milliseconds.
    tokio::time::advance(wait.saturating_sub(Duration::from_millis(1))).await;
    assert_eq!(status(&service).await, 429);
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(status(&service).await, 200);
}

#[tokio::test(start_paused = true)]
async fn clones_connections_and_layers_share_one_limiter() {
    let registry = fixed(50.0);
    let layer = LimitLayer::new(Arc::clone(&registry), Callers::new(), [Limit::rate("api")]);
    let other = LimitLayer::new(registry, Callers::new(), [Limit::rate("api")]);
    let connections: Vec<_> = (0..100)
        .map(|connection| {
            let layer = if connection % 2 == 0 { &layer } else { &other };
            let service = layer.clone().layer(Inner).clone();
            tokio::spawn(async move { admitted(&service, 2).await })
        })
        .collect();
    let mut total = 0;
    for connection in connections {
        total += connection.await.unwrap();
    }
    assert_eq!(total, 50);
}

#[tokio::test(start_paused = true)]
async fn poll_ready_is_forwarded_and_reserves_nothing() {
    let layer = LimitLayer::new(fixed(1.0), Callers::new(), [Limit::rate("api")]);
    let (inner, mut handle) = tower_test::mock::pair::<Request<()>, Response<Empty<Bytes>>>();
    let mut service = tower_test::mock::Spawn::new(layer.layer(inner));

    handle.allow(0);
    assert!(service.poll_ready().is_pending());
    handle.allow(1);
    for _ in 0..100 {
        assert!(service.poll_ready().is_ready());
    }
    let response = tokio::spawn(service.call(Request::new(())));
    let (_, send) = handle.next_request().await.unwrap();
    send.send_response(Response::new(Empty::new()));
    assert_eq!(response.await.unwrap().unwrap().status(), 200);
}

/// Fails unless polled ready before each call; a clone is not ready.
#[derive(Debug, Default)]
struct Strict {
    ready: bool,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Service<Request<()>> for Strict {
    type Response = Response<Empty<Bytes>>;
    type Error = &'static str;
    type Future = std::future::Ready<Result<Self::Response, &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        std::future::ready(if mem::take(&mut self.ready) {
            Ok(Response::new(Empty::new()))
        } else {
            Err("was not ready")
        })
    }
}

#[tokio::test(start_paused = true)]
async fn ready_service_is_called_after_a_wait() {
    let max_delay = Duration::from_secs(10);
    let limit = Limit::rate("api").on_limit(OnLimit::Delay { max_delay });
    let mut service = LimitLayer::new(fixed(1.0), Callers::new(), [limit]).layer(Strict::default());
    let mut responses = Vec::new();
    for _ in 0..3 {
        responses.push(service.ready().await.unwrap().call(Request::new(())));
    }
    for response in responses {
        assert_eq!(
            response.await.map(|response| response.status().as_u16()),
            Ok(200)
        );
    }
}

#[tokio::test]
async fn inner_error_is_unchanged() {
    let inner = service_fn(|_: Request<()>| async { Err::<Response<Empty<Bytes>>, _>("broken") });
    let service = LimitLayer::new(fixed(1.0), Callers::new(), [Limit::rate("api")]).layer(inner);
    let error: Result<_, &'static str> = service.oneshot(Request::new(())).await;
    assert_eq!(error.unwrap_err(), "broken");
}

/// Body data other than `Bytes`.
struct Chunk(Bytes);

impl From<Bytes> for Chunk {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl Buf for Chunk {
    fn remaining(&self) -> usize {
        self.0.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.0.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.0.advance(count);
    }
}

#[tokio::test]
async fn any_body_type_is_supported() {
    struct Upload(&'static [u8]);
    let inner = service_fn(|request: Request<Upload>| async {
        let body = Full::new(Chunk(Bytes::from_static(request.into_body().0)));
        Ok::<_, std::convert::Infallible>(Response::new(body))
    });
    let service = LimitLayer::new(fixed(1.0), Callers::new(), [Limit::rate("api")]).layer(inner);
    let request = || Request::new(Upload(b"abc"));

    let response = service.clone().oneshot(request()).await.unwrap();
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "abc"
    );
    let refused = service.oneshot(request()).await.unwrap();
    assert!(
        refused
            .into_body()
            .collect()
            .await
            .unwrap()
            .to_bytes()
            .starts_with(b"{")
    );
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn key_contains_the_axum_route() {
    use axum::{Router, body::Body, routing::get};

    let registry = fixed(1.0);
    let key = crate::Key::template("{method}/{route}").unwrap();
    let router = Router::new()
        .route("/orders/{id}", get(async || "order"))
        .route("/items/{id}", get(async || "item"))
        .layer(LimitLayer::new(
            Arc::clone(&registry),
            Callers::new(),
            [Limit::rate(key)],
        ));
    let status = async |path: &str| {
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        router
            .clone()
            .oneshot(request)
            .await
            .unwrap()
            .status()
            .as_u16()
    };

    assert_eq!(status("/orders/1").await, 200);
    assert_eq!(status("/orders/2").await, 429, "the same route");
    assert_eq!(status("/items/2").await, 200);
    let mut resources: Vec<_> = registry
        .limiters()
        .iter()
        .map(|limiter| limiter.resource().to_string())
        .collect();
    resources.sort();
    assert_eq!(
        resources,
        ["GET/%2Fitems%2F%7Bid%7D", "GET/%2Forders%2F%7Bid%7D"]
    );
}
