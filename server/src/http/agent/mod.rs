//! The HTTP API of the agent: checks, forwarded requests, probes and metrics.
//!
//! There is no authentication: the agent listens on loopback or a Unix socket.

pub(crate) mod answers;
mod check;
mod forward_auth;
pub(crate) mod metrics;
mod openapi;
pub(crate) mod permits;
mod probes;

#[cfg(test)]
mod tests;

use std::sync::{Arc, atomic::AtomicBool};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{Response, Uri},
    middleware::{Next, from_fn_with_state},
    response::IntoResponse,
    routing::{any, get, post},
};
use doorman_openapi::paths;
use tower::util::MapResponseLayer;
use tower_doorman::{Checks, Doorman};
use tower_http::catch_panic::CatchPanicLayer;

use self::{answers::RecentAnswers, metrics::LayerMetrics, permits::PermitTable};
pub(crate) use self::{forward_auth::ForwardRules, openapi::agent_document};
use super::{
    AllowedHosts, BodyBuffer, method_not_allowed, no_route, panicked,
    response::buffer::ResponseBuffer, state::Draining,
};
use crate::{
    net::ConnectionMetrics,
    observe::{context, metrics::RequestMetrics},
};

/// The parts of the agent that its handlers use.
pub(crate) type AgentState = Arc<AgentParts>;

#[derive(Debug)]
pub(crate) struct AgentParts {
    pub(crate) doorman: Doorman,
    pub(crate) checks: Checks,
    pub(crate) rules: ForwardRules,
    /// `None` if no proxy sends ids of requests.
    pub(crate) answers: Option<RecentAnswers>,
    pub(crate) permits: Arc<PermitTable>,
    /// Set once the control plane has answered, or the time to wait for it is over.
    pub(crate) ready: AtomicBool,
    pub(crate) draining: Draining,
    pub(crate) body_buffer: BodyBuffer,
    pub(crate) requests: RequestMetrics,
    pub(crate) connections: ConnectionMetrics,
    pub(crate) layer: Arc<LayerMetrics>,
}

/// The router of a listener that is reached by these hosts.
pub(crate) fn router(agent: AgentState, hosts: AllowedHosts) -> Router {
    let buffer = ResponseBuffer::default();
    let forward_auth = || any(forward_auth::forward_auth);
    Router::new()
        .route(paths::CHECK, post(check::check_resources))
        .route(paths::CHECK_RENEW, post(check::renew_permit))
        .route(paths::CHECK_RELEASE, post(check::release_permits))
        .route(paths::CHECK_OUTCOME, post(check::report_outcomes))
        .route(paths::METRICS, get(metrics::get_agent_metrics))
        .route(paths::OPENAPI, get(openapi::get_agent_openapi))
        .route_layer(from_fn_with_state(hosts, check_host))
        .route(paths::LIVEZ, get(probes::check_agent_livez))
        .route(paths::READYZ, get(probes::check_agent_readyz))
        // Their host is that of the forwarded request.
        .route(paths::FORWARD_AUTH, forward_auth())
        .route(FORWARD_AUTH_ROOT, forward_auth())
        .route(FORWARD_AUTH_PATH, forward_auth())
        .fallback(async |uri: Uri| no_route(&uri, "/openapi.json"))
        .method_not_allowed_fallback(method_not_allowed)
        .layer((
            context::layer(),
            agent.requests.clone().layer(),
            MapResponseLayer::new(move |it: Response<_>| buffer.reserve(it.map(Body::new))),
            CatchPanicLayer::custom(panicked),
        ))
        .with_state(agent)
}

/// The routes of a proxy that puts the path of the request behind that of the agent.
const FORWARD_AUTH_ROOT: &str = "/v1/forward-auth/";
const FORWARD_AUTH_PATH: &str = "/v1/forward-auth/{*path}";

async fn check_host(
    State(hosts): State<AllowedHosts>,
    request: Request,
    next: Next,
) -> Response<Body> {
    match hosts.check(&request) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}
