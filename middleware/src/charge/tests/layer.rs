//! Charges of a layer's limits.

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response};
use http_body_util::Full;
use tower::{Service, ServiceExt as _, service_fn};
use tower_layer::Layer as _;

use super::*;
use crate::{
    Callers, Limit, LimitLayer, OnLimit, Quota, RequestHead,
    testing::{TestResponse, limited, poll_and_drop, send, status},
};

const ACTUAL: HeaderName = HeaderName::from_static("actual");

fn layer(registry: &Arc<Registry>, limits: impl IntoIterator<Item = Limit>) -> LimitLayer {
    LimitLayer::new(Arc::clone(registry), Callers::new(), limits)
}

/// A limit whose cost of five is that of the response header instead.
fn by_header(resource: &str) -> Limit {
    Limit::rate(resource)
        .cost(cost(5.0))
        .settle_by(|response| response.headers.get(&ACTUAL)?.to_str().ok()?.parse().ok())
}

/// A service that answers with the header of the request.
fn echo()
-> impl Service<Request<()>, Response = Response<Full<Bytes>>, Error = Infallible, Future: Send> + Clone
{
    service_fn(async |request: Request<()>| {
        let mut response = Response::new(Full::from("ok"));
        response.headers_mut().extend(request.headers().clone());
        Ok(response)
    })
}

fn costing(actual: &'static str) -> Request<()> {
    let mut request = Request::new(());
    request
        .headers_mut()
        .insert(ACTUAL, HeaderValue::from_static(actual));
    request
}

async fn respond(layer: &LimitLayer, request: Request<()>) -> TestResponse {
    layer.layer(echo()).oneshot(request).await.unwrap()
}

/// How many tokens of a resource are available.
fn left(registry: &Arc<Registry>, resource: &str) -> u32 {
    available(&Rate::new(Arc::clone(registry), resource))
}

#[tokio::test(start_paused = true)]
async fn response_settles_the_cost() {
    for (actual, expected) in [
        ("0", 20),
        ("2.5", 17),
        ("5", 15),
        ("12", 8),
        ("-1", 15),
        ("?", 15),
    ] {
        let registry = fixed(20.0);
        let response = respond(&layer(&registry, [by_header("api")]), costing(actual)).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["ratelimit"], r#""api";r=15;t=1"#);
        drop(response);
        assert_eq!(left(&registry, "api"), expected, "{actual}");
    }
}

#[tokio::test(start_paused = true)]
async fn handler_settles_the_cost_after_its_response() {
    let registry = fixed(20.0);
    let (charges, mut received) = tokio::sync::mpsc::unbounded_channel();
    let service = layer(&registry, [Limit::rate("publish").settle_in_handler()]).layer(service_fn(
        async |request: Request<()>| {
            let charge: &Charge = request.extensions().get().unwrap();
            charges.send(charge.clone()).unwrap();
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("accepted")))
        },
    ));
    drop(service.oneshot(Request::new(())).await.unwrap());
    assert_eq!(left(&registry, "publish"), 19);
    advance(SECOND).await;
    let charge = received.recv().await.unwrap();
    charge.settle(8.0);
    assert_eq!(left(&registry, "publish"), 13, "one came back meanwhile");
}

#[tokio::test(start_paused = true)]
async fn each_limit_is_settled_by_its_own_rule() {
    let registry = fixed(50.0);
    let twice = Limit::rate("api")
        .named("twice")
        .cost(cost(10.0))
        .settle_by(|response| {
            let actual: f64 = response.headers.get(&ACTUAL)?.to_str().ok()?.parse().ok()?;
            Some(2.0 * actual)
        });
    let limits = [
        by_header("api"),
        twice,
        Limit::rate("api").named("one"),
        by_header("other"),
    ];
    let limits = layer(&registry, limits);
    drop(respond(&limits, costing("1")).await);
    assert_eq!(left(&registry, "api"), 50 - 1 - 2 - 1);
    assert_eq!(left(&registry, "other"), 49);
}

