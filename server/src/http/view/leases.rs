//! `GET /v1/resources/{resource_id}/leases`: the holders of a resource.
//!
//! A page takes several short locks of the ledger. In a stable order none is missed or repeated.

use std::sync::Arc;

use axum::{extract::State, http::Uri};
use doorman_openapi::{ClientId, HolderView, LeasePage, Moment, ResourceId, SortBy, paths};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    CHUNK, MAX_CHUNKS, MAX_SORT_CHUNKS, cursor::CursorKey, resources::not_live, too_many_to_sort,
};
use crate::{
    auth::Caller, http::authorize, http::error::ApiError, http::extract::ResourcePath,
    http::extract::query, http::openapi::responses::LedgerErrors,
    http::openapi::responses::NotFoundError, http::openapi::responses::QueryErrors,
    http::openapi::schemas::Limit, http::response::Json, http::state::AppState,
    leasing::LedgerUnavailable, leasing::SharedLedger, quota::Quotas, quota::ReadKind,
    quota::ReadPermit, util::clock,
};
use doorman_core::{
    ledger::HolderCursor, ledger::HolderListing, ledger::HolderRanking, ledger::Ledger,
    ledger::ListError, ledger::PageQuery,
};

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list_leases))
}

/// List the leases of a resource
///
/// What each holder wants, its share, what it has, and what keeps it from more. A restricted token
/// sees only the clients that it may name.
///
/// A page with a `next_cursor` may have fewer than `limit` leases, or none, after many holders have
/// left or for a restricted token. The list ends where there is no `next_cursor`. A holder that
/// stays from the first page to the last is in exactly one of them. A cursor becomes invalid (400)
/// when the server restarts or all holders leave the resource.
///
/// With `sort` the list is one page with the `limit` largest holders, and `total` counts all of
/// them. The list is read in parts, so changes during the read may or may not be seen.
///
/// The example works after that of `lease_capacity`.
#[utoipa::path(
    get,
    path = paths::RESOURCE_LEASES,
    tag = "views",
    params(
        ("resource_id" = ResourceId, Path, description = "Percent-encoded: `tenant%2Facme`, or `tenant/acme`", example = "db"),
        ("client_id" = inline(Option<ClientId>), Query, nullable = false, description = "Only the holder of this name; cannot be combined with `cursor` and `sort`"),
        ("prefix" = inline(Option<String>), Query, nullable = false, description = "Only holders whose name starts with this"),
        ("limit" = inline(Option<Limit>), Query, nullable = false, description = "The page size: 50 by default, at most 1000; a larger value is lowered", example = 50),
        ("cursor" = inline(Option<String>), Query, nullable = false, description = "The `next_cursor` of the previous page"),
        ("sort" = inline(Option<SortBy>), Query, nullable = false, description = "Only the largest; cannot be combined with `cursor`")
    ),
    responses(
        (
            status = OK,
            description = "A page of leases",
            body = LeasePage,
            example = json!({
                "leases": [{
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
                }]
            })
        ),
        QueryErrors,
        NotFoundError,
        LedgerErrors
    )
)]
async fn list_leases(
    State(ledger): State<Arc<SharedLedger>>,
    State(quotas): State<Arc<Quotas>>,
    State(key): State<Arc<CursorKey>>,
    caller: Caller,
    ResourcePath(id): ResourcePath,
    uri: Uri,
) -> Result<Json<LeasePage>, ApiError> {
    authorize::resource(&id, caller.restrictions())?;
    let [client_id, prefix, limit, cursor, sort] =
        query::parse(&uri, ["client_id", "prefix", "limit", "cursor", "sort"])?;
    let prefix = prefix.unwrap_or_default();
    let limit = query::limit(limit.as_deref())?;
    let sort = query::sort(sort.as_deref(), cursor.as_deref())?;
    let next = key.decode_lease(cursor.as_deref(), &id)?;
    if let Some(name) = client_id {
        for (name, is_given) in [("cursor", next.is_some()), ("sort", sort.is_some())] {
            if is_given {
                return Err(ApiError::malformed(format!(
                    "query parameters `{name}` and `client_id` cannot be combined"
                )));
            }
        }
        authorize::client(&name, caller.restrictions())?;
        return one_holder(&ledger, &id, &name);
    }

    let permit = quotas.begin_read(ReadKind::Page).await?;
    let query = PageQuery {
        limit,
        prefix: &prefix,
        allowed: caller.restrictions().clients.as_ref(),
    };
    if let Some(sort) = sort {
        return largest(&ledger, &permit, &id, &query, sort).await;
    }
    let (leases, next) = by_name(&ledger, &permit, &id, &query, next).await?;
    Ok(Json(LeasePage {
        leases,
        total: None,
        next_cursor: next.map(|position| key.at_lease(&id, position)),
    }))
}

