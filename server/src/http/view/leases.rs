//! `GET /v1/resources/{resource_id}/leases`: the holders of a resource.
//!
//! A page takes several short locks of the ledger. In a stable order none is missed or repeated.

use axum::{extract::State, http::Uri};
use doorman_core::ledger::{
    HolderCursor, HolderListing, HolderRanking, Ledger, ListError, PageQuery,
};
use doorman_openapi::{ClientId, HolderView, LeasePage, Moment, ResourceId, SortBy, paths};

use super::{CHUNK, MAX_CHUNKS, PagedRead, ParentNote, resources::not_live};
use crate::{
    auth::Caller,
    http::{
        authorize,
        error::ApiError,
        extract::{
            ResourcePath,
            query::{self, Page},
        },
        response::Json,
        state::AppState,
    },
    leasing::{LedgerUnavailable, SharedLedger},
    util::clock,
};

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
    params(
        ResourcePath,
        ("client_id" = inline(Option<ClientId>), Query, description = "Only the holders of this name: the newest 32 processes of a client, and a node; cannot be combined with `cursor` and `sort`"),
        ("prefix" = inline(Option<String>), Query, description = "Only holders whose name starts with this"),
        Page,
        ("sort" = inline(Option<SortBy>), Query, description = "Only the largest; cannot be combined with `cursor`")
    ),
    responses((status = OK, description = "A page of leases", body = LeasePage))
)]
pub(in crate::http) async fn list_leases(
    State(app): State<AppState>,
    caller: Caller,
    ResourcePath(id): ResourcePath,
    uri: Uri,
) -> Result<Json<LeasePage>, ApiError> {
    authorize::resource(&id, caller.restrictions())?;
    let [client_id, prefix, limit, cursor, sort] =
        query::parse(&uri, ["client_id", "prefix", "limit", "cursor", "sort"])?;
    let prefix = prefix.unwrap_or_default();
    let Page { limit, cursor } = Page::parse(limit.as_deref(), cursor)?;
    let sort = query::sort(sort.as_deref(), cursor.as_deref())?;
    let next = app.cursor_key.decode_lease(cursor.as_deref(), &id)?;
    if let Some(name) = client_id {
        for (name, is_given) in [("cursor", next.is_some()), ("sort", sort.is_some())] {
            if is_given {
                return Err(ApiError::malformed(format!(
                    "query parameters `{name}` and `client_id` cannot be combined"
                )));
            }
        }
        authorize::client(&name, caller.restrictions())?;
        return one_holder(&app.ledger, &ParentNote::new(&app), &id, &name);
    }

    let turns = PagedRead::begin(&app).await?;
    let query = PageQuery {
        limit,
        prefix: &prefix,
        allowed: caller.restrictions().clients.as_ref(),
    };
    if let Some(sort) = sort {
        return largest(&turns, &id, &query, sort).await;
    }
    let (leases, next) = by_name(&turns, &id, &query, next).await?;
    Ok(Json(LeasePage {
        leases,
        total: None,
        next_cursor: next.map(|position| app.cursor_key.at_lease(&id, position)),
    }))
}

/// The page of the next holders in the order of their names, and where to continue.
async fn by_name(
    turns: &PagedRead<'_>,
    id: &ResourceId,
    query: &PageQuery<'_>,
    mut next: Option<HolderCursor>,
) -> Result<(Vec<HolderView>, Option<HolderCursor>), ApiError> {
    let mut leases = Vec::new();
    for chunk in 0..MAX_CHUNKS {
        let turn = turns.turn().await;
        let part = PageQuery {
            limit: query.limit.saturating_sub(leases.len()).min(CHUNK),
            ..*query
        };
        match read(turn, &turns.note, |ledger, now| {
            ledger.holders(id, &part, next, now)
        })? {
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
    turns: &PagedRead<'_>,
    id: &ResourceId,
    query: &PageQuery<'_>,
    sort: SortBy,
) -> Result<Json<LeasePage>, ApiError> {
    let mut ranking = HolderRanking::new(sort, query.limit);
    let rank = |ledger: &SharedLedger, chunk| {
        let ranked =
            ledger.with(|ledger, now| ledger.rank_holders(id, &mut ranking, query, now))?;
        // All holders may leave after the first chunk.
        ranked.or_else(|_| {
            if chunk > 0 {
                Ok(false)
            } else {
                Err(not_live(id))
            }
        })
    };
    turns.rank(rank).await?;
    let total = ranking.total();
    let mut leases = Vec::new();
    for positions in ranking.into_largest().chunks(CHUNK) {
        let found = read(turns.turn().await, &turns.note, |ledger, now| {
            ledger.holders_at(id, positions, query, now)
        })?;
        match found {
            Ok((views, _)) => leases.extend(views),
            Err(_) => break,
        }
    }
    // Some have changed since.
    leases.sort_by(|a: &HolderView, b| b.amount(sort).total_cmp(&a.amount(sort)));
    Ok(only_page(leases, Some(total)))
}

/// The holders of one name; an empty page if none holds the resource or waits for it.
fn one_holder(
    ledger: &SharedLedger,
    note: &ParentNote,
    id: &ResourceId,
    name: &str,
) -> Result<Json<LeasePage>, ApiError> {
    let name = ClientId::new(name)
        .map_err(|error| ApiError::malformed(format!("query parameter `client_id` {error}")))?;
    let (leases, _) = read(ledger, note, |ledger, now| {
        ledger.holders_named(id, &name, now)
    })?
    .map_err(|_| not_live(id))?;
    Ok(only_page(leases, None))
}

fn only_page(leases: Vec<HolderView>, total: Option<u64>) -> Json<LeasePage> {
    Json(LeasePage {
        leases,
        total,
        next_cursor: None,
    })
}

type Chunk = (Vec<HolderView>, Option<HolderCursor>);

/// Reads the ledger; the texts are written after the lock is released.
fn read(
    ledger: &SharedLedger,
    note: &ParentNote,
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
            .map(|holder| holder.capped_at(bound).into_view(&resource, unix_now))
            .map(|view| note.on_holder(view));
        (views.collect(), next)
    }))
}
