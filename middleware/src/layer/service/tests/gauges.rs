//! A gauge counts a request from its admission to the end of the response body.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use http::{HeaderMap, Request, Response};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt as _, Full, StreamBody};
use tower::{ServiceExt as _, service_fn};
use tower_layer::Layer as _;

use crate::{
    Callers, Cost, Limit, LimitLayer, OnLimit, Permit, Refusal, RefusalReason,
    limiter::{
        LeaseState, Limiter, Registry,
        testing::{leased, leased_as_requested, leased_registry, static_registry},
    },
    testing::{admitted, header, limited, poll_and_drop, send, status},
};

const MINUTE: Duration = Duration::from_secs(60);

fn fixed(units: f64) -> Arc<Registry> {
    static_registry(move |_| LeaseState::Fixed { rate: units })
}

fn layer(registry: &Arc<Registry>, limits: impl IntoIterator<Item = Limit>) -> LimitLayer {
    LimitLayer::new(Arc::clone(registry), Callers::new(), limits)
}

/// The units in use of the only gauge.
fn in_use(registry: &Registry) -> f64 {
    let limiters = registry.limiters().into_iter();
    let mut units = limiters.filter_map(Limiter::units_in_use);
    let units = units.next().expect("a gauge");
    units.in_use + units.waiting
}

#[tokio::test(start_paused = true)]
async fn unit_is_in_use_until_the_body_ends() {
    let registry = fixed(1.0);
    let service =
        layer(&registry, [Limit::gauge("db")]).layer(service_fn(async |_: Request<()>| {
            let mut trailers = HeaderMap::new();
            trailers.insert("checksum", "7".parse().unwrap());
            let frames = [Frame::data(Bytes::from("ok")), Frame::trailers(trailers)];
            let frames = stream::iter(frames.map(Ok::<_, Infallible>));
            Ok::<_, Infallible>(Response::new(StreamBody::new(frames)))
        }));
    let send = || service.clone().oneshot(Request::new(()));
    let mut body = send().await.unwrap().into_body();
    for has_data in [true, false] {
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.is_data(), has_data);
        assert_eq!(frame.trailers_ref().is_some(), !has_data);
        assert_eq!(in_use(&registry), 1.0);
        assert_eq!(send().await.unwrap().status(), 429);
    }
    assert!(body.frame().await.is_none());
    assert_eq!(in_use(&registry), 0.0);
    assert_eq!(send().await.unwrap().status(), 200);
    drop(body);
    // The last body was dropped before its end.
    assert_eq!(in_use(&registry), 0.0);
}

#[tokio::test(start_paused = true)]
async fn body_of_known_size_ends_with_its_last_frame() {
    let registry = fixed(1.0);
    let service = limited(&registry, [Limit::gauge("db")]);
    let mut body = send(&service, Request::new(())).await.into_body();
    assert_eq!(body.size_hint().exact(), Some(2));
    assert_eq!(in_use(&registry), 1.0);
    assert!(body.frame().await.unwrap().unwrap().is_data());
    assert_eq!(in_use(&registry), 0.0);
}

#[tokio::test(start_paused = true)]
async fn failed_body_and_failed_call_give_the_unit_back() {
    let registry = fixed(1.0);
    let limits = layer(&registry, [Limit::gauge("db")]);
    let broken = limits.layer(service_fn(async |_: Request<()>| {
        let body = stream::iter([Err::<Frame<Bytes>, _>("broken")]);
        Ok::<_, Infallible>(Response::new(StreamBody::new(
            body.chain(stream::pending()),
        )))
    }));
    let mut body = broken.oneshot(Request::new(())).await.unwrap().into_body();
    assert!(body.frame().await.unwrap().is_err());
    assert_eq!(in_use(&registry), 0.0);

    let failing = limits.layer(service_fn(async |_: Request<()>| {
        Err::<Response<Full<Bytes>>, _>("failed")
    }));
    assert!(failing.oneshot(Request::new(())).await.is_err());
    assert_eq!(in_use(&registry), 0.0);
}

