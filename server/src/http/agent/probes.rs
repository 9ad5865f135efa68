//! Liveness and readiness of the agent.

use std::sync::atomic::Ordering::Acquire;

use axum::extract::State;
use doorman_openapi::paths;
use tower_doorman::WorkerState;

use super::{AgentParts, AgentState};
use crate::http::{
    error::ApiError,
    probes::{Healthy, OK},
};

/// Check liveness
///
/// Restart the agent if this fails.
#[utoipa::path(
    get,
    path = paths::LIVEZ,
    responses((status = OK, description = "The agent is alive", body = String))
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
    responses((status = OK, description = "The agent accepts requests", body = String))
)]
pub(super) async fn check_agent_readyz(
    State(agent): State<AgentState>,
) -> Result<Healthy, ApiError> {
    check_worker(&agent)?;
    if agent.draining.has_begun() {
        Err(ApiError::unavailable("the agent is shutting down"))
    } else if !agent.ready.load(Acquire) {
        Err(ApiError::unavailable(
            "the agent waits for the control plane, for up to 5 s",
        ))
    } else {
        Ok(OK)
    }
}

/// The worker ends before the agent only by a panic.
fn check_worker(agent: &AgentParts) -> Result<(), ApiError> {
    match agent.doorman.worker_state() {
        WorkerState::Stopped | WorkerState::Died if !agent.draining.has_begun() => Err(
            ApiError::unavailable("leases are not renewed any more; restart the agent"),
        ),
        _ => Ok(()),
    }
}
