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
use crate::{
    http::state::{AppState, Draining},
    leasing::{LedgerPoisoned, SharedLedger},
};

pub(super) fn routes() -> OpenApiRouter<AppState> {
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
async fn check_livez(State(ledger): State<Arc<SharedLedger>>) -> Result<Answer, Refusal> {
    if ledger.is_poisoned() {
        Err(LedgerPoisoned.into())
    } else {
        Ok(OK)
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
async fn check_readyz(
    State(ledger): State<Arc<SharedLedger>>,
    State(draining): State<Arc<Draining>>,
) -> Result<Answer, Refusal> {
    if ledger.is_poisoned() {
        Err(LedgerPoisoned.into())
    } else if draining.has_begun() {
        Err(Refusal::new(
            ProblemType::Unavailable,
            "the server is shutting down",
        ))
    } else {
        Ok(OK)
    }
}
