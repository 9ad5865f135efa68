//! `POST /v1/capacity` and its release: a client leases for itself.
//!
//! One call carries all resources of a client and is a POST, though it may be repeated: it needs a body, it changes the books, and no
//! cache may answer it. A release is a call of its own rather than a DELETE, since it speaks of many resources and carries a `seq`.

use std::sync::Arc;

use axum::extract::State;
use doorman_openapi::{
    CapacityRequest, CapacityResponse, HolderKind, ReleaseRequest, ReleaseResponse, ResourceId,
    paths,
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
        .routes(routes!(lease_capacity))
        .routes(routes!(release_capacity))
}

/// Lease capacity for a client
///
/// LeaseKind for leases on all resources that the client needs, and renews those it has. The answers come in the order of the request. A
/// holder counts a lease from the moment it **sent** the request, on its own clock, and comes back after `refresh_interval`.
#[utoipa::path(
    post,
    path = paths::CAPACITY,
    tag = "leases",
    request_body(
        content = CapacityRequest,
        examples(
            ("first" = (
                summary = "A client asks for the first time",
                value = json!({"client_id": "shop-1", "resources": [{"resource_id": "db", "wants": 50}]})
            )),
            ("renewal" = (
                summary = "It renews what it holds, and says what it has used",
                value = json!({
                    "client_id": "shop-1",
                    "seq": 2,
                    "resources": [{
                        "resource_id": "db",
                        "wants": 80,
                        "priority": 1,
                        "has": {"capacity": 50},
                        "outstanding": 0,
                        "used": 1234
                    }]
                })
            ))
        )
    ),
    responses(
        (
            status = OK,
            description = "One answer a resource, in the order of the request",
            body = CapacityResponse,
            headers(("cache-control" = String, description = "`no-store`: a lease is good only once")),
            example = json!({
                "node": "node-5a1c9e0b7d2f4386",
                "epoch": 1795123456,
                "resources": [{
                    "resource_id": "db",
                    "gets": {"capacity": 50, "lease_length": 60, "refresh_interval": 5, "expiry_time": 1795123516},
                    "reason": "granted",
                    "template": "*",
                    "limit": 1000,
                    "unit": "rate",
                    "per": 1,
                    "safe_capacity": 1000
                }]
            })
        ),
        OfALease
    )
)]
async fn lease_capacity(
    State(ledger): State<Arc<SharedLedger>>,
    State(limits): State<Arc<Quotas>>,
    State(server): State<Arc<ServerInfo>>,
    caller: Caller,
    paying: Paying,
    Checked(request): Checked<CapacityRequest>,
) -> Result<Written, Refusal> {
    permit::check(&request, caller.restrictions())?;
    let renews = |core: &Ledger, from, now| core.check_client_renewal(&request, from, now);
    let _counted = paying
        .leases(&limits, &ledger, request.resources.len(), renews)
        .await?;
    let granted = ledger
        .grant(request.resources.len(), |core, from, now| {
            core.refresh_client_part(&request, caller.tenant(), from, now)
        })
        .await?;
    let unix_now = clock::unix_seconds();
    let answer = leases::write(&server, HolderKind::Client, &granted, unix_now);
    Ok(Written(answer))
}

/// Give a client's leases back
///
/// What is given back is free at once. A release may be repeated: what the client does not have is not missed. Without
/// `resource_ids` all of the client's leases are given back.
#[utoipa::path(
    post,
    path = paths::CAPACITY_RELEASE,
    tag = "leases",
    request_body(
        content = ReleaseRequest,
        examples(
            ("some" = (
                summary = "Some of the client's leases",
                value = json!({"client_id": "shop-1", "resource_ids": ["cache"]})
            )),
            ("all" = (
                summary = "All of the client's leases, as it stops",
                value = json!({"client_id": "shop-2", "seq": 3})
            ))
        )
    ),
    responses(
        (status = OK, description = "They are back, or were never there", body = ReleaseResponse, example = json!({})),
        OfALease
    )
)]
async fn release_capacity(
    State(ledger): State<Arc<SharedLedger>>,
    State(limits): State<Arc<Quotas>>,
    caller: Caller,
    paying: Paying,
    Checked(request): Checked<ReleaseRequest>,
) -> Result<Fresh<ReleaseResponse>, Refusal> {
    permit::check(&request, caller.restrictions())?;
    let may = |id: &ResourceId| caller.restrictions().allows_resource(id.as_str());
    let named = request.resource_ids.as_deref();
    paying
        .release(&limits, &ledger, named, |core, from, now| {
            core.release_client_part(&request, &may, from, now)
        })
        .await?;
    Ok(Fresh::new(ReleaseResponse {}))
}
