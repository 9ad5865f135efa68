//! Liveness and readiness probes. The server is alive unless the ledger is poisoned, which only a
//! restart repairs. It is ready unless it is draining.

use std::borrow::Cow;

use axum::{
    extract::State,
    http::{HeaderName, header},
};
use doorman_openapi::paths;

use super::{error::ApiError, state::AppState};
use crate::{leasing::LedgerUnavailable, util::clock};

pub(super) type Healthy = ([(HeaderName, &'static str); 1], Cow<'static, str>);

pub(super) const OK: Healthy = ([(header::CACHE_CONTROL, "no-store")], Cow::Borrowed("ok\n"));

/// Check liveness
///
/// Restart the server if this fails.
#[utoipa::path(
    get,
    path = paths::LIVEZ,
    responses((status = OK, description = "The server is alive", body = String))
)]
pub(super) async fn check_livez(State(app): State<AppState>) -> Result<Healthy, ApiError> {
    if app.ledger.is_poisoned() {
        Err(LedgerUnavailable::Poisoned.into())
    } else {
        Ok(OK)
    }
}

/// Check readiness
///
/// Send no requests if this fails: the server is shutting down, has failed, or cannot become master
/// because etcd is out of space.
///
/// Further lines of the text are for people: an election that cannot be read, an etcd that is out
/// of space or behind, an unreachable parent, learning mode, and a problem with the document's
/// source.
#[utoipa::path(
    get,
    path = paths::READYZ,
    responses((status = OK, description = "The server accepts requests", body = String))
)]
pub(super) async fn check_readyz(State(app): State<AppState>) -> Result<Healthy, ApiError> {
    if let Some(error) = unready(&app) {
        return Err(error);
    }
    let ledger = &app.ledger;
    let (headers, mut text) = OK;
    if !ledger.is_master() {
        text.to_mut().push_str(match app.master.borrow().address {
            Some(_) => "standby: another server of the node is master\n",
            None => "standby: no server of the node is known to be master\n",
        });
    }
    let now = clock::now();
    if let Some(age) = app.election_unread_for(now) {
        let remark = format!(
            "the election cannot be read for {} s: the master may be another one\n",
            age.as_secs()
        );
        text.to_mut().push_str(&remark);
    }
    if app.is_etcd_out_of_space() {
        text.to_mut().push_str(
            "etcd is out of space: no other server can become master, and a document in it \
             cannot change\n",
        );
    }
    if let Some(time) = app.etcd_behind_for(now) {
        let remark = format!(
            "every endpoint of etcd that answers has been behind for {} s: if etcd was restored \
             from a backup, restart the servers\n",
            time.as_secs()
        );
        text.to_mut().push_str(&remark);
    }
    let parent = app.server.parent.as_ref().map(|parent| parent.status(now));
    let problem = parent.as_ref().and_then(|it| it.problem.as_ref());
    if let (Some(problem), Some(parent)) = (problem, &parent) {
        let leases = match parent.leases_end_in {
            _ if !ledger.is_master() => String::new(),
            Some(left) => format!("; its last lease ends in {} s", left.get().ceil()),
            None => "; this node has no leases, and fallbacks apply".to_owned(),
        };
        text.to_mut().push_str(&format!("{problem}{leases}\n"));
    }
    let learning = ledger.learning_until().since(now);
    if !learning.is_zero() {
        let remark = format!(
            "learning mode for another {} s: holders keep their leases, and new ones may wait\n",
            learning.as_secs().saturating_add(1)
        );
        text.to_mut().push_str(&remark);
    }
    // Without the parent there are no new rules either.
    if app.document.error().is_some() && problem.is_none() {
        text.to_mut()
            .push_str("the source of the document has a problem: see config_error in /v1/status\n");
    }
    Ok((headers, text))
}

/// Why the server is not ready.
fn unready(app: &AppState) -> Option<ApiError> {
    if app.ledger.is_poisoned() {
        Some(LedgerUnavailable::Poisoned.into())
    } else if let Some(task) = app.draining.failed_task() {
        Some(ApiError::unavailable(format!(
            "the server stops, since its background task `{task}` has failed"
        )))
    } else if app.draining.has_begun() {
        Some(ApiError::unavailable("the server is shutting down"))
    } else if lacks_master_for_space(app) {
        Some(ApiError::unavailable(
            "etcd is out of space, so no server of the node can become master",
        ))
    } else {
        None
    }
}

/// Whether no server is master, and none can become it because etcd rejects writes.
fn lacks_master_for_space(app: &AppState) -> bool {
    let has_master = app.ledger.is_master() || app.master.borrow().address.is_some();
    let is_known = app.master.borrow().has_read;
    is_known && !has_master && app.is_etcd_out_of_space()
}
