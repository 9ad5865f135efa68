//! Requests of one kind, to count what does not depend on the machine: allocations of a request,
//! which it prints, and instructions, by callgrind in the function named `measured`.
//!
//! `budget CASE REQUESTS`, where the case is `constant`, `keyed`, `silent`, `fields` or `refused`.

#[path = "../bench/layer/leased.rs"]
mod leased;

use std::{
    convert::Infallible,
    env,
    future::{Future, Ready, ready},
    hint::black_box,
    pin::pin,
    task::{Context, Poll, Waker},
};

use http::{HeaderValue, Request, Response};
use tower_doorman::{Key, Limit, LimitLayer, RequestHead};
use tower_layer::Layer;
use tower_service::Service;

use crate::leased::LeasedProcess;

const HEADER: &str = "x-tenant";
const WARM_UP: usize = 100;

fn main() {
    let mut args = env::args().skip(1);
    let case = args.next().expect("the name of a case");
    let requests = args.next().expect("the number of requests");
    let requests = requests.parse().expect("a number");
    let process = LeasedProcess::new(if case == "refused" { 1e-5 } else { 1e9 });
    let key = match &*case {
        "constant" => Key::constant("api"),
        "keyed" | "silent" | "fields" | "refused" => {
            Key::header(HEADER).expect("a valid header name")
        }
        _ => unreachable!("no case is named {case}"),
    };
    let limits = [Limit::rate(key)];
    let layer = process.doorman.layer(limits).expect("valid limits");
    process.lease(&layer, [request()]);
    match &*case {
        "constant" | "keyed" => {
            let request = request();
            let head = RequestHead::of(&request);
            decide(&layer, &head, WARM_UP);
            count(requests, || decide(&layer, &head, requests));
        }
        _ => {
            let layer = layer.headers(case != "silent");
            let served = Vec::with_capacity(WARM_UP + requests);
            let mut service = layer.layer(EmptyService { served });
            call(&mut service, vec![request(); WARM_UP]);
            let all = vec![request(); requests];
            count(requests, || call(&mut service, all));
        }
    }
}

#[expect(clippy::print_stdout, reason = "the result of the program")]
fn count(requests: usize, run: impl FnOnce()) {
    let counted = allocation_counter::measure(|| measured(run));
    println!("{}", counted.count_total as f64 / requests as f64);
}

#[inline(never)]
fn measured(run: impl FnOnce()) {
    run();
}

fn decide(layer: &LimitLayer, head: &RequestHead<'_>, requests: usize) {
    for _ in 0..requests {
        assert!(black_box(layer.try_admit(black_box(head))).is_ok());
    }
}

fn call<S: Service<Request<()>>>(service: &mut S, requests: Vec<Request<()>>) {
    let mut context = Context::from_waker(Waker::noop());
    for request in requests {
        let response = pin!(service.call(black_box(request)));
        assert!(black_box(response.poll(&mut context)).is_ready());
    }
}

/// Returns an empty response immediately. Keeps the requests, because what it costs to free them is
/// no cost of the layer.
#[derive(Debug, Clone)]
struct EmptyService {
    served: Vec<Request<()>>,
}

impl Service<Request<()>> for EmptyService {
    type Response = Response<()>;
    type Error = Infallible;
    type Future = Ready<Result<Response<()>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        self.served.push(request);
        ready(Ok(Response::new(())))
    }
}

fn request() -> Request<()> {
    let mut request = Request::new(());
    let tenant = HeaderValue::from_static("0123456789abcdef0123456789abcdef");
    request.headers_mut().insert(HEADER, tenant);
    request
}
