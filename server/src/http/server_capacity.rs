//! `POST /v1/server-capacity` and its release: a node of the server tree leases on behalf of its clients.
//!
//! Calls of their own, not a variant of the clients': a node's demand comes in bands, its absent `has` means *unknown* rather than
//! *nothing*, its requests are ordered by its master's epoch too, and it is told the algorithm, so that it can divide further.

use std::sync::Arc;

use axum::extract::State;
use doorman_openapi::{
    HolderKind, ReleaseResponse, ResourceId, ServerCapacityRequest, ServerCapacityResponse,
    ServerReleaseRequest, paths,
};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    extract::Checked,
    failures::OfALease,
    leases, permit,
    refusal::Refusal,
    reply::{Fresh, Written},
    toll::Paying,
};
use crate::{
    auth::Caller,
    http::state::{AppState, ServerInfo},
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
/// LeaseKind for leases on all resources that a node's clients need, their demand summed up by priority, and renews those it has. The
/// answers come in the order of the request, each with the algorithm of the resource.
#[utoipa::path(
    post,
    path = paths::SERVER_CAPACITY,
    tag = "server tree",
    request_body(
        content = ServerCapacityRequest,
        examples(
            ("first" = (
                summary = "A node asks for three clients of one priority and one of another",
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
                summary = "It renews what it holds, of which it has handed out a part",
                value = json!({
                    "node_id": "eu-west",
                    "epoch": 1795123456,
                    "seq": 7,
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
            description = "One answer a resource, in the order of the request",
            body = ServerCapacityResponse,
            headers(("cache-control" = String, description = "`no-store`: a lease is good only once")),
            example = json!({
                "node": "node-5a1c9e0b7d2f4386",
                "epoch": 1795123456,
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
        OfALease
    )
)]
async fn lease_server_capacity(
    State(ledger): State<Arc<SharedLedger>>,
    State(limits): State<Arc<Quotas>>,
    State(server): State<Arc<ServerInfo>>,
    caller: Caller,
    paying: Paying,
    Checked(request): Checked<ServerCapacityRequest>,
) -> Result<Written, Refusal> {
    permit::check(&request, caller.restrictions())?;
    let renews = |core: &Ledger, from, now| core.check_node_renewal(&request, from, now);
    let _counted = paying
        .leases(&limits, &ledger, request.resources.len(), renews)
        .await?;
    let granted = ledger
        .grant(request.resources.len(), |core, from, now| {
            core.refresh_node_part(&request, caller.tenant(), from, now)
        })
        .await?;
    let unix_now = clock::unix_seconds();
    let answer = leases::write(&server, HolderKind::Node, &granted, unix_now);
    Ok(Written(answer))
}

/// Give a node's leases back
///
/// What is given back is free at once. A release may be repeated: what the node does not have is not missed. Without `resource_ids`
/// all of the node's leases are given back.
#[utoipa::path(
    post,
    path = paths::SERVER_CAPACITY_RELEASE,
    tag = "server tree",
    request_body(
        content = ServerReleaseRequest,
        examples(
            ("some" = (
                summary = "Some of the node's leases",
                value = json!({"node_id": "eu-west", "resource_ids": ["cache"]})
            )),
            ("all" = (
                summary = "All of the node's leases",
                value = json!({"node_id": "us-east", "epoch": 1795123456, "seq": 8})
            ))
        )
    ),
    responses(
        (status = OK, description = "They are back, or were never there", body = ReleaseResponse, example = json!({})),
        OfALease
    )
)]
async fn release_server_capacity(
    State(ledger): State<Arc<SharedLedger>>,
    State(limits): State<Arc<Quotas>>,
    caller: Caller,
    paying: Paying,
    Checked(request): Checked<ServerReleaseRequest>,
) -> Result<Fresh<ReleaseResponse>, Refusal> {
    permit::check(&request, caller.restrictions())?;
    let may = |id: &ResourceId| caller.restrictions().allows_resource(id.as_str());
    let named = request.resource_ids.as_deref();
    paying
        .release(&limits, &ledger, named, |core, from, now| {
            core.release_node_part(&request, &may, from, now)
        })
        .await?;
    Ok(Fresh::new(ReleaseResponse {}))
}
