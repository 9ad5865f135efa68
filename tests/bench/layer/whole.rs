//! The whole layer around a service that does nothing, beside tower_governor and beside nothing: what a request pays for wearing it.
//!
//! Both make their key of the same header and hold it to one limit. Ours adds `RateLimit` and `RateLimit-Policy` to every response
//! unless it is told not to, tower_governor its own only with `use_headers`: each is compared with its like.

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
use doorman_bench::{Effort, Row, Table, Target, nanos_per, take_turns};
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

use crate::leased::Leased;

const HEADER: &str = "x-tenant";

fn main() {
    let effort = Effort::asked();
    let rounds = effort.pick(41, 7);
    let requests = effort.pick(200_000, 20_000);
    admitted(rounds, requests);
    refused(rounds, requests);
}

fn admitted(rounds: usize, requests: usize) {
    let process = Leased::new(1e9);
    let ours = ours(&process);
    let mut ours_silent = ours.clone().headers(false).layer(Nothing);
    let mut ours = ours.layer(Nothing);
    let (theirs, with_headers) = theirs(Duration::from_nanos(1), 1_000_000_000);
    let (mut theirs, mut with_headers) = (theirs.layer(Nothing), with_headers.layer(Nothing));
    let [bare, ours_silent, theirs, ours, with_headers] = take_turns(
        rounds,
        [
            &mut || call(requests, &mut Nothing, StatusCode::OK),
            &mut || call(requests, &mut ours_silent, StatusCode::OK),
            &mut || call(requests, &mut theirs, StatusCode::OK),
            &mut || call(requests, &mut ours, StatusCode::OK),
            &mut || call(requests, &mut with_headers, StatusCode::OK),
        ],
    );
    let mut table = Table::new(
        "The whole layer, admitted: what comes on top of the bare service",
        "ns a request",
    );
    table.add(Row::figure("bare service", &bare, Target::None));
    table.add(Row::ratio(
        "layer, without headers",
        &ours_silent.minus(&bare),
        "tower_governor",
        &theirs.minus(&bare),
        Target::AtMost(0.7),
    ));
    table.add(Row::ratio(
        "layer",
        &ours.minus(&bare),
        "tower_governor, with headers",
        &with_headers.minus(&bare),
        Target::AtMost(0.7),
    ));
    table.print();
}

fn refused(rounds: usize, requests: usize) {
    // A token a day is there at the beginning, and no more comes.
    let process = Leased::new(1e-5);
    let mut ours = ours(&process).layer(Nothing);
    let (theirs, with_headers) = theirs(Duration::from_secs(86_400), 1);
    let (mut theirs, mut with_headers) = (theirs.layer(Nothing), with_headers.layer(Nothing));
    call_once(&mut ours);
    call_once(&mut theirs);
    call_once(&mut with_headers);
    // Whatever passed before the lease came, nothing is left of it now.
    let status = StatusCode::TOO_MANY_REQUESTS;
    let [ours, theirs, with_headers] = take_turns(
        rounds,
        [
            &mut || call(requests, &mut ours, status),
            // It is so slow that fewer do.
            &mut || call(requests / 20, &mut theirs, status),
            &mut || call(requests / 20, &mut with_headers, status),
        ],
    );
    let mut table = Table::new("The whole layer, refused: all of it", "ns a request");
    table.add(Row::figure("layer", &ours, Target::AtMost(2_000.0)));
    for (name, theirs) in [
        ("tower_governor", theirs),
        ("tower_governor, with headers", with_headers),
    ] {
        table.add(Row::ratio("layer", &ours, name, &theirs, Target::None));
    }
    table.print();
}

/// The layer, its one key leased.
fn ours(process: &Leased) -> LimitLayer {
    let key = Key::header(HEADER).expect("a header");
    let layer = process.doorman.layer([Limit::rate(key)]);
    process.lease(&layer, [request()]);
    layer
}

type Silent = GovernorLayer<Tenant, NoOpMiddleware<QuantaInstant>, Body>;
type WithHeaders = GovernorLayer<Tenant, StateInformationMiddleware, Body>;

/// Theirs, which lets one pass every so often, and saves up so many; as it is, and with `use_headers`.
fn theirs(every: Duration, burst: u32) -> (Silent, WithHeaders) {
    let mut config = GovernorConfigBuilder::default().key_extractor(Tenant);
    config.period(every).burst_size(burst);
    let without = config.finish().expect("sensible settings");
    let with = config.use_headers().finish().expect("sensible settings");
    (GovernorLayer::new(without), GovernorLayer::new(with))
}

/// The header as it is: a clone of it allocates nothing.
#[derive(Debug, Clone)]
struct Tenant;

impl KeyExtractor for Tenant {
    type Key = HeaderValue;

    fn extract<T>(&self, request: &Request<T>) -> Result<HeaderValue, GovernorError> {
        let tenant = request.headers().get(HEADER).cloned();
        tenant.ok_or(GovernorError::UnableToExtractKey)
    }
}

/// Answers at once, with nothing.
#[derive(Debug, Clone)]
struct Nothing;

impl Service<Request<()>> for Nothing {
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

/// So many requests, all of which are answered so: nanoseconds a request.
fn call<S, B>(requests: usize, service: &mut S, status: StatusCode) -> f64
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
{
    nanos_per(requests, || {
        for _ in 0..requests {
            assert_eq!(black_box(call_once(service)).status(), status);
        }
    })
}

fn call_once<S>(service: &mut S) -> S::Response
where
    S: Service<Request<()>, Error = Infallible>,
{
    let mut cx = Context::from_waker(Waker::noop());
    let response = pin!(service.call(black_box(request())));
    match response.poll(&mut cx) {
        Poll::Ready(Ok(response)) => response,
        Poll::Pending => unreachable!("nothing waits"),
    }
}
