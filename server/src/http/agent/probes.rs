//! Liveness and readiness of the agent.

use std::sync::atomic::Ordering::Acquire;

use axum::{
    extract::State,
    http::{HeaderName, header},
};
use doorman_openapi::{ProblemType, paths};
use tower_doorman::WorkerState;

use super::{AgentParts, AgentState};
use crate::http::error::ApiError;

type Healthy = ([(HeaderName, &'static str); 1], &'static str);

const OK: Healthy = ([(header::CACHE_CONTROL, "no-store")], "ok\n");

/// Check liveness
///
/// Restart the agent if this fails.
#[utoipa::path(
    get,
    path = paths::LIVEZ,
    tag = "probes",
    responses(
        (status = OK, description = "The agent is alive", body = String, content_type = "text/plain", example = "ok\n"),
        crate::http::openapi::responses::UnavailableError
    )
)]
pub(super) async fn check_agent_livez(
    State(agent): State<AgentState>,
) -> Result<Healthy, ApiError> {
    check_worker(&agent).map(|()| OK)
}

/// Check readiness
///
/// Send no requests if this fails. The agent is ready once the control plane has answered for its
/// rules and their fixed resources, and after 5 s in any case: then fallbacks apply.
#[utoipa::path(
    get,
    path = paths::READYZ,
    tag = "probes",
    responses(
        (status = OK, description = "The agent accepts requests", body = String, content_type = "text/plain", example = "ok\n"),
        crate::http::openapi::responses::UnavailableError
    )
)]
pub(super) async fn check_agent_readyz(
    State(agent): State<AgentState>,
) -> Result<Healthy, ApiError> {
    check_worker(&agent)?;
    let unavailable = |detail| Err(ApiError::new(ProblemType::Unavailable, detail));
    if agent.draining.has_begun() {
        unavailable("the agent is shutting down")
    } else if !agent.ready.load(Acquire) {
        unavailable("the agent waits for the control plane, for up to 5 s")
    } else {
        Ok(OK)
    }
}

/// The worker ends before the agent only by a panic.
fn check_worker(agent: &AgentParts) -> Result<(), ApiError> {
    match agent.doorman.worker_state() {
        WorkerState::Stopped | WorkerState::Died if !agent.draining.has_begun() => {
            Err(ApiError::new(
                ProblemType::Unavailable,
                "leases are not renewed any more; restart the agent",
            ))
        }
        _ => Ok(()),
    }
}