#[tokio::test(start_paused = true)]
async fn request_can_be_dropped_at_every_poll() {
    let registry = fixed(1.0);
    let limit = Limit::gauge("db").on_limit(OnLimit::Delay { max_delay: MINUTE });
    let service = layer(
        &registry,
        [limit, Limit::rate("api").cost(Cost::new(0.001).unwrap())],
    )
    .layer(service_fn(async |_: Request<()>| {
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        let body = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from("ok")))]);
        Ok::<_, Infallible>(Response::new(StreamBody::new(
            body.chain(stream::pending()),
        )))
    }));
    let held = Mutex::new(None);
    for held_for in 0..4 {
        for polls in 0..10 {
            let first = service.clone().oneshot(Request::new(())).await.unwrap();
            *held.lock().unwrap() = Some(first);
            let release = |poll| {
                if poll == held_for {
                    *held.lock().unwrap() = None;
                }
            };
            let request = async {
                let response = service.clone().oneshot(Request::new(())).await.unwrap();
                let mut body = response.into_body();
                while body.frame().await.is_some() {}
            };
            let finished = poll_and_drop(request, polls, Duration::from_millis(1), release).await;
            assert!(finished.is_none());
            *held.lock().unwrap() = None;
            assert_eq!(in_use(&registry), 0.0, "{held_for} {polls}");
        }
    }
}

/// It waits for the first lease of two gauges, for a larger lease of one, and for the other.
#[tokio::test(start_paused = true)]
async fn request_that_waits_for_leases_can_be_dropped() {
    const TICK: Duration = Duration::from_millis(1);
    for polls in 0..8 {
        let (registry, _nudges) = leased_registry(10);
        let delay = OnLimit::Delay { max_delay: MINUTE };
        let wide = Limit::gauge("a").cost(Cost::new(2.0).unwrap());
        let service = limited(
            &registry,
            [wide, Limit::gauge("b")].map(|it| it.on_limit(delay)),
        );
        let b = limited(&registry, [Limit::gauge("b")]);
        let held = Mutex::new(None);
        let happens = |poll| match poll {
            1 => registry.publish("a", leased_as_requested(1.0, MINUTE)),
            2 => {
                registry.publish("b", leased(1.0, MINUTE));
                let unit = b.clone().oneshot(Request::new(()));
                *held.lock().unwrap() = unit.now_or_never();
            }
            3 => registry.publish("a", leased(2.0, MINUTE)),
            5 => *held.lock().unwrap() = None,
            _ => {}
        };
        let finished = poll_and_drop(send(&service, Request::new(())), polls, TICK, happens).await;
        assert_eq!(finished.is_some(), polls >= 6, "{polls}");
        drop((finished, held));
        let units = registry.limiters().into_iter().map(|limiter| {
            let units = limiter.units_in_use().unwrap();
            units.in_use + units.waiting + f64::from(limiter.waiting())
        });
        assert_eq!(units.sum::<f64>(), 0.0, "{polls}");
    }
}

#[tokio::test(start_paused = true)]
async fn handler_may_keep_the_unit_after_the_response() {
    let registry = fixed(1.0);
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&kept);
    let service =
        layer(&registry, [Limit::gauge("db")]).layer(service_fn(move |request: Request<()>| {
            let permit: &Permit = request.extensions().get().unwrap();
            keep.lock().unwrap().push(permit.clone());
            // As for an upgraded connection.
            let switching = Response::builder().status(101);
            let response = switching.body(Full::new(Bytes::new())).unwrap();
            std::future::ready(Ok::<_, Infallible>(response))
        }));
    let send = || service.clone().oneshot(Request::new(()));
    assert_eq!(send().await.unwrap().status(), 101);
    assert_eq!(in_use(&registry), 1.0);
    assert_eq!(send().await.unwrap().status(), 429);
    kept.lock().unwrap().clear();
    assert_eq!(send().await.unwrap().status(), 101);
}

