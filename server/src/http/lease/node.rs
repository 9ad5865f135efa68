//! `POST /v1/server-capacity` and its release: leases of a node of the server tree.
//!
//! Unlike for clients, demand comes in bands, an absent `has` means *unknown*, requests are also
//! ordered by the master's epoch, and the response has the algorithm, by which the node divides
//! further.

use std::sync::Arc;

use axum::extract::State;
use doorman_openapi::{
    FieldError, HolderKind, ReleaseResponse, ResourceId, ServerCapacityRequest,
    ServerCapacityResponse, ServerReleaseRequest, paths,
};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    charge::QuotaCharge,
    request::{LeaseBody, authorize},
    response,
};
use crate::{
    auth::Caller,
    http::{
        error::ApiError,
        openapi::responses::LeaseErrors,
        response::{Json, JsonText},
        state::{AppState, ServerInfo},
    },
    leasing::SharedLedger,
    ledger::Ledger,
    quota::Quotas,
    util::clock,
};

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(lease_server_capacity))
        .routes(routes!(release_server_capacity))
}

/// Lease capacity for a node
///
/// Requests or renews leases on all resources of the node's clients, with their demand summed by
/// priority. The response lists them in the order of the request, each with its algorithm.
#[utoipa::path(
    post,
    path = paths::SERVER_CAPACITY,
    tag = "server tree",
    request_body(
        content = ServerCapacityRequest,
        examples(
            ("first" = (
                summary = "First request, for clients of two priorities",
                value = json!({
                    "node_id": "eu-west",
                    "resources": [{
                        "resource_id": "db",
                        "wants": [
                            {"priority": 1, "num_clients": 1, "wants": 20},
                            {"priority": 0, "num_clients": 3, "wants": 90}
                        ]
                    }]
                })
            )),
            ("renewal" = (
                summary = "Renewal by a node that has granted a part to its clients",
                value = json!({
                    "node_id": "eu-west",
                    "epoch": 1795123456,
                    "seq": 7,
                    "heard_epoch": 1795120000,
                    "resources": [{
                        "resource_id": "db",
                        "wants": [{"priority": 0, "num_clients": 4, "wants": 120}],
                        "has": {"capacity": 110},
                        "outstanding": 95,
                        "used": 45000
                    }]
                })
            ))
        )
    ),
    responses(
        (
            status = OK,
            description = "One lease per resource, in the order of the request",
            body = ServerCapacityResponse,
            headers(("cache-control" = String, description = "`no-store`")),
            example = json!({
                "node": "node-5a1c9e0b7d2f4386",
                "epoch": 1795123456,
                "level": 0,
                "resources": [{
                    "resource_id": "db",
                    "gets": {"capacity": 110, "lease_length": 60, "refresh_interval": 5, "expiry_time": 1795123516},
                    "reason": "granted",
                    "template": "*",
                    "limit": 1000,
                    "unit": "rate",
                    "per": 1,
                    "safe_capacity": 1000,
                    "algorithm": {"kind": "FAIR_SHARE", "lease_length": 60, "refresh_interval": 5}
                }]
            })
        ),
        LeaseErrors
    )
)]
async fn lease_server_capacity(
    State(ledger): State<Arc<SharedLedger>>,
    State(quotas): State<Arc<Quotas>>,
    State(server): State<Arc<ServerInfo>>,
    caller: Caller,
    charge: QuotaCharge,
    LeaseBody(request): LeaseBody<ServerCapacityRequest>,
) -> Result<JsonText, ApiError> {
    authorize(&request, caller.restrictions())?;
    if request.node_id == server.node {
        return Err(ApiError::invalid(vec![FieldError {
            pointer: "/node_id".to_owned(),
            detail: "is the name of the parent: each node of a tree must have a name of its own \
                     (--node)"
                .to_owned(),
        }]));
    }
    let renews = |ledger: &Ledger, from, now| ledger.check_node_renewal(&request, from, now);
    let _decisions = charge
        .leases(&quotas, &ledger, request.resources.len(), renews)
        .await?;
    ledger
        .ask_parent(|ledger, from, now| {
            ledger.register_node_part(&request, caller.tenant(), from, now)
        })
        .await?;
    let granted = ledger
        .grant(request.resources.len(), |ledger, from, now| {
            ledger.refresh_node_part(&request, caller.tenant(), from, now)
        })
        .await?;
    let unix_now = clock::unix_seconds();
    Ok(JsonText(response::write(
        &server.node,
        &granted,
        HolderKind::Node,
        server.level(),
        unix_now,
    )))
}

/// Release leases of a node
///
/// Released capacity is free immediately. The call is idempotent: leases that the node does not
/// have are ignored. Without `resource_ids` all leases of the node are released.
#[utoipa::path(
    post,
    path = paths::SERVER_CAPACITY_RELEASE,
    tag = "server tree",
    request_body(
        content = ServerReleaseRequest,
        examples(
            ("some" = (
                summary = "Some leases of the node",
                value = json!({"node_id": "eu-west", "resource_ids": ["cache"]})
            )),
            ("all" = (
                summary = "All leases of the node",
                value = json!({"node_id": "us-east", "epoch": 1795123456, "seq": 8})
            ))
        )
    ),
    responses(
        (status = OK, description = "The leases are released", body = ReleaseResponse, example = json!({"released": 1})),
        LeaseErrors
    )
)]
async fn release_server_capacity(
    State(ledger): State<Arc<SharedLedger>>,
    State(quotas): State<Arc<Quotas>>,
    caller: Caller,
    charge: QuotaCharge,
    LeaseBody(request): LeaseBody<ServerReleaseRequest>,
) -> Result<Json<ReleaseResponse>, ApiError> {
    authorize(&request, caller.restrictions())?;
    let allowed = |id: &ResourceId| caller.restrictions().allows_resource(id.as_str());
    let released = charge
        .release(
            &quotas,
            &ledger,
            request.resource_ids.as_deref(),
            |ledger, from, now| ledger.release_node_part(&request, &allowed, from, now),
        )
        .await?;
    Ok(Json(ReleaseResponse {
        released: Some(released),
    }))
}
