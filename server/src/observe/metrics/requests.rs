//! Metrics and access log of HTTP requests.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum::{
    extract::MatchedPath,
    http::{Method, Request, Response, Uri},
};
use doorman_openapi::{Moment, paths};
use pin_project_lite::pin_project;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::{Registry, Unit},
};
use tower::{Layer, Service};

use crate::{
    observe::access_log::{AccessLog, Answered},
    util::{clock, peer::PeerAddr},
};

/// Upper bounds in seconds. Most responses take a fraction of a millisecond; some wait for a disk.
const BUCKETS: [f64; 15] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    10.0,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    method: &'static str,
    route: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Failure {
    method: &'static str,
    route: &'static str,
    status: u16,
}

#[derive(Debug)]
struct Pending {
    call: Route,
    /// Set where the route does not tell the whole path.
    uri: Option<Uri>,
    peer: Option<PeerAddr>,
    start: Moment,
}

/// Metrics and access log of all requests; clones share them. A tower layer records each request.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestMetrics(Arc<Families>);

#[derive(Debug)]
struct Families {
    answered: Family<Route, Counter>,
    failed: Family<Failure, Counter>,
    durations: Family<Route, Histogram>,
    log: AccessLog,
}

impl Default for Families {
    fn default() -> Self {
        Self {
            answered: Family::default(),
            failed: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            log: AccessLog::default(),
        }
    }
}

impl RequestMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "http_requests",
            "Answered requests",
            self.0.answered.clone(),
        );
        registry.register(
            "http_errors",
            "Requests answered with a status of 400 or above",
            self.0.failed.clone(),
        );
        registry.register_with_unit(
            "http_request_duration",
            "Time from the head of a request to the head of its response",
            Unit::Seconds,
            self.0.durations.clone(),
        );
    }

    fn record(&self, pending: &Pending, status: u16) {
        let Pending {
            call,
            uri,
            peer,
            start,
        } = pending;
        let Route { method, route } = *call;
        let now = clock::now();
        let seconds = now.seconds_since(*start);
        self.0.answered.get_or_create(call).inc();
        // A poll takes as long as it waits.
        if route != paths::HINTS {
            self.0.durations.get_or_create(call).observe(seconds);
        }
        let answered = Answered {
            method,
            route,
            uri: uri.as_ref(),
            peer: *peer,
            status,
            seconds,
        };
        self.0.log.log(answered, now);
        if status >= 400 {
            let failure = Failure {
                method,
                route,
                status,
            };
            self.0.failed.get_or_create(&failure).inc();
        }
    }
}

impl<S> Layer<S> for RequestMetrics {
    type Service = Recorded<S>;

    fn layer(&self, inner: S) -> Recorded<S> {
        Recorded {
            inner,
            requests: self.clone(),
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Recorded<S> {
    inner: S,
    requests: RequestMetrics,
}

impl<S, B, R> Service<Request<B>> for Recorded<S>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let matched = request.extensions().get::<MatchedPath>();
        let call = Route {
            method: method(request.method()),
            route: matched.map_or(OTHER, |matched| route(matched.as_str())),
        };
        // Most requests are for a route without a variable.
        let is_whole_path = call.route != OTHER && !call.route.contains('{');
        let pending = Pending {
            call,
            uri: (!is_whole_path).then(|| request.uri().clone()),
            peer: request.extensions().get().copied(),
            start: clock::now(),
        };
        ResponseFuture {
            pending,
            requests: self.requests.clone(),
            inner: self.inner.call(request),
        }
    }
}

pin_project! {
    #[derive(Debug)]
    pub(crate) struct ResponseFuture<F> {
        pending: Pending,
        requests: RequestMetrics,
        #[pin]
        inner: F,
    }
}

impl<F, R, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let response = ready!(this.inner.poll(cx));
        if let Ok(response) = &response {
            let status = response.status().as_u16();
            this.requests.record(this.pending, status);
        }
        Poll::Ready(response)
    }
}

const OTHER: &str = "other";

/// The routes with series of their own; all others are `other`.
const ROUTES: [&str; 25] = [
    paths::CAPACITY,
    paths::CAPACITY_RELEASE,
    paths::SERVER_CAPACITY,
    paths::SERVER_CAPACITY_RELEASE,
    paths::HINTS,
    paths::DISCOVERY,
    paths::RESOURCES,
    paths::RESOURCE,
    paths::RESOURCE_LEASES,
    paths::LEASES,
    paths::TEMPLATES,
    paths::TEMPLATE,
    paths::RULES,
    paths::RULE,
    paths::HISTORY,
    paths::REVISION,
    paths::STATUS,
    paths::LIVEZ,
    paths::READYZ,
    paths::METRICS,
    paths::OPENAPI,
    paths::DOCS,
    paths::CHECK,
    paths::CHECK_RELEASE,
    paths::FORWARD_AUTH,
];

fn route(matched: &str) -> &'static str {
    // A proxy may put the path of its request behind it.
    if matched.starts_with(paths::FORWARD_AUTH) {
        return paths::FORWARD_AUTH;
    }
    ROUTES
        .into_iter()
        .find(|route| *route == matched)
        .unwrap_or(OTHER)
}

/// The method as a label: clients may invent methods.
fn method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        Method::PATCH => "PATCH",
        _ => "_OTHER",
    }
}
