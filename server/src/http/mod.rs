//! The HTTP shell around the core.
//!
//! A request walks `mod` (the router) → `access` (who asks, and may it call this; `names`: is it for us; `toll`: what does it cost, and
//! can its caller pay) → `extract` (`media`, `body`, `read`, `query`:
//! untrusted bytes to checked values) → a handler (`capacity`, `server_capacity`, `resources`, `holders`, `templates`, `rules`, `rule`, `history`,
//! `about`, `probes`, `metrics`) → `permit` (may it do this to that) → the books → `leases`, `reply` or
//! `conditional` →
//! `answers` (the room for what clients have yet to take), or `refusal` when anything is wrong on the way. Every handler is registered
//! together with its documentation; `document` adds what they share, `links` what leads where.

mod about;
mod access;
mod answers;
mod body;
mod capacity;
mod challenge;
mod changing;
mod conditional;
mod cursor;
mod docs;
mod document;
mod extract;
mod failures;
mod history;
mod holders;
mod json;
mod leases;
mod links;
mod media;
mod metrics;
mod names;
mod page;
mod permit;
mod probes;
mod query;
mod read;
mod refusal;
mod reply;
mod resources;
mod rule;
mod rules;
mod seal;
mod server_capacity;
mod shapes;
pub(crate) mod state;
mod templates;
mod toll;

#[cfg(test)]
mod tests;

use std::any::Any;

use axum::{
    Extension, Router,
    body::Body,
    http::{Method, Response, Uri},
    middleware::from_fn_with_state,
    response::IntoResponse,
};
use doorman_openapi::ProblemType;
use tower::util::MapResponseLayer;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use self::{answers::Answers, refusal::Refusal};
pub(crate) use self::{body::Room, names::Names, seal::Seal};
use crate::{
    auth::Caller, http::state::AppState, leasing::LedgerPoisoned,
    observe::context::RequestContextLayer,
};

/// All routes.
pub(crate) fn router(app: AppState) -> Router {
    let (routes, _) = routes().split_for_parts();
    let answers = Answers::new();
    routes
        .merge(docs::pages())
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        // All of them at once: what the router is given one by one, it keeps in a box each, which it clones for every request.
        .layer((
            RequestContextLayer,
            app.requests.clone(),
            MapResponseLayer::new(move |answer: Response<_>| answers.admit(answer.map(Body::new))),
            CatchPanicLayer::custom(panicked),
            from_fn_with_state(app.clone(), access::check),
        ))
        .with_state(app)
}

/// The metrics and the probes, and nothing else, for everybody who can reach the address: who looks after a server has no certificate and
/// no token. Scrapes are limited for each address, and on loopback it goes by the names of the machine, as all does that asks nobody who
/// they are.
pub(crate) fn metrics_alone(app: AppState, loopback: bool) -> Router {
    let (routes, _) = metrics::routes().merge(probes::routes()).split_for_parts();
    let door = (app.clone(), app.names.at(loopback));
    let answers = Answers::new();
    routes
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(door, access::check_nobody))
        .layer(Extension(Caller::ANONYMOUS))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(MapResponseLayer::new(move |answer| answers.admit(answer)))
        .layer(RequestContextLayer)
        .with_state(app)
}

/// The document of all routes, as it must be committed.
pub(crate) fn openapi() -> OpenApi {
    links::linked(document::secured(routes().into_openapi()))
}

/// The same, of a server that asks for no tokens: it would be untrue to say that calls need them.
fn openapi_without_tokens() -> OpenApi {
    document::without_tokens(openapi())
}

fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::with_openapi(document::base())
        .merge(capacity::routes())
        .merge(server_capacity::routes())
        .merge(about::routes())
        .merge(resources::routes())
        .merge(holders::routes())
        .merge(templates::routes())
        .merge(rules::routes())
        .merge(rule::routes())
        .merge(history::routes())
        .merge(probes::routes())
        .merge(metrics::routes())
        .merge(docs::routes())
}

async fn unknown_route(uri: Uri) -> Refusal {
    let path: String = uri.path().chars().take(256).collect();
    Refusal::new(
        ProblemType::NotFound,
        format!("nothing is at {path}; /docs shows what there is"),
    )
}

/// The router adds `Allow`.
async fn wrong_method(method: Method, uri: Uri) -> Refusal {
    let path: String = uri.path().chars().take(256).collect();
    Refusal::new(
        ProblemType::MethodNotAllowed,
        format!("{path} does not take {method}; `allow` says what it takes"),
    )
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
    tracing::error!(panic = message, "a handler panicked");
    internal_error().into_response()
}

fn internal_error() -> Refusal {
    Refusal::new(
        ProblemType::InternalError,
        "the server failed; its log says why",
    )
}

impl From<LedgerPoisoned> for Refusal {
    fn from(LedgerPoisoned: LedgerPoisoned) -> Self {
        Self::new(
            ProblemType::Unavailable,
            "the server failed while it changed its books, and grants nothing until it is started again",
        )
    }
}
