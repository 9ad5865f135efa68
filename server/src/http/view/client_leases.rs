//! `GET /v1/leases`: the leases of one client, over all resources.

use std::sync::Arc;

use axum::{extract::State, http::Uri};
use doorman_core::ledger::{ClientListing, PageQuery};
use doorman_openapi::{ClientId, ClientLease, ClientLeasePage, paths};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{CHUNK, MAX_CHUNKS, cursor::CursorKey};
use crate::{
    auth::Caller,
    http::{
        authorize,
        error::ApiError,
        extract::query,
        openapi::{
            responses::{LedgerErrors, QueryErrors},
            schemas::Limit,
        },
        response::Json,
        state::AppState,
    },
    leasing::SharedLedger,
    quota::{Quotas, ReadKind},
    util::clock,
};

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list_client_leases))
}

/// List the leases of a client
///
/// Every resource that the client holds or waits for, with its lease; also those of a node of this
/// name. The list is empty for an unknown client. A restricted token sees only the resources that
/// it may access.
///
/// A page with a `next_cursor` may have fewer than `limit` leases, or none. The list ends where
/// there is no `next_cursor`. A lease that stays from the first page to the last is in exactly one
/// of them. A cursor becomes invalid (400) when the server restarts.
#[utoipa::path(
    get,
    path = paths::LEASES,
    tag = "views",
    params(
        ("client_id" = ClientId, Query, description = "The client", example = "shop-1"),
        ("limit" = inline(Option<Limit>), Query, nullable = false, description = "The page size: 50 by default, at most 1000; a larger value is lowered", example = 50),
        ("cursor" = inline(Option<String>), Query, nullable = false, description = "The `next_cursor` of the previous page")
    ),
    responses(
        (
            status = OK,
            description = "A page of leases",
            body = ClientLeasePage,
            example = json!({
                "leases": [{
                    "resource": {
                        "resource_id": "db",
                        "capacity": 1000,
                        "unit": "rate",
                        "per": 1,
                        "sum_has": 50,
                        "sum_wants": 50,
                        "free": 950,
                        "clients": 1,
                        "in_learning_mode": false,
                        "template": "*",
                        "algorithm": "FAIR_SHARE",
                        "lease_length": 60,
                        "refresh_interval": 5,
                        "safe_capacity": 1000
                    },
                    "lease": {
                        "client_id": "shop-1",
                        "kind": "client",
                        "priority": 0,
                        "wants": 50,
                        "share": 50,
                        "has": 50,
                        "why": "it has what it wants",
                        "booked": 50,
                        "outstanding": 0,
                        "used": null,
                        "refreshed_ago": 1.8,
                        "expires_in": 61.2,
                        "expiry_time": 1795123456
                    }
                }]
            })
        ),
        QueryErrors,
        LedgerErrors
    )
)]
async fn list_client_leases(
    State(ledger): State<Arc<SharedLedger>>,
    State(quotas): State<Arc<Quotas>>,
    State(key): State<Arc<CursorKey>>,
    caller: Caller,
    uri: Uri,
) -> Result<Json<ClientLeasePage>, ApiError> {
    let [client_id, limit, cursor] = query::parse(&uri, ["client_id", "limit", "cursor"])?;
    let client_id =
        client_id.ok_or_else(|| ApiError::malformed("missing query parameter `client_id`"))?;
    let client_id = ClientId::new(client_id)
        .map_err(|error| ApiError::malformed(format!("query parameter `client_id` {error}")))?;
    authorize::client(client_id.as_str(), caller.restrictions())?;
    let limit = query::limit(limit.as_deref())?;
    let mut next = key.decode_client_lease(cursor.as_deref(), &client_id)?;
    let mut leases = Vec::new();
    let permit = quotas.begin_read(ReadKind::Page).await?;
    for _ in 0..MAX_CHUNKS {
        ledger.yield_to_waiters(permit.delay(clock::now())).await;
        let query = PageQuery {
            limit: limit.saturating_sub(leases.len()).min(CHUNK),
            prefix: "",
            allowed: caller.restrictions().resources.as_ref(),
        };
        let from = next.unwrap_or_default();
        let (part, bound) = ledger.with_bound(|ledger, bound, now| {
            (
                ledger.leases_of_client(&client_id, &query, from, now),
                bound,
            )
        })?;
        let ClientListing {
            leases: part,
            next: after,
        } = part;
        // The texts are written after the lock is released.
        let unix_now = clock::unix_seconds();
        leases.extend(part.into_iter().map(|(resource, holder)| ClientLease {
            lease: holder.capped_at(bound).into_view(&resource, unix_now),
            resource,
        }));
        next = after;
        if next.is_none() || leases.len() >= limit {
            break;
        }
    }
    Ok(Json(ClientLeasePage {
        leases,
        next_cursor: next.map(|position| key.at_client_lease(&client_id, position)),
    }))
}