#[tokio::test(start_paused = true)]
async fn handler_settles_the_limits_of_all_layers() {
    let registry = fixed(20.0);
    let limit = |resource| Limit::rate(resource).settle_in_handler();
    let inner = layer(&registry, [limit("tenant"), by_header("api")]).layer(service_fn(
        async |request: Request<()>| {
            request.extensions().get::<Charge>().unwrap().settle(4.0);
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("ok")))
        },
    ));
    let service = layer(&registry, [limit("fleet")]).layer(inner);
    service.oneshot(Request::new(())).await.unwrap();
    let left = ["tenant", "fleet", "api"].map(|resource| left(&registry, resource));
    assert_eq!(left, [16, 16, 15], "the response settles `api`");
}

/// Whether the charge that each of two requests gives its handler is empty; `None` without one.
async fn charges(limits: impl IntoIterator<Item = Limit>) -> [Option<bool>; 2] {
    let limits = layer(&fixed(1.0), limits);
    let service = limits.layer(service_fn(async |request: Request<()>| {
        let charge = request.extensions().get();
        let mut response = Response::new(Full::<Bytes>::from("ok"));
        response
            .extensions_mut()
            .insert(charge.map(Charge::is_empty));
        Ok::<_, Infallible>(response)
    }));
    let mut found = [None; 2];
    for found in &mut found {
        let response = service.clone().oneshot(Request::new(())).await.unwrap();
        assert_eq!(response.status(), 200);
        *found = *response.extensions().get().unwrap();
    }
    found
}

#[tokio::test(start_paused = true)]
async fn handler_without_such_a_limit_gets_no_charge() {
    let limits = [
        by_header("api").cost(cost(0.1)),
        Limit::rate("other").cost(cost(0.1)),
    ];
    assert_eq!(charges(limits).await, [None; 2]);
    let skipped = Limit::rate("api").settle_in_handler().skip(|_| true);
    assert_eq!(charges([skipped]).await, [None; 2]);
}

#[tokio::test(start_paused = true)]
async fn handler_gets_an_empty_charge_of_what_is_not_charged() {
    let shadow = Limit::rate("api")
        .settle_in_handler()
        .on_limit(OnLimit::Shadow);
    let exceeded = [Some(false), Some(true)];
    assert_eq!(charges([shadow.clone()]).await, exceeded);
    let beside = Limit::rate("other").cost(cost(0.1));
    assert_eq!(charges([shadow, beside]).await, exceeded);
    let gauge = Limit::gauge("db").settle_in_handler();
    assert_eq!(charges([gauge]).await, [Some(true); 2]);
}

#[tokio::test(start_paused = true)]
async fn refused_request_settles_nothing() {
    let registry = fixed(20.0);
    let limits = [
        by_header("api"),
        Limit::local(Quota::new(1.0, SECOND).unwrap()),
    ];
    let limits = layer(&registry, limits);
    assert_eq!(respond(&limits, costing("3")).await.status(), 200);
    assert_eq!(respond(&limits, costing("3")).await.status(), 429);
    assert_eq!(left(&registry, "api"), 17);
}

#[tokio::test(start_paused = true)]
async fn shadow_limit_settles_what_it_spent() {
    let registry = fixed(6.0);
    let shadow = by_header("api").on_limit(OnLimit::Shadow);
    let limits = layer(&registry, [shadow.clone()]);
    for (actual, expected) in [("4", 2), ("9", 2)] {
        assert_eq!(respond(&limits, costing(actual)).await.status(), 200);
        let tally = registry.known("api").tally();
        assert_eq!(
            6.0 - tally.admitted,
            f64::from(expected),
            "the second would be refused"
        );
    }
    // An enforcing limit spends for both.
    let registry = fixed(6.0);
    let limits = layer(&registry, [shadow, Limit::rate("api").named("enforced")]);
    drop(respond(&limits, costing("4")).await);
    assert_eq!(left(&registry, "api"), 5);
}

#[tokio::test(start_paused = true)]
async fn local_limit_settles_its_own_bucket() {
    let registry = fixed(1.0);
    let local = Limit::local_per("{header:x-tenant}", Quota::new(6.0, SECOND).unwrap());
    let limits = layer(&registry, [local.cost(cost(5.0)).settle_by(|_| Some(2.0))]);
    let request = || {
        let mut request = Request::new(());
        request
            .headers_mut()
            .insert("x-tenant", HeaderValue::from_static("acme"));
        request
    };
    let statuses = [200, 429];
    assert_eq!(respond(&limits, request()).await.status(), statuses[0]);
    assert_eq!(
        respond(&limits, request()).await.status(),
        statuses[1],
        "four are left"
    );
    advance(SECOND / 5).await;
    assert_eq!(respond(&limits, request()).await.status(), statuses[0]);
}