#[tokio::test(start_paused = true)]
async fn headers_and_refusal_of_a_gauge() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(
        &registry,
        [Limit::gauge("db").cost(Cost::new(1.5).unwrap())],
    );
    registry.publish("db", leased(3.0, MINUTE));
    let first = send(&service, Request::new(())).await;
    let policy = r#""db";q=1000;qu="concurrent-requests""#;
    assert_eq!(header(&first, "ratelimit-policy"), policy);
    // The cost is rounded up.
    assert_eq!(header(&first, "ratelimit"), r#""db";r=1"#);
    let second = send(&service, Request::new(())).await;
    assert_eq!(second.status(), 429);
    assert_eq!(header(&second, "ratelimit-policy"), policy);
    assert_eq!(header(&second, "ratelimit"), r#""db";r=0;t=1"#);
    assert_eq!(header(&second, "retry-after"), "1");
    let refusal: &Refusal = second.extensions().get().unwrap();
    assert_eq!(refusal.reason(), RefusalReason::Spent);
}

#[tokio::test(start_paused = true)]
async fn refusal_by_another_limit_uses_no_unit() {
    let registry = fixed(1.0);
    for limits in [
        [Limit::gauge("db"), Limit::rate("api")],
        [Limit::rate("api"), Limit::gauge("db")],
    ] {
        let service = limited(&registry, limits);
        let first = send(&service, Request::new(())).await;
        drop(first);
        // The bucket of `api` is empty for a second.
        assert_eq!(status(&service).await, 429);
        assert_eq!(in_use(&registry), 0.0);
        tokio::time::advance(MINUTE).await;
    }
    let both = limited(&registry, [Limit::gauge("db"), Limit::rate("api")]);
    let held = send(&both, Request::new(())).await;
    tokio::time::advance(MINUTE).await;
    assert_eq!(status(&both).await, 429);
    drop(held);
    // That refusal spent nothing of `api`.
    assert_eq!(admitted(&both, 2).await, 1);
}

#[tokio::test(start_paused = true)]
async fn delayed_request_waits_for_a_unit() {
    let registry = fixed(1.0);
    let limit = Limit::gauge("db").on_limit(OnLimit::Delay { max_delay: MINUTE });
    let service = limited(&registry, [limit]);
    let held = send(&service, Request::new(())).await;
    let waiting = tokio::spawn({
        let service = service.clone();
        async move { send(&service, Request::new(())).await }
    });
    tokio::time::sleep(MINUTE / 2).await;
    assert!(!waiting.is_finished());
    drop(held);
    let response = waiting.await.unwrap();
    assert_eq!((response.status().as_u16(), in_use(&registry)), (200, 1.0));
    // Another one waits in vain.
    assert_eq!(status(&service).await, 429);
}

#[tokio::test(start_paused = true)]
async fn request_waits_a_second_for_the_first_lease_of_a_gauge() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [Limit::gauge("tenant/{header:x-tenant}")]);
    let request = || {
        let request = Request::builder().header("x-tenant", "acme");
        let (service, request) = (service.clone(), request.body(()).unwrap());
        tokio::spawn(async move { send(&service, request).await.status().as_u16() })
    };
    let in_vain = request();
    tokio::time::sleep(Duration::from_millis(1_001)).await;
    assert_eq!(in_vain.await.unwrap(), 503);
    for limiter in registry.limiters() {
        assert!(registry.forget(limiter));
    }
    let in_time = request();
    tokio::time::sleep(Duration::from_millis(500)).await;
    registry.publish("tenant/acme", leased(1.0, MINUTE));
    assert_eq!(in_time.await.unwrap(), 200);
}

#[tokio::test(start_paused = true)]
async fn shadow_gauge_counts_and_passes() {
    let registry = fixed(1.0);
    let service = limited(&registry, [Limit::gauge("db").on_limit(OnLimit::Shadow)]);
    let held = [
        send(&service, Request::new(())).await,
        send(&service, Request::new(())).await,
    ];
    assert!(held.iter().all(|response| response.status() == 200));
    assert_eq!(in_use(&registry), 1.0);
    drop(held);
    assert_eq!(in_use(&registry), 0.0);
}

#[tokio::test(start_paused = true)]
async fn rate_limit_on_a_gauge_gives_units_back() {
    let registry = fixed(1.0);
    let gauge = limited(&registry, [Limit::gauge("db")]);
    let rate = limited(&registry, [Limit::rate("db")]);
    let held = send(&rate, Request::new(())).await;
    assert_eq!(status(&gauge).await, 429);
    drop(held);
    assert_eq!(admitted(&rate, 3).await, 3);
    assert_eq!(in_use(&registry), 0.0);
}

