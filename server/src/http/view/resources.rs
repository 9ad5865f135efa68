//! `GET /v1/resources`: the live resources. One that only matches a template is not found.

use std::sync::Arc;

use axum::{extract::State, http::Uri};
use doorman_openapi::{ProblemType, ResourceId, ResourcePage, ResourceView, SortBy, paths};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    CHUNK, MAX_CHUNKS, MAX_SORT_CHUNKS,
    cursor::{CursorKey, after_resource},
    too_many_to_sort,
};
use crate::{
    auth::Caller, http::authorize, http::error::ApiError, http::extract::NoQuery,
    http::extract::ResourcePath, http::extract::query, http::openapi::responses::LedgerErrors,
    http::openapi::responses::NotFoundError, http::openapi::responses::QueryErrors,
    http::openapi::schemas::Limit, http::response::Json, http::state::AppState,
    leasing::SharedLedger, quota::Quotas, quota::ReadKind, quota::ReadPermit, util::clock,
};
use doorman_core::{ledger::PageQuery, ledger::ResourceRanking};

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list_resources))
        .routes(routes!(get_resource))
}

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
    tag = "views",
    params(
        ("prefix" = inline(Option<String>), Query, nullable = false, description = "Only resources whose identifier starts with this", example = "d"),
        ("limit" = inline(Option<Limit>), Query, nullable = false, description = "The page size: 50 by default, at most 1000; a larger value is lowered", example = 50),
        ("cursor" = inline(Option<String>), Query, nullable = false, description = "The `next_cursor` of the previous page"),
        ("sort" = inline(Option<SortBy>), Query, nullable = false, description = "Only the largest, by `sum_wants`, `sum_has` (rates per second) or `clients`; cannot be combined with `cursor`")
    ),
    responses(
        (
            status = OK,
            description = "A page of live resources",
            body = ResourcePage,
            example = json!({
                "resources": [{
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
                }],
                "next_cursor": "cmRi"
            })
        ),
        QueryErrors,
        LedgerErrors
    )
)]
async fn list_resources(
    State(ledger): State<Arc<SharedLedger>>,
    State(quotas): State<Arc<Quotas>>,
    State(key): State<Arc<CursorKey>>,
    caller: Caller,
    uri: Uri,
) -> Result<Json<ResourcePage>, ApiError> {
    let [prefix, limit, cursor, sort] = query::parse(&uri, ["prefix", "limit", "cursor", "sort"])?;
    let prefix = prefix.unwrap_or_default();
    let limit = query::limit(limit.as_deref())?;
    if let Some(sort) = query::sort(sort.as_deref(), cursor.as_deref())? {
        let permit = quotas.begin_read(ReadKind::Page).await?;
        return largest(&ledger, &permit, &caller, &prefix, limit, sort).await;
    }
    let mut after = key.decode_resource(cursor.as_deref(), &prefix)?;

    let allowed = caller.restrictions().resources.as_ref();
    let mut resources = Vec::new();
    let mut more = false;
    let permit = quotas.begin_read(ReadKind::Page).await?;
    for _ in 0..MAX_CHUNKS {
        ledger.yield_to_waiters(permit.delay(clock::now())).await;
        // One more than the page holds tells whether there is a next page.
        let left = limit.saturating_sub(resources.len());
        let query = PageQuery {
            limit: left.saturating_add(1).min(CHUNK),
            prefix: &prefix,
            allowed,
        };
        let chunk = ledger.with(|ledger, now| ledger.resources(&query, after.as_ref(), now))?;
        more = chunk.resources.len() > left;
        after = chunk.next;
        resources.extend(chunk.resources.into_iter().take(left));
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
    Ok(Json(ResourcePage {
        resources,
        total: None,
        next_cursor,
    }))
}

/// The page of the largest resources.
async fn largest(
    ledger: &SharedLedger,
    permit: &ReadPermit<'_>,
    caller: &Caller,
    prefix: &str,
    limit: usize,
    sort: SortBy,
) -> Result<Json<ResourcePage>, ApiError> {
    let query = PageQuery {
        limit,
        prefix,
        allowed: caller.restrictions().resources.as_ref(),
    };
    let mut ranking = ResourceRanking::new(sort, limit);
    for chunk in 0.. {
        if chunk >= MAX_SORT_CHUNKS {
            return Err(too_many_to_sort());
        }
        ledger.yield_to_waiters(permit.delay(clock::now())).await;
        if !ledger.with(|ledger, _| ledger.rank_resources(&mut ranking, &query))? {
            break;
        }
    }
    let total = ranking.total();
    let mut resources = Vec::new();
    for ids in ranking.into_largest().chunks(CHUNK) {
        ledger.yield_to_waiters(permit.delay(clock::now())).await;
        let views = ledger.with(|ledger, now| {
            let views = ids.iter().filter_map(|id| ledger.resource(id, now));
            views.collect::<Vec<_>>()
        })?;
        resources.extend(views);
    }
    // Some have changed since.
    resources.sort_by(|a: &ResourceView, b| b.amount(sort).total_cmp(&a.amount(sort)));
    Ok(Json(ResourcePage {
        resources,
        total: Some(total),
        next_cursor: None,
    }))
}

/// Read a live resource
///
/// The example works after that of `lease_capacity`.
#[utoipa::path(
    get,
    path = paths::RESOURCE,
    tag = "views",
    params(
        ("resource_id" = ResourceId, Path, description = "Percent-encoded: `tenant%2Facme`, or `tenant/acme`", example = "db")
    ),
    responses(
        (
            status = OK,
            description = "The resource",
            body = ResourceView,
            example = json!({
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
            })
        ),
        QueryErrors,
        NotFoundError,
        LedgerErrors
    )
)]
async fn get_resource(
    State(ledger): State<Arc<SharedLedger>>,
    caller: Caller,
    ResourcePath(id): ResourcePath,
    NoQuery: NoQuery,
) -> Result<Json<ResourceView>, ApiError> {
    authorize::resource(&id, caller.restrictions())?;
    ledger
        .with(|ledger, now| ledger.resource(&id, now))?
        .map(Json)
        .ok_or_else(|| not_live(&id))
}

pub(super) fn not_live(id: &ResourceId) -> ApiError {
    ApiError::new(
        ProblemType::NotFound,
        format!("resource `{id}` is not live"),
    )
}
