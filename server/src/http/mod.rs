//! The HTTP API.
//!
//! A request passes `unescaped` (slashes in names), `guard` (allowed host, authentication, rate
//! limit and scope, by the table in `policy`), `extract` (path, query and body) and a handler
//! (`lease`, `document`, `view`, `probes`, `metrics`). A handler asks `authorize` what its caller
//! may access. `error` maps every failure to a problem; `response` writes JSON and limits the
//! memory of unread responses. `openapi` documents it all.

pub(crate) mod agent;
mod allowed_hosts;
mod authorize;
mod document;
mod error;
mod extract;
mod guard;
mod handover;
mod lease;
mod metrics;
mod openapi;
mod policy;
mod probes;
mod response;
pub(crate) mod state;
mod unescaped;
mod view;

#[cfg(test)]
mod tests;

use std::any::Any;

use axum::{
    Extension, Router,
    body::Body,
    extract::MatchedPath,
    http::{Method, Response, Uri},
    middleware::from_fn_with_state,
    response::IntoResponse,
    routing::{get, post},
};
use doorman_openapi::{ProblemType, paths};
use serde_json::Value;
use tower::util::MapResponseLayer;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::OpenApi as _;
use utoipa_axum::{router::OpenApiRouter, routes};

pub(crate) use self::{
    allowed_hosts::AllowedHosts, extract::body::BodyBuffer, view::cursor::CursorKey,
};
use self::{error::ApiError, response::buffer::ResponseBuffer};
use crate::{auth::Caller, http::state::AppState, observe::context};

pub(crate) fn router(app: AppState) -> Router {
    let (routes, _) = routes().split_for_parts();
    let buffer = ResponseBuffer::default();
    let router = routes
        .merge(openapi::pages::pages())
        .route(paths::HANDOVER, post(handover::hand_over))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        // One call: the router boxes each layer and clones the box for every request.
        .layer((
            context::layer(),
            app.requests.clone().layer(),
            MapResponseLayer::new(move |it: Response<_>| buffer.reserve(it.map(Body::new))),
            CatchPanicLayer::custom(panicked),
            from_fn_with_state(app.clone(), guard::guard),
        ))
        .with_state(app);
    unescaped::accept(router)
}

/// The router of the metrics listener: no authentication, rate limits by address.
pub(crate) fn metrics_router(app: AppState, loopback: bool) -> Router {
    let guard = (app.clone(), app.allowed_hosts.for_listener(loopback));
    let buffer = ResponseBuffer::default();
    Router::new()
        .route(paths::METRICS, get(metrics::get_metrics))
        .route(paths::LIVEZ, get(probes::check_livez))
        .route(paths::READYZ, get(probes::check_readyz))
        .fallback(async |uri: Uri| no_route(&uri, "/metrics, /livez and /readyz"))
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(guard, guard::guard_without_auth))
        .layer(Extension(Caller::ANONYMOUS))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(MapResponseLayer::new(move |it| buffer.reserve(it)))
        .layer(context::layer())
        .with_state(app)
}

/// The OpenAPI document, as it is committed.
pub(crate) fn openapi_document() -> Value {
    openapi::complete(&routes().into_openapi())
}

fn routes() -> OpenApiRouter<AppState> {
    use self::{
        document::{history, rules, templates},
        lease::{calls, hints},
        openapi::pages,
        view::{client_leases, leases, resources, status},
    };

    OpenApiRouter::with_openapi(openapi::Base::openapi())
        .routes(routes!(calls::lease_capacity))
        .routes(routes!(calls::release_capacity))
        .routes(routes!(calls::lease_server_capacity))
        .routes(routes!(calls::release_server_capacity))
        .routes(routes!(hints::poll_hints))
        .routes(routes!(status::get_discovery))
        .routes(routes!(status::get_status))
        .routes(routes!(resources::list_resources))
        .routes(routes!(resources::get_resource))
        .routes(routes!(leases::list_leases))
        .routes(routes!(client_leases::list_client_leases))
        .routes(routes!(
            templates::get_templates,
            templates::replace_templates
        ))
        .routes(routes!(
            templates::get_template,
            templates::put_template,
            templates::patch_template,
            templates::delete_template
        ))
        .routes(routes!(rules::list_rules))
        .routes(routes!(
            rules::get_rule,
            rules::put_rule,
            rules::patch_rule,
            rules::delete_rule
        ))
        .routes(routes!(history::list_history))
        .routes(routes!(history::get_revision))
        .routes(routes!(probes::check_livez))
        .routes(routes!(probes::check_readyz))
        .routes(routes!(metrics::get_metrics))
        .routes(routes!(pages::get_openapi))
}

async fn not_found(uri: Uri) -> ApiError {
    let error = no_route(&uri, paths::DOCS);
    match unescaped::corrected(uri.path()) {
        Some(path) => error.with_hint(&format!(
            "if the slashes are part of the name: {}",
            start(&path)
        )),
        None => error,
    }
}

/// `see` names the pages that the process has.
fn no_route(uri: &Uri, see: &str) -> ApiError {
    let path = start(uri.path());
    ApiError::new(ProblemType::NotFound, format!("no route {path}; see {see}"))
}

fn start(path: &str) -> String {
    path.chars().take(256).collect()
}

/// The router adds `Allow`.
async fn method_not_allowed(method: Method, uri: Uri, matched: Option<MatchedPath>) -> ApiError {
    let path = start(uri.path());
    let error = ApiError::new(
        ProblemType::MethodNotAllowed,
        format!("{method} is not allowed on {path}; see `allow`"),
    );
    match matched.and_then(|path| policy::of(&Method::PATCH, path.as_str())) {
        Some(_) => error.with_accept_patch(),
        None => error,
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the signature is the layer's"
)]
fn panicked(panic: Box<dyn Any + Send + 'static>) -> Response<Body> {
    let message = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    tracing::error!(panic = message, "handler panicked");
    ApiError::internal().into_response()
}
