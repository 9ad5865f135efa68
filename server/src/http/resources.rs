//! What operators look at: the live resources.
//!
//! A resource is live while somebody holds it or waits for it; the books forget it afterwards, so a resource that a template matches
//! but nobody uses is not found. Lists come in pages from the first day on: adding pages later would break who reads them.

use std::sync::Arc;

use axum::{extract::State, http::Uri};
use doorman_openapi::{ProblemType, ResourceId, ResourcePage, ResourceView, paths};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    cursor,
    extract::{Named, NoQuery},
    failures::{NotFound, OfAQuery, Unavailable},
    page::{PART, PARTS, Page},
    permit,
    query::{self, Query},
    refusal::Refusal,
    reply::{Fresh, Written},
    shapes::Limit,
};
use crate::{
    auth::Caller,
    http::{Seal, state::AppState},
    leasing::SharedLedger,
    ledger::PageQuery,
    quota::{Quotas, ReadKind},
    util::clock,
};

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list_resources))
        .routes(routes!(get_resource))
}

/// List the live resources
///
/// By identifier, byte by byte; of a token that is bound to some resources, those.
///
/// A page with a `next_cursor` may hold fewer than `limit`, or none, where a token is bound to few of very many: the list ends where there is
/// no `next_cursor`. A cursor outlives the resources of its page, and the server's start but on such a page.
#[utoipa::path(
    get,
    path = paths::RESOURCES,
    tag = "views",
    params(
        ("prefix" = inline(Option<String>), Query, nullable = false, description = "Only resources whose identifier begins so", example = "d"),
        ("limit" = inline(Option<Limit>), Query, nullable = false, description = "The most resources of a page: 50 when absent; what is above 1000 counts as 1000", example = 50),
        ("cursor" = inline(Option<String>), Query, nullable = false, description = "The `next_cursor` of the page before")
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
        OfAQuery,
        Unavailable
    )
)]
async fn list_resources(
    State(ledger): State<Arc<SharedLedger>>,
    State(limits): State<Arc<Quotas>>,
    State(seal): State<Arc<Seal>>,
    caller: Caller,
    uri: Uri,
) -> Result<Written, Refusal> {
    let [prefix, limit, cursor] = Query::read(&uri, ["prefix", "limit", "cursor"])?.into_values();
    let prefix = prefix.unwrap_or_default();
    let limit = query::limit(limit.as_deref())?;
    let mut after = cursor::read_resource(&seal, cursor.as_deref(), &prefix)?;

    // One more than the page holds tells whether there is another page. LimitScope token is bound to some resources is told of no others,
    // not even by a cursor: so the books are gone through until the page is full, a part at a time, for those who lease.
    let within = caller.restrictions().resources.as_ref();
    let mut page = Page::new("resources");
    let mut last = None;
    let mut more = false;
    let looking = limits.begin_read(ReadKind::Page).await?;
    for _ in 0..PARTS {
        ledger.yield_to_waiters(looking.rest(clock::now())).await;
        let left = limit.saturating_sub(page.len());
        let look = PageQuery {
            limit: left.saturating_add(1).min(PART),
            allowed: within,
        };
        let found =
            ledger.with(|ledger, now| ledger.resources(&prefix, &look, after.as_ref(), now))?;
        more = found.resources.len() > left;
        after = found.next;
        for resource in found.resources.into_iter().take(left) {
            page.push(&resource);
            last = Some(resource.resource_id);
        }
        if more || after.is_none() {
            break;
        }
    }
    let next_cursor = if more {
        last.as_ref().map(cursor::after_resource)
    } else {
        // So many may not be seen that the others are left for the next page.
        after.map(
            |passed| match caller.restrictions().allows_resource(passed.as_str()) {
                true => cursor::after_resource(&passed),
                false => cursor::after_hidden_resource(&seal, &passed, &prefix),
            },
        )
    };
    Ok(page.end(next_cursor.as_deref()))
}

/// Look at a live resource
///
/// The example answers after that of `lease_capacity` has been sent.
#[utoipa::path(
    get,
    path = paths::RESOURCE,
    tag = "views",
    params(
        ("resource_id" = ResourceId, Path, description = "Percent-encoded, slashes too: `tenant%2Facme`", example = "db")
    ),
    responses(
        (
            status = OK,
            description = "The resource",
            body = ResourceView,
            example = json!({
                "resource_id": "db",
                "capacity": 1000,
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
        OfAQuery,
        NotFound,
        Unavailable
    )
)]
async fn get_resource(
    State(ledger): State<Arc<SharedLedger>>,
    caller: Caller,
    Named(id): Named,
    NoQuery: NoQuery,
) -> Result<Fresh<ResourceView>, Refusal> {
    permit::resource(&id, caller.restrictions())?;
    ledger
        .with(|ledger, now| ledger.resource(&id, now))?
        .map(Fresh::new)
        .ok_or_else(|| not_live(&id))
}

pub(super) fn not_live(id: &ResourceId) -> Refusal {
    Refusal::new(
        ProblemType::NotFound,
        format!("nobody holds `{id}` or waits for it"),
    )
}
