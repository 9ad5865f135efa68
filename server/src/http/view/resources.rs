//! `GET /v1/resources`: the live resources. One that only matches a template is not found.

use axum::{extract::State, http::Uri};
use doorman_core::ledger::{PageQuery, ResourceRanking};
use doorman_openapi::{ProblemType, ResourceId, ResourcePage, ResourceView, SortBy, paths};

use super::{CHUNK, MAX_CHUNKS, PagedRead, ParentNote, cursor::after_resource};
use crate::{
    auth::Caller,
    http::{
        authorize,
        error::ApiError,
        extract::{
            NoQuery, ResourcePath,
            query::{self, Page},
        },
        response::Json,
        state::AppState,
    },
    leasing::SharedLedger,
    util::clock,
};

/// List the live resources
///
/// Ordered by identifier, byte by byte. A restricted token sees only the resources that it may
/// access.
///
/// A page with a `next_cursor` may have fewer than `limit` resources, or none, for a restricted
/// token. The list ends where there is no `next_cursor`. A cursor stays valid when resources come
/// and go, and after a restart of the server unless it belongs to such a page.
///
/// With `sort` the list is one page with the `limit` largest resources, and `total` counts all of
/// them. The list is read in parts, so changes during the read may or may not be seen.
#[utoipa::path(
    get,
    path = paths::RESOURCES,
    params(
        ("prefix" = inline(Option<String>), Query, description = "Only resources whose identifier starts with this", example = "d"),
        Page,
        ("sort" = inline(Option<SortBy>), Query, description = "Only the largest, by `sum_wants`, `sum_has`, `unmet` (rates per second) or `clients`; cannot be combined with `cursor`")
    ),
    responses((status = OK, description = "A page of live resources", body = ResourcePage))
)]
pub(in crate::http) async fn list_resources(
    State(app): State<AppState>,
    caller: Caller,
    uri: Uri,
) -> Result<Json<ResourcePage>, ApiError> {
    let [prefix, limit, cursor, sort] = query::parse(&uri, ["prefix", "limit", "cursor", "sort"])?;
    let prefix = prefix.unwrap_or_default();
    let Page { limit, cursor } = Page::parse(limit.as_deref(), cursor)?;
    let allowed = caller.restrictions().resources.as_ref();
    if let Some(sort) = query::sort(sort.as_deref(), cursor.as_deref())? {
        let query = PageQuery {
            limit,
            prefix: &prefix,
            allowed,
        };
        return largest(&PagedRead::begin(&app).await?, &query, sort).await;
    }
    let key = &app.cursor_key;
    let mut after = key.decode_resource(cursor.as_deref(), &prefix)?;

    let mut resources = Vec::new();
    let mut more = false;
    let read = PagedRead::begin(&app).await?;
    for _ in 0..MAX_CHUNKS {
        let turn = read.turn().await;
        // One more than the page holds tells whether there is a next page.
        let left = limit.saturating_sub(resources.len());
        let query = PageQuery {
            limit: left.saturating_add(1).min(CHUNK),
            prefix: &prefix,
            allowed,
        };
        let chunk = turn.with(|ledger, now| ledger.resources(&query, after.as_ref(), now))?;
        more = chunk.resources.len() > left;
        after = chunk.next;
        let views = chunk.resources.into_iter().take(left);
        resources.extend(views.map(|view| read.note.on_resource(view)));
        if more || after.is_none() {
            break;
        }
    }
    let next_cursor = if more {
        resources
            .last()
            .map(|last: &ResourceView| after_resource(&last.resource_id))
    } else {
        after.map(|last| {
            if caller.restrictions().allows_resource(last.as_str()) {
                after_resource(&last)
            } else {
                key.after_hidden_resource(&last, &prefix)
            }
        })
    };
    Ok(page(resources, None, next_cursor))
}

fn page(
    resources: Vec<ResourceView>,
    total: Option<u64>,
    next_cursor: Option<String>,
) -> Json<ResourcePage> {
    let unix_now = clock::unix_seconds();
    Json(ResourcePage {
        resources: (resources.into_iter().map(|it| it.dated(unix_now))).collect(),
        total,
        next_cursor,
    })
}

/// The page of the largest resources.
async fn largest(
    read: &PagedRead<'_>,
    query: &PageQuery<'_>,
    sort: SortBy,
) -> Result<Json<ResourcePage>, ApiError> {
    let mut ranking = ResourceRanking::new(sort, query.limit);
    let rank = |ledger: &SharedLedger, _| {
        Ok(ledger.with(|ledger, now| ledger.rank_resources(&mut ranking, query, now))?)
    };
    read.rank(rank).await?;
    let total = ranking.total();
    let mut resources = Vec::new();
    for ids in ranking.into_largest().chunks(CHUNK) {
        let views = read.turn().await.with(|ledger, now| {
            let views = ids.iter().filter_map(|id| ledger.resource(id, now));
            views.collect::<Vec<_>>()
        })?;
        resources.extend(views.into_iter().map(|view| read.note.on_resource(view)));
    }
    // Some have changed since.
    resources.sort_by(|a: &ResourceView, b| b.amount(sort).total_cmp(&a.amount(sort)));
    Ok(page(resources, Some(total), None))
}

/// Read a live resource
///
/// The example works after that of `lease_capacity`.
#[utoipa::path(
    get,
    path = paths::RESOURCE,
    params(ResourcePath),
    responses((status = OK, description = "The resource", body = ResourceView))
)]
pub(in crate::http) async fn get_resource(
    State(app): State<AppState>,
    caller: Caller,
    ResourcePath(id): ResourcePath,
    NoQuery: NoQuery,
) -> Result<Json<ResourceView>, ApiError> {
    authorize::resource(&id, caller.restrictions())?;
    app.ledger
        .with(|ledger, now| ledger.resource(&id, now))?
        .map(|view| ParentNote::new(&app).on_resource(view))
        .map(|view| Json(view.dated(clock::unix_seconds())))
        .ok_or_else(|| not_live(&id))
}

pub(super) fn not_live(id: &ResourceId) -> ApiError {
    ApiError::new(
        ProblemType::NotFound,
        format!("resource `{id}` is not live"),
    )
}
