//! Lease calls: `POST /v1/capacity` for clients, `POST /v1/server-capacity` for nodes.
//!
//! One call carries all resources of a holder. It is a POST, though idempotent, since it needs a
//! body and must not be cached. A release is no DELETE, since it carries a list and a `seq`.
//!
//! Unlike for clients, demand of nodes comes in bands, an absent `has` means *unknown*, requests
//! are also ordered by the master's epoch, and the response has the algorithm, by which the node
//! divides further.

use axum::{extract::FromRequestParts, http::request::Parts};
use doorman_core::{
    ledger::{HolderId, LeaseCall, ReleaseCall},
    master::{Granted, NotGranted},
};
use doorman_openapi::{
    CapacityRequest, CapacityResponse, Reason, ReleaseRequest, ReleaseResponse, ResourceId, Scope,
    Seconds, ServerCapacityRequest, ServerCapacityResponse, ServerReleaseRequest, paths,
};

use super::{charge::QuotaCharge, request::LeaseBody, response};
use crate::{
    auth::Caller,
    http::{
        error::ApiError,
        response::{Json, JsonText},
        state::AppState,
    },
    util::clock,
};

/// The scopes of callers whose outcomes move capacities.
const EVIDENCE: &[Scope] = &[Scope::Feedback, Scope::Server];

/// Lease capacity for a client
///
/// Requests or renews leases on all resources of the client. The response lists them in the order
/// of the request. The client counts the length of a lease from the moment it **sent** the request,
/// on its own clock, and refreshes after `refresh_interval`.
#[utoipa::path(
    post,
    path = paths::CAPACITY,
    request_body = CapacityRequest,
    responses((status = OK, description = "One lease per resource, in the order of the request", body = CapacityResponse))
)]
pub(in crate::http) async fn lease_capacity(
    calls: LeaseCalls,
    LeaseBody(call): LeaseBody<CapacityRequest>,
) -> Result<JsonText, ApiError> {
    calls.lease(call).await
}

/// Release leases of a client
///
/// Released capacity is free immediately. The call is idempotent: leases that the client does not
/// have are ignored. Without `resource_ids` all leases of the client are released.
#[utoipa::path(
    post,
    path = paths::CAPACITY_RELEASE,
    request_body = ReleaseRequest,
    responses((status = OK, description = "The leases are released", body = ReleaseResponse))
)]
pub(in crate::http) async fn release_capacity(
    calls: LeaseCalls,
    LeaseBody(call): LeaseBody<ReleaseRequest>,
) -> Result<Json<ReleaseResponse>, ApiError> {
    calls.release(call).await
}

/// Lease capacity for a node
///
/// Requests or renews leases on all resources of the node's clients, with their demand summed by
/// priority. The response lists them in the order of the request, each with its algorithm.
#[utoipa::path(
    post,
    path = paths::SERVER_CAPACITY,
    request_body = ServerCapacityRequest,
    responses((status = OK, description = "One lease per resource, in the order of the request", body = ServerCapacityResponse))
)]
pub(in crate::http) async fn lease_server_capacity(
    calls: LeaseCalls,
    LeaseBody(call): LeaseBody<ServerCapacityRequest>,
) -> Result<JsonText, ApiError> {
    calls.lease(call).await
}

/// Release leases of a node
///
/// Released capacity is free immediately. The call is idempotent: leases that the node does not
/// have are ignored. Without `resource_ids` all leases of the node are released.
#[utoipa::path(
    post,
    path = paths::SERVER_CAPACITY_RELEASE,
    request_body = ServerReleaseRequest,
    responses((status = OK, description = "The leases are released", body = ReleaseResponse))
)]
pub(in crate::http) async fn release_server_capacity(
    calls: LeaseCalls,
    LeaseBody(call): LeaseBody<ServerReleaseRequest>,
) -> Result<Json<ReleaseResponse>, ApiError> {
    calls.release(call).await
}

/// The parts of the server behind the calls of one caller.
#[derive(Debug)]
pub(in crate::http) struct LeaseCalls {
    app: AppState,
    caller: Caller,
    charge: QuotaCharge,
}

impl FromRequestParts<AppState> for LeaseCalls {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        Ok(Self {
            app: state.clone(),
            caller: Caller::from_request_parts(parts, state).await?,
            charge: QuotaCharge::from_request_parts(parts, state).await?,
        })
    }
}

impl LeaseCalls {
    /// # Errors
    /// 422 for a node with the name of this one, 429 if the quota is spent, and 503 or a redirect
    /// if this server cannot lease.
    ///
    /// # Cancel safety
    /// As [`SharedLedger::lease`](crate::leasing::SharedLedger::lease).
    async fn lease(self, call: LeaseCall) -> Result<JsonText, ApiError> {
        let app = &*self.app;
        if matches!(call.holder(), HolderId::Node(node) if *node == app.server.node) {
            return Err(ApiError::invalid_field(
                "/node_id",
                "is the name of the parent: each node of a tree must have a name of its own \
                 (--node)",
            ));
        }
        let call = call.of_tenant(self.caller.tenant());
        let call = if self.caller.may(EVIDENCE) {
            call
        } else {
            call.without_evidence()
        };
        let _decisions = self.charge.leases(&app.quotas, &app.ledger, &call).await?;
        let kind = call.holder().kind();
        let granted = app.ledger.lease(call).await?;
        let problem = app.server.parent_problem(clock::now());
        let granted = granted.map_err(|cause| match (&problem, cause) {
            (Some(problem), NotGranted::NoParent) => ApiError::unavailable(format!(
                "{problem}: a new master of this node cannot ask which leases it holds"
            )),
            (_, cause) => cause.into(),
        })?;
        Ok(JsonText(response::write(
            &app.server.node,
            &granted,
            kind,
            app.server.level(),
            &problem
                .filter(|_| lacks_lease(&granted))
                .into_iter()
                .chain(ignored_outcomes(&granted))
                .collect::<Vec<_>>(),
            clock::unix_seconds(),
        )))
    }

    /// # Errors
    /// As [`QuotaCharge::release`].
    ///
    /// # Cancel safety
    /// Some leases may remain; they expire.
    async fn release(self, call: ReleaseCall) -> Result<Json<ReleaseResponse>, ApiError> {
        let app = &*self.app;
        let restrictions = self.caller.restrictions();
        let allowed = |id: &ResourceId| restrictions.allows_resource(id.as_str());
        let released = self
            .charge
            .release(&app.quotas, &app.ledger, &call, &allowed);
        Ok(Json(ReleaseResponse {
            released: released.await?,
        }))
    }
}

/// Told once to each holder.
fn ignored_outcomes(granted: &Granted) -> Option<String> {
    let mut ignored = granted.grants.iter().filter(|it| it.reporting.is_ignored);
    let resource = &ignored.next()?.resource_id;
    Some(format!(
        "outcomes of `{resource}` are shown and move no capacity: the token lacks the scope \
         `{}`",
        Scope::Feedback
    ))
}

/// Whether the holder got less than it wants of any resource, or no lease.
fn lacks_lease(granted: &Granted) -> bool {
    let mut grants = granted.grants.iter();
    grants.any(|it| it.reason != Reason::Granted || it.lease_length == Seconds::ZERO)
}