/// The page of the next holders in the order of their names, and where to continue.
async fn by_name(
    ledger: &SharedLedger,
    permit: &ReadPermit<'_>,
    id: &ResourceId,
    query: &PageQuery<'_>,
    mut next: Option<HolderCursor>,
) -> Result<(Vec<HolderView>, Option<HolderCursor>), ApiError> {
    let mut leases = Vec::new();
    for chunk in 0..MAX_CHUNKS {
        ledger.yield_to_waiters(permit.delay(clock::now())).await;
        let part = PageQuery {
            limit: query.limit.saturating_sub(leases.len()).min(CHUNK),
            ..*query
        };
        match read(ledger, |ledger, now| ledger.holders(id, &part, next, now))? {
            Ok((views, after)) => {
                leases.extend(views);
                next = after;
            }
            // All holders left after the first chunk. Newer ones were not there from the start.
            Err(_) if chunk > 0 => next = None,
            Err(ListError::NotLive) => return Err(not_live(id)),
            Err(ListError::StaleCursor) => {
                return Err(ApiError::malformed(format!(
                    "query parameter `cursor` has expired: all holders of `{id}` have left since; \
                     start again without it"
                )));
            }
        }
        if next.is_none() || leases.len() >= query.limit {
            break;
        }
    }
    Ok((leases, next))
}

/// The page of the largest holders.
async fn largest(
    ledger: &SharedLedger,
    permit: &ReadPermit<'_>,
    id: &ResourceId,
    query: &PageQuery<'_>,
    sort: SortBy,
) -> Result<Json<LeasePage>, ApiError> {
    let mut ranking = HolderRanking::new(sort, query.limit);
    for chunk in 0.. {
        if chunk >= MAX_SORT_CHUNKS {
            return Err(too_many_to_sort());
        }
        ledger.yield_to_waiters(permit.delay(clock::now())).await;
        match ledger.with(|ledger, now| ledger.rank_holders(id, &mut ranking, query, now))? {
            Ok(true) => {}
            Ok(false) => break,
            // All holders have left since the first chunk.
            Err(_) if chunk > 0 => break,
            Err(_) => return Err(not_live(id)),
        }
    }
    let total = ranking.total();
    let mut leases = Vec::new();
    for positions in ranking.into_largest().chunks(CHUNK) {
        ledger.yield_to_waiters(permit.delay(clock::now())).await;
        let found = read(ledger, |ledger, now| {
            ledger.holders_at(id, positions, query, now)
        })?;
        match found {
            Ok((views, _)) => leases.extend(views),
            Err(_) => break,
        }
    }
    // Some have changed since.
    leases.sort_by(|a: &HolderView, b| b.amount(sort).total_cmp(&a.amount(sort)));
    Ok(Json(LeasePage {
        leases,
        total: Some(total),
        next_cursor: None,
    }))
}

/// The holder of one name; an empty page if it neither holds the resource nor waits for it.
fn one_holder(
    ledger: &SharedLedger,
    id: &ResourceId,
    name: &str,
) -> Result<Json<LeasePage>, ApiError> {
    let name = ClientId::new(name)
        .map_err(|error| ApiError::malformed(format!("query parameter `client_id` {error}")))?;
    let (leases, _) = read(ledger, |ledger, now| ledger.holders_named(id, &name, now))?
        .map_err(|_| not_live(id))?;
    Ok(Json(LeasePage {
        leases,
        total: None,
        next_cursor: None,
    }))
}

type Chunk = (Vec<HolderView>, Option<HolderCursor>);

/// Reads the ledger; the texts are written after the lock is released.
fn read(
    ledger: &SharedLedger,
    read: impl FnOnce(&Ledger, Moment) -> Result<HolderListing, ListError>,
) -> Result<Result<Chunk, ListError>, LedgerUnavailable> {
    let (page, bound) = ledger.with_bound(|ledger, bound, now| (read(ledger, now), bound))?;
    let unix_now = clock::unix_seconds();
    Ok(page.map(|page| {
        let HolderListing {
            resource,
            holders,
            next,
        } = page;
        let views = holders
            .into_iter()
            .map(|holder| holder.capped_at(bound).into_view(&resource, unix_now));
        (views.collect(), next)
    }))
}
