//! Requests of one kind, to count what does not depend on the machine: allocations, which it prints,
//! and instructions, by callgrind in the functions named `measured_…`. Two runs with different
//! numbers of requests differ by the instructions of those between.
//!
//! `layer_budget CASE [REQUESTS]`, where the case is `constant`, `keyed`, `silent`, `fields` or
//! `refused`.

mod leased;

use std::{
    convert::Infallible,
    env,
    future::{Future, Ready, ready},
    hint::black_box,
    pin::pin,
    task::{Context, Poll, Waker},
};

use axum::body::Body;
use http::{HeaderValue, Request, Response};
use tower_doorman::{Key, Limit, LimitLayer, RequestHead};
use tower_layer::Layer;
use tower_service::Service;

use crate::leased::LeasedProcess;

const HEADER: &str = "x-tenant";
const WARM_UP: usize = 100;

fn main() {
    let mut args = env::args().skip(1).filter(|arg| arg != "--bench");
    let case = args.next().unwrap_or_else(|| "fields".to_owned());
    let requests = args
        .next()
        .map_or(1_000, |it| it.parse().expect("a number"));
    let process = LeasedProcess::new(if case == "refused" { 1e-5 } else { 1e9 });
    let key = match &*case {
        "constant" => Key::constant("api"),
        _ => Key::header(HEADER).expect("a valid header name"),
    };
    let limits = [Limit::rate(key)];
    let layer = process.doorman.layer(limits).expect("valid limits");
    process.lease(&layer, [request()]);
    match &*case {
        "constant" | "keyed" => {
            let request = request();
            let head = RequestHead::of(&request);
            measured_decisions(&layer, &head, WARM_UP);
            count(requests, || measured_decisions(&layer, &head, requests));
        }
        _ => {
            let layer = layer.headers(case != "silent");
            let mut service = layer.layer(EmptyService);
            measured_calls(&mut service, WARM_UP);
            count(requests, || measured_calls(&mut service, requests));
        }
    }
}

#[expect(clippy::print_stdout, reason = "the result of the program")]
fn count(requests: usize, run: impl FnOnce()) {
    let counted = allocation_counter::measure(run);
    println!(
        "{:.2} allocations a request",
        counted.count_total as f64 / requests as f64
    );
}

#[inline(never)]
fn measured_decisions(layer: &LimitLayer, head: &RequestHead<'_>, requests: usize) {
    for _ in 0..requests {
        assert!(black_box(layer.try_admit(black_box(head))).is_ok());
    }
}

#[inline(never)]
fn measured_calls<S: Service<Request<()>>>(service: &mut S, requests: usize) {
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..requests {
        let response = pin!(service.call(black_box(request())));
        assert!(black_box(response.poll(&mut context)).is_ready());
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