#[tokio::test(start_paused = true)]
async fn handler_gets_the_units_of_all_layers() {
    let registry = fixed(1.0);
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&kept);
    let handler = service_fn(move |request: Request<()>| {
        let permit: &Permit = request.extensions().get().unwrap();
        keep.lock().unwrap().push(permit.clone());
        std::future::ready(Ok::<_, Infallible>(Response::new(Full::new(Bytes::new()))))
    });
    let [outer, inner] = ["outer", "inner"].map(|name| layer(&registry, [Limit::gauge(name)]));
    let service = outer.layer(inner.layer(handler));
    drop(service.oneshot(Request::new(())).await.unwrap());
    let limiters = || {
        registry
            .limiters()
            .into_iter()
            .filter_map(Limiter::units_in_use)
    };
    assert_eq!(limiters().map(|it| it.in_use).sum::<f64>(), 2.0);
    assert_eq!(
        format!("{:?}", kept.lock().unwrap()[0]),
        r#"{"inner": 1.0, "outer": 1.0}"#
    );
    kept.lock().unwrap().clear();
    assert_eq!(limiters().map(|it| it.in_use).sum::<f64>(), 0.0);
}

#[tokio::test(start_paused = true)]
async fn request_that_waits_for_a_token_uses_no_unit() {
    let registry = static_registry(|resource| LeaseState::Fixed {
        rate: match resource.as_str() {
            "slow" => 0.01,
            _ => 1.0,
        },
    });
    let delay = |limit: Limit| {
        limit.on_limit(OnLimit::Delay {
            max_delay: 10 * MINUTE,
        })
    };
    let limits = [delay(Limit::rate("slow")), delay(Limit::gauge("db"))];
    let slow = limited(&registry, limits);
    assert_eq!(status(&slow).await, 200);
    let waiting = {
        let slow = slow.clone();
        tokio::spawn(async move { status(&slow).await })
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    let gauge = limited(&registry, [Limit::gauge("db")]);
    assert_eq!(status(&gauge).await, 200);
    let held = send(&gauge, Request::new(())).await;
    tokio::time::sleep(2 * MINUTE).await;
    assert!(
        !waiting.is_finished(),
        "it has its token and waits for a unit"
    );
    drop(held);
    assert_eq!(waiting.await.unwrap(), 200);
}

#[tokio::test(start_paused = true)]
async fn units_of_several_gauges_are_taken_in_one_order() {
    let registry = fixed(1.0);
    let only = |name: &str| limited(&registry, [Limit::gauge(name.to_owned())]);
    let delayed =
        |name: &str| Limit::gauge(name.to_owned()).on_limit(OnLimit::Delay { max_delay: MINUTE });
    for limits in [["a", "b"], ["b", "a"]] {
        let both = limited(&registry, limits.map(delayed));
        let mut other_is_free = Vec::new();
        for (held, other) in [("a", "b"), ("b", "a")] {
            let holder = send(&only(held), Request::new(())).await;
            let waiting = {
                let both = both.clone();
                tokio::spawn(async move { status(&both).await })
            };
            tokio::time::sleep(Duration::from_secs(1)).await;
            other_is_free.push(status(&only(other)).await == 200);
            drop(holder);
            assert_eq!(waiting.await.unwrap(), 200);
        }
        // One gauge always comes first, however the limits are ordered.
        assert_ne!(other_is_free[0], other_is_free[1], "{limits:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn unit_in_use_is_not_waited_for_as_well() {
    let registry = fixed(1.0);
    let only = |name: &str| limited(&registry, [Limit::gauge(name.to_owned())]);
    let delayed =
        |name: &str| Limit::gauge(name.to_owned()).on_limit(OnLimit::Delay { max_delay: MINUTE });
    let both = limited(&registry, ["a", "b"].map(delayed));
    let units = |name| {
        let units = registry.known(name).units_in_use().unwrap();
        units.in_use + units.waiting
    };
    for (held, other) in [("a", "b"), ("b", "a")] {
        let holder = send(&only(held), Request::new(())).await;
        let other_holder = send(&only(other), Request::new(())).await;
        let waiting = {
            let both = both.clone();
            tokio::spawn(async move { status(&both).await })
        };
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!((units(held), units(other)), (2.0, 2.0));
        drop(other_holder);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!((units(held), units(other)), (2.0, 1.0));
        drop(holder);
        assert_eq!(waiting.await.unwrap(), 200);
        assert_eq!((units(held), units(other)), (0.0, 0.0));
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_for_the_first_lease_are_part_of_the_demand() {
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [Limit::gauge("db")]);
    let waiting: Vec<_> = (0..20)
        .map(|_| {
            let service = service.clone();
            tokio::spawn(async move { send(&service, Request::new(())).await.status().as_u16() })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(in_use(&registry), 20.0);
    registry.publish("db", leased(20.0, MINUTE));
    for request in waiting {
        assert_eq!(request.await.unwrap(), 200);
    }
}
