//! Metrics and access log of HTTP requests.

use std::sync::Arc;

use axum::{
    extract::{MatchedPath, Request},
    http::{Method, Response},
};
use doorman_openapi::{Moment, paths};
use futures_util::TryFutureExt;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::{Registry, Unit},
};
use tower::{Layer, Service, layer::layer_fn, service_fn};

use crate::{
    observe::access_log::{AccessLog, LoggedRequest},
    util::clock,
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

fn call_of(request: &Request) -> LoggedRequest {
    let matched = request.extensions().get::<MatchedPath>();
    let route = matched.map_or(OTHER, |matched| route(matched.as_str()));
    // Most requests are for a route without a variable.
    let is_whole_path = route != OTHER && !route.contains('{');
    LoggedRequest {
        method: method(request.method()),
        route,
        uri: (!is_whole_path).then(|| request.uri().clone()),
        peer: request.extensions().get().copied(),
    }
}

/// Metrics and access log of all requests; clones share them.
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

    /// A layer that records each request. The service inside is always ready, as those of a router
    /// are.
    pub(crate) fn layer<S, R>(
        self,
    ) -> impl Layer<
        S,
        Service = impl Service<Request, Response = Response<R>, Error = S::Error, Future: Send> + Clone,
    > + Clone
    where
        S: Service<Request, Response = Response<R>, Future: Send> + Clone,
    {
        layer_fn(move |mut inner: S| {
            let requests = self.clone();
            service_fn(move |request: Request| {
                let (requests, call, start) = (requests.clone(), call_of(&request), clock::now());
                let record = move |response: &Response<R>| {
                    requests.record(&call, start, response.status().as_u16());
                };
                inner.call(request).inspect_ok(record)
            })
        })
    }

    fn record(&self, call: &LoggedRequest, start: Moment, status: u16) {
        let (method, route) = (call.method, call.route);
        let now = clock::now();
        let seconds = now.seconds_since(start);
        let labels = Route { method, route };
        self.0.answered.get_or_create(&labels).inc();
        // A poll takes as long as it waits.
        if route != paths::HINTS {
            self.0.durations.get_or_create(&labels).observe(seconds);
        }
        self.0.log.log(call, status, seconds, now);
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

const OTHER: &str = "other";

/// The routes with series of their own; all others are `other`.
const ROUTES: [&str; 27] = [
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
    paths::CHECK_RENEW,
    paths::CHECK_RELEASE,
    paths::CHECK_OUTCOME,
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
