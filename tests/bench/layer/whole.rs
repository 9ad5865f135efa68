//! Cost of the whole layer around an empty service, compared with tower_governor and with no layer.
//!
//! Both layers use the same header as key, and have one limit. The layer sends `RateLimit` and
//! `RateLimit-Policy` by default, tower_governor sends its headers only with `use_headers`. Each
//! variant is compared with its counterpart.

mod leased;

use std::{
    convert::Infallible,
    future::{Future, Ready, ready},
    hint::black_box,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use axum::body::Body;
use doorman_bench::{Options, Row, Table, Target, alternate, nanos_per_iteration};
use governor::{
    clock::QuantaInstant,
    middleware::{NoOpMiddleware, StateInformationMiddleware},
};
use http::{HeaderValue, Request, Response, StatusCode};
use tower_doorman::{Key, Limit, LimitLayer};
use tower_governor::{
    GovernorError, GovernorLayer, governor::GovernorConfigBuilder, key_extractor::KeyExtractor,
};
use tower_layer::Layer;
use tower_service::Service;

use crate::leased::LeasedProcess;

const HEADER: &str = "x-tenant";

fn main() {
    let options = Options::from_args();
    let rounds = options.pick(41, 7);
    let requests = options.pick(200_000, 20_000);
    compare_admitted(rounds, requests);
    compare_rejected(rounds, requests);
}

fn compare_admitted(rounds: usize, requests: usize) {
    let process = LeasedProcess::new(1e9);
    let layer = leased_layer(&process);
    let mut layer_silent = layer.clone().headers(false).layer(EmptyService);
    let mut layer = layer.layer(EmptyService);
    let (governor, with_headers) = governor_layers(Duration::from_nanos(1), 1_000_000_000);
    let (mut governor, mut with_headers) = (
        governor.layer(EmptyService),
        with_headers.layer(EmptyService),
    );
    let [bare, layer_silent, governor, layer, with_headers] = alternate(
        rounds,
        [
            &mut || call_all(requests, &mut EmptyService, StatusCode::OK),
            &mut || call_all(requests, &mut layer_silent, StatusCode::OK),
            &mut || call_all(requests, &mut governor, StatusCode::OK),
            &mut || call_all(requests, &mut layer, StatusCode::OK),
            &mut || call_all(requests, &mut with_headers, StatusCode::OK),
        ],
    );
    let mut table = Table::new(
        "Whole layer, admitted requests: cost above the bare service",
        "ns per request",
    );
    table.add(Row::figure("bare service", &bare, Target::None));
    table.add(Row::ratio(
        "layer, without headers",
        &layer_silent.minus(&bare),
        "tower_governor",
        &governor.minus(&bare),
        Target::AtMost(0.9),
    ));
    table.add(Row::ratio(
        "layer",
        &layer.minus(&bare),
        "tower_governor, with headers",
        &with_headers.minus(&bare),
        Target::AtMost(0.7),
    ));
    table.print();
}

fn compare_rejected(rounds: usize, requests: usize) {
    // Each limiter starts with one token, and gets the next a day later.
    let process = LeasedProcess::new(1e-5);
    let mut layer = leased_layer(&process).layer(EmptyService);
    let (governor, with_headers) = governor_layers(Duration::from_secs(86_400), 1);
    let (mut governor, mut with_headers) = (
        governor.layer(EmptyService),
        with_headers.layer(EmptyService),
    );
    // Spend the tokens.
    call(&mut layer);
    call(&mut governor);
    call(&mut with_headers);
    let status = StatusCode::TOO_MANY_REQUESTS;
    let [layer, governor, with_headers] = alternate(
        rounds,
        [
            &mut || call_all(requests, &mut layer, status),
            // tower_governor rejects so slowly that fewer requests suffice.
            &mut || call_all(requests / 20, &mut governor, status),
            &mut || call_all(requests / 20, &mut with_headers, status),
        ],
    );
    let mut table = Table::new(
        "Whole layer, rejected requests: total cost",
        "ns per request",
    );
    table.add(Row::figure("layer", &layer, Target::AtMost(1_200.0)));
    for (name, governor) in [
        ("tower_governor", governor),
        ("tower_governor, with headers", with_headers),
    ] {
        table.add(Row::ratio("layer", &layer, name, &governor, Target::None));
    }
    table.print();
}

/// The layer, with its one key leased.
fn leased_layer(process: &LeasedProcess) -> LimitLayer {
    let key = Key::header(HEADER).expect("a valid header name");
    let layer = process
        .doorman
        .layer([Limit::rate(key)])
        .expect("valid limits");
    process.lease(&layer, [request()]);
    layer
}

type Silent = GovernorLayer<Tenant, NoOpMiddleware<QuantaInstant>, Body>;
type WithHeaders = GovernorLayer<Tenant, StateInformationMiddleware, Body>;

/// tower_governor without and with `use_headers`.
fn governor_layers(period: Duration, burst: u32) -> (Silent, WithHeaders) {
    let mut config = GovernorConfigBuilder::default().key_extractor(Tenant);
    config.period(period).burst_size(burst);
    let without = config.finish().expect("the settings are valid");
    let with = config
        .use_headers()
        .finish()
        .expect("the settings are valid");
    (GovernorLayer::new(without), GovernorLayer::new(with))
}

/// Uses the header value as key, whose clone allocates nothing.
#[derive(Debug, Clone)]
struct Tenant;

impl KeyExtractor for Tenant {
    type Key = HeaderValue;

    fn extract<T>(&self, request: &Request<T>) -> Result<HeaderValue, GovernorError> {
        let tenant = request.headers().get(HEADER).cloned();
        tenant.ok_or(GovernorError::UnableToExtractKey)
    }
}

/// Returns an empty response immediately.
#[derive(Debug, Clone)]
struct EmptyService;

impl Service<Request<()>> for EmptyService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::new(Body::empty())))
    }
}

fn request() -> Request<()> {
    let mut request = Request::new(());
    let tenant = HeaderValue::from_static("0123456789abcdef0123456789abcdef");
    request.headers_mut().insert(HEADER, tenant);
    request
}

/// Calls the service with all requests, and returns the nanoseconds per request.
fn call_all<S, B>(requests: usize, service: &mut S, status: StatusCode) -> f64
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
{
    nanos_per_iteration(requests, || {
        for _ in 0..requests {
            assert_eq!(black_box(call(service)).status(), status);
        }
    })
}

fn call<S>(service: &mut S) -> S::Response
where
    S: Service<Request<()>, Error = Infallible>,
{
    let mut cx = Context::from_waker(Waker::noop());
    let response = pin!(service.call(black_box(request())));
    match response.poll(&mut cx) {
        Poll::Ready(Ok(response)) => response,
        Poll::Pending => unreachable!("the service is always ready"),
    }
}
