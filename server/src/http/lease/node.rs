//! `POST /v1/server-capacity` and its release: leases of a node of the server tree.
//!
//! Unlike for clients, demand comes in bands, an absent `has` means *unknown*, requests are also
//! ordered by the master's epoch, and the response has the algorithm, by which the node divides
//! further.

use doorman_openapi::{
    ReleaseResponse, ServerCapacityRequest, ServerCapacityResponse, ServerReleaseRequest, paths,
};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{calls::LeaseCalls, request::LeaseBody};
use crate::http::{
    error::ApiError,
    openapi::responses::LeaseErrors,
    response::{Json, JsonText},
    state::AppState,
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
    calls: LeaseCalls,
    LeaseBody(call): LeaseBody<ServerReleaseRequest>,
) -> Result<Json<ReleaseResponse>, ApiError> {
    calls.release(call).await
}
