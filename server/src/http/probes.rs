//! Liveness and readiness probes. The server is alive unless the ledger is poisoned, which only a
//! restart repairs. It is ready unless it is draining.

use std::{borrow::Cow, sync::Arc};

use axum::{
    extract::State,
    http::{HeaderName, header},
};
use doorman_openapi::{ProblemType, paths};
use tokio::sync::watch;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{error::ApiError, openapi::responses::UnavailableError};
use crate::{
    document::ActiveDocument, http::state::AppState, http::state::Draining,
    leasing::LedgerUnavailable, leasing::SharedLedger, util::clock,
};
use doorman_core::election::View;

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(check_livez))
        .routes(routes!(check_readyz))
}

type Healthy = ([(HeaderName, &'static str); 1], Cow<'static, str>);

const OK: Healthy = ([(header::CACHE_CONTROL, "no-store")], Cow::Borrowed("ok\n"));

/// Check liveness
///
/// Restart the server if this fails.
#[utoipa::path(
    get,
    path = paths::LIVEZ,
    tag = "probes",
    responses(
        (status = OK, description = "The server is alive", body = String, content_type = "text/plain", example = "ok\n"),
        UnavailableError
    )
)]
async fn check_livez(State(ledger): State<Arc<SharedLedger>>) -> Result<Healthy, ApiError> {
    if ledger.is_poisoned() {
        Err(LedgerUnavailable::Poisoned.into())
    } else {
        Ok(OK)
    }
}

/// Check readiness
///
/// Send no requests if this fails: the server is shutting down or has failed.
///
/// Further lines of the text are for people: learning mode, and a problem with the source of
/// the document.
#[utoipa::path(
    get,
    path = paths::READYZ,
    tag = "probes",
    responses(
        (status = OK, description = "The server accepts requests", body = String, content_type = "text/plain", example = "ok\n"),
        UnavailableError
    )
)]
async fn check_readyz(
    State(ledger): State<Arc<SharedLedger>>,
    State(draining): State<Arc<Draining>>,
    State(master): State<watch::Receiver<View>>,
    State(active): State<Arc<ActiveDocument>>,
) -> Result<Healthy, ApiError> {
    if ledger.is_poisoned() {
        Err(LedgerUnavailable::Poisoned.into())
    } else if let Some(task) = draining.failed_task() {
        Err(ApiError::new(
            ProblemType::Unavailable,
            format!("the server stops, since its background task `{task}` has failed"),
        ))
    } else if draining.has_begun() {
        Err(ApiError::new(
            ProblemType::Unavailable,
            "the server is shutting down",
        ))
    } else {
        let (headers, mut text) = OK;
        if !ledger.is_master() {
            text.to_mut().push_str(match master.borrow().address {
                Some(_) => "standby: another server of the node is master\n",
                None => "standby: no server of the node is known to be master\n",
            });
        }
        let learning = ledger.learning_until().since(clock::now());
        if !learning.is_zero() {
            let remark = format!(
                "learning mode for another {} s: holders keep their leases, and new ones may wait\n",
                learning.as_secs().saturating_add(1)
            );
            text.to_mut().push_str(&remark);
        }
        if active.error().is_some() {
            text.to_mut().push_str(
                "the source of the document has a problem: see config_error in /v1/status\n",
            );
        }
        Ok((headers, text))
    }
}
