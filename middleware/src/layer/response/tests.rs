use std::time::Duration;

use doorman_openapi::Problem;
use http::{Request, StatusCode};
use http_body::Body as _;

use crate::{
    Callers, Doorman, ForwardedHeader, Key, Limit, OnLimit, OnMissingKey, Refusal, RefusalReason,
    RequestHead, TrustedProxies, per_second,
    testing::{Logged, TestResponse, body, header, inner, send, status},
};

fn one_per_second() -> Limit {
    Limit::local(per_second(1)).named("mine")
}

fn grpc() -> Request<()> {
    let request = Request::post("/orders.Orders/Get").header("content-type", "application/grpc");
    request.body(()).unwrap()
}

fn refusal(response: &TestResponse) -> RefusalReason {
    response.extensions().get::<Refusal>().unwrap().reason()
}

#[tokio::test(start_paused = true)]
async fn omitted_headers_keep_retry_after() {
    let layer = Doorman::unlimited()
        .layer([one_per_second()])
        .unwrap()
        .headers(false);
    let service = inner(&layer);
    for expected in [200, 429] {
        let response = send(&service, Request::new(())).await;
        assert_eq!(response.status(), expected);
        assert_eq!(header(&response, "ratelimit"), "");
        assert_eq!(header(&response, "ratelimit-policy"), "");
        let again = if expected == 429 { "1" } else { "" };
        assert_eq!(header(&response, "retry-after"), again);
    }
    let telling = inner(&layer.headers(true));
    let response = send(&telling, Request::new(())).await;
    assert_eq!(header(&response, "ratelimit-policy"), r#""mine";q=1;w=1"#);
}

#[tokio::test(start_paused = true)]
async fn headers_are_omitted_where_a_shadow_limit_is_exceeded() {
    let layer = Doorman::unlimited()
        .layer([
            one_per_second().on_limit(OnLimit::Shadow),
            Limit::local(per_second(10)).named("other"),
        ])
        .unwrap();
    for (layer, expected) in [
        (layer.clone(), r#""other";q=10;w=1"#),
        (layer.headers(false), ""),
    ] {
        let service = inner(&layer);
        for _ in 0..2 {
            let response = send(&service, Request::new(())).await;
            assert_eq!(response.status(), 200);
            assert_eq!(header(&response, "ratelimit-policy"), expected);
        }
    }
}

#[test]
fn bodies_are_problems_of_the_status_whatever_the_name() {
    let name = "a\"b\\c\nü";
    for (reason, expected) in [
        (RefusalReason::Spent, 429),
        (RefusalReason::NoLease, 503),
        (RefusalReason::MissingKey, 400),
        (RefusalReason::InvalidToken, 401),
    ] {
        let refusal = Refusal::without_key(&name.into(), reason, None);
        let response = refusal.to_response(&RequestHead::of(&Request::new(())));
        assert_eq!(response.status(), expected);
        let body: Problem = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(serde_json::to_vec(&body).unwrap(), *response.body());
        assert_eq!(body.status, expected);
        assert!(body.detail.starts_with(&refusal.to_string()));
        assert_eq!(body.violated_policies, [name]);
        assert_eq!(body.reason.as_deref(), Some(reason.as_str()));
    }
}

#[tokio::test(start_paused = true)]
async fn refusal_closure_gets_refusal_and_caller() {
    let callers =
        Callers::new().trusted_proxies(TrustedProxies::hops(1, ForwardedHeader::XForwardedFor));
    let layer = Doorman::unlimited()
        .with_callers(callers)
        .layer([one_per_second()])
        .unwrap()
        .on_refusal(|refusal, head| {
            let text = format!(
                "{} {:?} {:?}",
                refusal.limit(),
                head.uri(),
                head.client_ip()
            );
            let mut response = http::Response::new(text);
            *response.status_mut() = StatusCode::IM_A_TEAPOT;
            response
        });
    let service = inner(&layer);
    assert_eq!(status(&service).await, 200);
    let request = Request::get("/a").header("x-forwarded-for", "192.0.2.1");
    let response = send(&service, request.body(()).unwrap()).await;
    assert_eq!(response.status(), 418);
    assert_eq!(header(&response, "content-type"), "");
    assert_eq!(header(&response, "ratelimit"), r#""mine";r=0;t=1"#);
    assert_eq!(refusal(&response), RefusalReason::Spent);
    assert_eq!(body(response).await, "mine /a Some(192.0.2.1)");
}

#[tokio::test(start_paused = true)]
async fn refusal_closure_applies_after_a_wait() {
    let delay = OnLimit::Delay {
        max_delay: Duration::from_secs(5),
    };
    let (doorman, _worker) = {
        let (plane, _) = tower_test::mock::pair::<Request<bytes::Bytes>, _>();
        Doorman::builder("http://a").build_with(plane).unwrap()
    };
    let pessimistic = Limit::rate("db")
        .on_limit(delay)
        .fallback(crate::Fallback::Pessimistic)
        .wait_for_lease(Duration::from_secs(1));
    let layer = doorman
        .layer([pessimistic])
        .unwrap()
        .on_refusal(|_, head| http::Response::new(head.uri().path().to_owned()));
    let response = send(&inner(&layer), Request::get("/late").body(()).unwrap()).await;
    assert_eq!(refusal(&response), RefusalReason::NoLease);
    assert_eq!(body(response).await, "/late");
}

#[tokio::test(start_paused = true)]
async fn grpc_refusal_is_headers_only() {
    let limit = Limit::local(per_second(1)).named("käse");
    let service = inner(&Doorman::unlimited().layer([limit]).unwrap());
    assert_eq!(body(send(&service, grpc()).await).await, "ok");
    tokio::time::advance(Duration::from_millis(700)).await;

    let response = send(&service, grpc()).await;
    assert_eq!(response.status(), 200);
    for (name, expected) in [
        ("content-type", "application/grpc"),
        ("grpc-status", "8"),
        ("grpc-message", "limit `k%C3%A4se` exceeded; retry in 1 s"),
        ("grpc-retry-pushback-ms", "300"),
        ("retry-after", "1"),
        ("cache-control", "no-store"),
        ("ratelimit", r#""k?se";r=0;t=1"#),
    ] {
        assert_eq!(header(&response, name), expected, "{name}");
    }
    assert_eq!(refusal(&response), RefusalReason::Spent);
    // HTTP/2 sends one frame of headers that ends the stream.
    assert!(response.body().is_end_stream());
    assert_eq!(body(response).await, "");
}

#[tokio::test(start_paused = true)]
async fn get_with_grpc_content_type_is_not_grpc() {
    let service = inner(&Doorman::unlimited().layer([one_per_second()]).unwrap());
    assert_eq!(status(&service).await, 200);
    let disguised = Request::get("/").header("content-type", "application/grpc");
    let response = send(&service, disguised.body(()).unwrap()).await;
    assert_eq!(response.status(), 429);
    assert_eq!(header(&response, "cache-control"), "no-store");
    assert_eq!(header(&response, "grpc-status"), "");
}

#[tokio::test(start_paused = true)]
async fn grpc_status_depends_on_the_reason() {
    let pessimistic = Limit::rate("db").fallback(crate::Fallback::Pessimistic);
    let keyed = Key::template("{header:x-tenant}").unwrap();
    let strict = Limit::local_per(keyed, per_second(1)).on_missing_key(OnMissingKey::Reject);
    let (plane, _) = tower_test::mock::pair::<Request<bytes::Bytes>, _>();
    let (doorman, _worker) = Doorman::builder("http://a").build_with(plane).unwrap();
    for (limit, code, comes_back) in [(pessimistic, "14", true), (strict, "3", false)] {
        let response = send(&inner(&doorman.layer([limit]).unwrap()), grpc()).await;
        assert_eq!(response.status(), 200);
        assert_eq!(header(&response, "grpc-status"), code);
        for name in ["grpc-retry-pushback-ms", "retry-after"] {
            assert_eq!(header(&response, name).is_empty(), !comes_back, "{name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn refusal_is_logged_with_trace_id() {
    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    let (logged, _guard) = Logged::at(tracing::Level::DEBUG);
    let layer = Doorman::unlimited().layer([one_per_second()]).unwrap();
    let service = inner(&layer);
    let traced = |trace: &str| {
        let header = format!("00-{trace}-b7ad6b7169203331-01");
        let request = Request::get("/").header("traceparent", header);
        request.body(()).unwrap()
    };
    assert_eq!(send(&service, traced(TRACE)).await.status(), 200);
    assert_eq!(logged.count(), 0);
    assert_eq!(send(&service, traced(TRACE)).await.status(), 429);
    assert_eq!(send(&service, traced("nonsense")).await.status(), 429);
    layer
        .try_admit(&RequestHead::of(&traced(TRACE)))
        .unwrap_err();
    let lines = logged.lines();
    let has_trace: Vec<_> = lines.iter().map(|line| line.contains(TRACE)).collect();
    assert_eq!(has_trace, [true, false, true], "{lines:?}");
    assert!(lines[0].contains("limit=\"mine\""), "{lines:?}");
}
