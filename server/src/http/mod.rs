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
};
use doorman_openapi::ProblemType;
use tower::util::MapResponseLayer;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;

pub(crate) use self::{
    allowed_hosts::AllowedHosts, extract::body::BodyBuffer, view::cursor::CursorKey,
};
use self::{error::ApiError, response::buffer::ResponseBuffer};
use crate::{auth::Caller, http::state::AppState, observe::context::RequestContextLayer};

pub(crate) fn router(app: AppState) -> Router {
    let (routes, _) = routes().split_for_parts();
    let buffer = ResponseBuffer::default();
    let router = routes
        .merge(openapi::pages::pages())
        .merge(handover::routes())
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        // One call: the router boxes each layer and clones the box for every request.
        .layer((
            RequestContextLayer,
            app.requests.clone(),
            MapResponseLayer::new(move |it: Response<_>| buffer.reserve(it.map(Body::new))),
            CatchPanicLayer::custom(panicked),
            from_fn_with_state(app.clone(), guard::guard),
        ))
        .with_state(app);
    unescaped::accept(router)
}

/// The router of the metrics listener: no authentication, rate limits by address.
pub(crate) fn metrics_router(app: AppState, loopback: bool) -> Router {
    let (routes, _) = metrics::routes().merge(probes::routes()).split_for_parts();
    let guard = (app.clone(), app.allowed_hosts.for_listener(loopback));
    let buffer = ResponseBuffer::default();
    routes
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(guard, guard::guard_without_auth))
        .layer(Extension(Caller::ANONYMOUS))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(MapResponseLayer::new(move |it| buffer.reserve(it)))
        .layer(RequestContextLayer)
        .with_state(app)
}

/// The OpenAPI document, as it is committed.
pub(crate) fn openapi_document() -> OpenApi {
    openapi::with_policies(routes().into_openapi())
}

fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::with_openapi(openapi::base())
        .merge(lease::routes())
        .merge(view::routes())
        .merge(document::routes())
        .merge(probes::routes())
        .merge(metrics::routes())
        .merge(openapi::pages::routes())
}

async fn not_found(uri: Uri) -> ApiError {
    let start = |path: &str| path.chars().take(256).collect::<String>();
    let path = start(uri.path());
    let error = ApiError::new(ProblemType::NotFound, format!("no route {path}; see /docs"));
    match unescaped::corrected(uri.path()) {
        Some(path) => error.with_hint(&format!(
            "if the slashes are part of the name: {}",
            start(&path)
        )),
        None => error,
    }
}

/// The router adds `Allow`.
async fn method_not_allowed(method: Method, uri: Uri, matched: Option<MatchedPath>) -> ApiError {
    let path: String = uri.path().chars().take(256).collect();
    let takes_patches =
        matched.is_some_and(|path| policy::of(&Method::PATCH, path.as_str()).is_some());
    ApiError::new(
        ProblemType::MethodNotAllowed,
        format!("{method} is not allowed on {path}; see `allow`"),
    )
    .with_accept_patch(takes_patches)
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