#[tokio::test(start_paused = true)]
async fn delayed_request_is_settled_by_its_response() {
    let registry = fixed(10.0);
    let delay = OnLimit::Delay { max_delay: SECOND };
    let limits = layer(&registry, [by_header("api").on_limit(delay)]);
    let start = clock::now();
    for expected in [0, 400, 1_300, 2_200] {
        let response = respond(&limits, costing("9")).await;
        assert_eq!(response.status(), 200);
        assert_eq!(clock::now().since(start).as_millis(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn failed_service_leaves_the_charge() {
    let registry = fixed(20.0);
    let service = layer(&registry, [by_header("api")]).layer(service_fn(async |_: Request<()>| {
        Err::<Response<Full<Bytes>>, _>("broken")
    }));
    assert!(service.oneshot(Request::new(())).await.is_err());
    assert_eq!(left(&registry, "api"), 15);
}

#[tokio::test(start_paused = true)]
async fn request_without_a_service_is_charged_its_estimate() {
    let registry = fixed(20.0);
    let limits = layer(
        &registry,
        [by_header("api"), Limit::rate("publish").settle_in_handler()],
    );
    let request = costing("1");
    assert!(
        limits
            .try_admit(&RequestHead::of(&request))
            .unwrap()
            .is_empty()
    );
    assert_eq!(left(&registry, "api"), 15);
    assert_eq!(left(&registry, "publish"), 19);
}

#[tokio::test(start_paused = true)]
async fn canceled_request_leaks_nothing() {
    const PAUSE: Duration = Duration::from_millis(100);
    let delay = OnLimit::Delay {
        max_delay: 2 * SECOND,
    };
    for polls in 1.. {
        let registry = fixed(10.0);
        let limits = [
            by_header("tenant/{header:x-tenant}").on_limit(delay),
            Limit::rate("publish/{header:x-tenant}")
                .settle_in_handler()
                .on_limit(delay),
        ];
        let service = layer(&registry, limits).layer(service_fn(async |request: Request<()>| {
            let charge = request.extensions().get::<Charge>().cloned().unwrap();
            sleep(PAUSE).await;
            charge.settle(3.0);
            let mut response = Response::new(Full::<Bytes>::from("ok"));
            response
                .headers_mut()
                .insert(ACTUAL, HeaderValue::from_static("4"));
            Ok::<_, Infallible>(response)
        }));
        let full = Rate::new(Arc::clone(&registry), "tenant/acme");
        full.try_acquire(cost(10.0)).unwrap();
        drop(full);
        let mut request = Request::new(());
        request
            .headers_mut()
            .insert("x-tenant", HeaderValue::from_static("acme"));
        let response = poll_and_drop(service.oneshot(request), polls, PAUSE, |_| {}).await;
        let completed = response.is_some();
        drop(response);
        advance(HOUR).await;
        for resource in ["tenant/acme", "publish/acme"] {
            assert_eq!(left(&registry, resource), 10, "{polls} polls");
            advance(HOUR).await;
            assert!(registry.forget(registry.known(resource)), "{polls} polls");
        }
        if completed {
            assert!(polls > 2);
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn caller_that_leaves_early_is_charged_its_estimate() {
    let registry = fixed(10.0);
    let service = layer(&registry, [by_header("api")]).layer(service_fn(async |_: Request<()>| {
        sleep(SECOND / 100).await;
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("ok")))
    }));
    let response =
        poll_and_drop(service.oneshot(Request::new(())), 1, Duration::ZERO, |_| {}).await;
    assert!(response.is_none());
    assert_eq!(left(&registry, "api"), 5);
}

#[tokio::test(start_paused = true)]
async fn limit_with_final_costs_is_not_settled() {
    let registry = fixed(10.0);
    let service = limited(&registry, [Limit::rate("api")]);
    assert_eq!(status(&service).await, 200);
    drop(send(&service, Request::new(())).await);
    assert_eq!(left(&registry, "api"), 8);
}
