//! What operators look at: the live resources, and who holds them.
//!
//! A resource is live while somebody holds it or waits for it; the books forget it afterwards, so a resource that a template matches
//! but nobody uses is not found. Lists come in pages from the first day on: adding pages later would break who reads them.

use std::sync::Arc;

use axum::{extract::State, http::Uri};
use doorman_openapi::{LeasePage, ProblemType, ResourceId, ResourcePage, ResourceView, paths};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    cursor,
    extract::{Named, NoQuery},
    failures::{NotFound, OfAQuery, Unavailable},
    permit,
    query::{self, Query},
    refusal::Refusal,
    reply::Fresh,
};
use crate::{app::App, auth::Caller, clock};

/// How many resources are looked at, at least, each time the books are taken for one whose token is bound to some.
const PART: usize = 256;

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list_resources))
        .routes(routes!(get_resource))
        .routes(routes!(list_leases))
}

/// List the live resources
///
/// By identifier, byte by byte; of a token that is bound to some resources, those.
#[utoipa::path(
    get,
    path = paths::RESOURCES,
    tag = "views",
    params(
        ("prefix" = inline(Option<String>), Query, nullable = false, description = "Only resources whose identifier begins so", example = "d"),
        ("limit" = inline(Option<u32>), Query, nullable = false, minimum = 1, description = "The most resources of a page: 50 when absent; what is above 1000 counts as 1000", example = 50),
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
                    "clients": 1,
                    "in_learning_mode": false,
                    "template": "*",
                    "algorithm": "FAIR_SHARE"
                }],
                "next_cursor": "cmRi"
            })
        ),
        OfAQuery,
        Unavailable
    )
)]
async fn list_resources(
    State(app): State<Arc<App>>,
    caller: Caller,
    uri: Uri,
) -> Result<Fresh<ResourcePage>, Refusal> {
    let [prefix, limit, cursor] = Query::read(&uri, ["prefix", "limit", "cursor"])?.into_values();
    let prefix = prefix.unwrap_or_default();
    let limit = query::limit(limit.as_deref())?;
    let mut after = cursor::read_resource(cursor.as_deref(), &prefix)?;

    // One more than the page holds tells whether there is another page. Whose token is bound to some resources is told of no others,
    // not even by a cursor: so the books are gone through until the page is full, a part at a time. A part is never small then, as
    // each takes the books from those who lease.
    let most = limit.saturating_add(1);
    let at_a_time = match caller.bounds().resources {
        None => most,
        Some(_) => most.max(PART),
    };
    let mut resources = Vec::new();
    while resources.len() < most {
        let mut part =
            app.books(|core, now| core.resources(&prefix, after.as_ref(), at_a_time, now))?;
        let is_last = part.len() < at_a_time;
        after = part.last().map(|last| last.resource_id.clone());
        part.retain(|it| caller.bounds().allow_resource(it.resource_id.as_str()));
        resources.append(&mut part);
        if is_last {
            break;
        }
        tokio::task::yield_now().await;
    }
    let more = resources.len() > limit;
    resources.truncate(limit);
    let next_cursor = resources
        .last()
        .filter(|_| more)
        .map(|last| cursor::after_resource(&last.resource_id));
    Ok(Fresh::new(ResourcePage {
        resources,
        next_cursor,
    }))
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
                "clients": 1,
                "in_learning_mode": false,
                "template": "*",
                "algorithm": "FAIR_SHARE"
            })
        ),
        OfAQuery,
        NotFound,
        Unavailable
    )
)]
async fn get_resource(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named,
    NoQuery: NoQuery,
) -> Result<Fresh<ResourceView>, Refusal> {
    permit::resource(&id, caller.bounds())?;
    app.books(|core, now| core.resource(&id, now))?
        .map(Fresh::new)
        .ok_or_else(|| not_live(&id))
}

/// List who holds a resource
///
/// A page with a `next_cursor` may hold fewer than `limit`, or none, where many holders have gone, or a token is bound to some clients:
/// the list ends where there is no `next_cursor`.
///
/// The example answers after that of `lease_capacity` has been sent.
#[utoipa::path(
    get,
    path = paths::RESOURCE_LEASES,
    tag = "views",
    params(
        ("resource_id" = ResourceId, Path, description = "Percent-encoded, slashes too: `tenant%2Facme`", example = "db"),
        ("limit" = inline(Option<u32>), Query, nullable = false, minimum = 1, description = "The most holders of a page: 50 when absent; what is above 1000 counts as 1000", example = 50),
        ("cursor" = inline(Option<String>), Query, nullable = false, description = "The `next_cursor` of the page before")
    ),
    responses(
        (
            status = OK,
            description = "A page of the resource's holders",
            body = LeasePage,
            example = json!({
                "leases": [{
                    "client_id": "shop-1",
                    "kind": "client",
                    "priority": 0,
                    "wants": 50,
                    "has": 50,
                    "booked": 50,
                    "outstanding": 0,
                    "used": null,
                    "expires_in": 61.2,
                    "expiry_time": 1795123456
                }]
            })
        ),
        OfAQuery,
        NotFound,
        Unavailable
    )
)]
async fn list_leases(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named,
    uri: Uri,
) -> Result<Fresh<LeasePage>, Refusal> {
    permit::resource(&id, caller.bounds())?;
    let [limit, cursor] = Query::read(&uri, ["limit", "cursor"])?.into_values();
    let limit = query::limit(limit.as_deref())?;
    let from = cursor::read_lease(cursor.as_deref(), &id)?.unwrap_or(0);
    let (mut leases, next) = app
        .books(|core, now| core.holders(&id, from, limit, now, clock::unix_seconds()))?
        .ok_or_else(|| not_live(&id))?;
    leases.retain(|it| caller.bounds().allow_client(&it.client_id));
    let next_cursor = next.map(|position| cursor::at_lease(&id, position));
    Ok(Fresh::new(LeasePage {
        leases,
        next_cursor,
    }))
}

fn not_live(id: &ResourceId) -> Refusal {
    Refusal::new(
        ProblemType::NotFound,
        format!("nobody holds `{id}` or waits for it"),
    )
}
