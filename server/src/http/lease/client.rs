//! `POST /v1/capacity` and its release: leases of a client.
//!
//! One call carries all resources of a client. It is a POST, though idempotent, since it needs a
//! body and must not be cached. A release is no DELETE, since it carries a list and a `seq`.

use doorman_openapi::{CapacityRequest, CapacityResponse, ReleaseRequest, ReleaseResponse, paths};
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
        .routes(routes!(lease_capacity))
        .routes(routes!(release_capacity))
}

/// Lease capacity for a client
///
/// Requests or renews leases on all resources of the client. The response lists them in the order
/// of the request. The client counts the length of a lease from the moment it **sent** the request,
/// on its own clock, and refreshes after `refresh_interval`.
#[utoipa::path(
    post,
    path = paths::CAPACITY,
    tag = "leases",
    request_body(
        content = CapacityRequest,
        examples(
            ("first" = (
                summary = "First request of a client",
                value = json!({"client_id": "shop-1", "resources": [{"resource_id": "db", "wants": 50}]})
            )),
            ("renewal" = (
                summary = "Renewal that reports usage",
                value = json!({
                    "client_id": "shop-1",
                    "seq": 2,
                    "heard_epoch": 1795123456,
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
            description = "One lease per resource, in the order of the request",
            body = CapacityResponse,
            headers(("cache-control" = String, description = "`no-store`")),
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
        LeaseErrors
    )
)]
async fn lease_capacity(
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
    tag = "leases",
    request_body(
        content = ReleaseRequest,
        examples(
            ("some" = (
                summary = "Some leases of the client",
                value = json!({"client_id": "shop-1", "resource_ids": ["cache"]})
            )),
            ("all" = (
                summary = "All leases of a client that stops",
                value = json!({"client_id": "shop-2", "seq": 3, "heard_epoch": 1795123456})
            ))
        )
    ),
    responses(
        (status = OK, description = "The leases are released", body = ReleaseResponse, example = json!({"released": 1})),
        LeaseErrors
    )
)]
async fn release_capacity(
    calls: LeaseCalls,
    LeaseBody(call): LeaseBody<ReleaseRequest>,
) -> Result<Json<ReleaseResponse>, ApiError> {
    calls.release(call).await
}
