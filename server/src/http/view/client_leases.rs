//! `GET /v1/leases`: the leases of clients, over all resources.

use axum::{extract::State, http::Uri};
use doorman_core::ledger::{ClientListing, ClientNames, PageQuery};
use doorman_openapi::{ClientId, ClientLease, ClientLeasePage, paths};

use super::{CHUNK, MAX_CHUNKS, PagedRead};
use crate::{
    auth::Caller,
    http::{
        authorize,
        error::ApiError,
        extract::query::{self, Page},
        response::Json,
        state::AppState,
    },
    util::clock,
};

/// List the leases of clients
///
/// Every resource that the client holds or waits for, with its lease; also those of a node of this
/// name. With `prefix` instead of `client_id`, those of all clients and nodes whose names start
/// with it; without both, all. The list is empty for an unknown client. A restricted token sees only the resources
/// that it may access, and with `prefix` only the clients that it may name.
///
/// A page with a `next_cursor` may have fewer than `limit` leases, or none. The list ends where
/// there is no `next_cursor`. A lease that stays from the first page to the last is in exactly one
/// of them. A cursor becomes invalid (400) when the server restarts.
#[utoipa::path(
    get,
    path = paths::LEASES,
    params(
        ("client_id" = inline(Option<ClientId>), Query, description = "One client", example = "shop-1"),
        ("prefix" = inline(Option<String>), Query, description = "All clients whose names start with this; cannot be combined with `client_id`"),
        Page
    ),
    responses((status = OK, description = "A page of leases", body = ClientLeasePage))
)]
pub(in crate::http) async fn list_client_leases(
    State(app): State<AppState>,
    caller: Caller,
    uri: Uri,
) -> Result<Json<ClientLeasePage>, ApiError> {
    let [client_id, prefix, limit, cursor] =
        query::parse(&uri, ["client_id", "prefix", "limit", "cursor"])?;
    let client_id = client_id.map(ClientId::new).transpose();
    let client_id = client_id
        .map_err(|error| ApiError::malformed(format!("query parameter `client_id` {error}")))?;
    let names = match (&client_id, &prefix) {
        (Some(name), None) => {
            authorize::client(name.as_str(), caller.restrictions())?;
            ClientNames::One(name)
        }
        (None, prefix) => {
            let prefix = prefix.as_deref().unwrap_or_default();
            ClientNames::Prefix(prefix, caller.restrictions().clients.as_ref())
        }
        (Some(_), Some(_)) => {
            return Err(ApiError::malformed(
                "query parameters `client_id` and `prefix` cannot be combined",
            ));
        }
    };
    let Page { limit, cursor } = Page::parse(limit.as_deref(), cursor)?;
    let mut next = app
        .cursor_key
        .decode_client_lease(cursor.as_deref(), names)?;
    let mut leases = Vec::new();
    let read = PagedRead::begin(&app).await?;
    for _ in 0..MAX_CHUNKS {
        let turn = read.turn().await;
        let query = PageQuery {
            limit: limit.saturating_sub(leases.len()).min(CHUNK),
            prefix: "",
            allowed: caller.restrictions().resources.as_ref(),
        };
        let from = next.unwrap_or_default();
        let (part, bound) = turn.with_bound(|ledger, bound, now| {
            (ledger.leases_of_clients(names, &query, from, now), bound)
        })?;
        let ClientListing {
            leases: part,
            next: after,
        } = part;
        // The texts are written after the lock is released.
        let unix_now = clock::unix_seconds();
        leases.extend(part.into_iter().map(|(resource, holder)| ClientLease {
            lease: (read.note).on_holder(holder.capped_at(bound).into_view(&resource, unix_now)),
            resource: read.note.on_resource(resource).dated(unix_now),
        }));
        next = after;
        if next.is_none() || leases.len() >= limit {
            break;
        }
    }
    Ok(Json(ClientLeasePage {
        leases,
        next_cursor: next.map(|position| app.cursor_key.at_client_lease(names, position)),
    }))
}
