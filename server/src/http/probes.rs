//! Probes: the status is the answer, the text is for people.
//!
//! Alive is a process that can still do its work: only books in doubt end that, since nothing but a new start mends them. Ready is a
//! server that takes requests: not while it drains.

use std::sync::Arc;

use axum::{
    extract::State,
    http::{HeaderName, header},
};
use doorman_openapi::{ProblemType, paths};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{failures::Unavailable, refusal::Refusal};
use crate::http::state::{App, BooksInDoubt};

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(check_livez))
        .routes(routes!(check_readyz))
}

type Answer = ([(HeaderName, &'static str); 1], &'static str);

/// What is true only now.
const OK: Answer = ([(header::CACHE_CONTROL, "no-store")], "ok\n");

/// Ask whether the process lives
///
/// Start it again when it does not.
#[utoipa::path(
    get,
    path = paths::LIVEZ,
    tag = "probes",
    responses(
        (status = OK, description = "It lives", body = String, content_type = "text/plain", example = "ok\n"),
        Unavailable
    )
)]
async fn check_livez(State(app): State<Arc<App>>) -> Result<Answer, Refusal> {
    if app.is_sound() {
        Ok(OK)
    } else {
        Err(BooksInDoubt.into())
    }
}

/// Ask whether the server takes requests
///
/// Send it none when it does not: it is about to stop, or failed.
#[utoipa::path(
    get,
    path = paths::READYZ,
    tag = "probes",
    responses(
        (status = OK, description = "It takes requests", body = String, content_type = "text/plain", example = "ok\n"),
        Unavailable
    )
)]
async fn check_readyz(State(app): State<Arc<App>>) -> Result<Answer, Refusal> {
    if !app.is_sound() {
        Err(BooksInDoubt.into())
    } else if app.is_draining() {
        Err(Refusal::new(
            ProblemType::Unavailable,
            "the server is shutting down",
        ))
    } else {
        Ok(OK)
    }
}
