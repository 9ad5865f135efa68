//! Who holds a resource, and why no more.
//!
//! A page is made of several looks at the books, a few holders each, so that those who lease do not wait for it; in the order of the list,
//! which does not change while holders stay, so that none who stays is missed or met twice.

use std::sync::Arc;

use axum::{extract::State, http::Uri};
use doorman_openapi::{ClientId, HolderView, LeasePage, Moment, ResourceId, paths};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    cursor,
    extract::Named,
    failures::{NotFound, OfAQuery, Unavailable},
    page::{PART, PARTS, Page},
    permit,
    query::{self, Query, bad},
    refusal::Refusal,
    reply::Written,
    resources::not_live,
    shapes::Limit,
};
use crate::{
    auth::Caller,
    http::{Seal, state::AppState},
    leasing::{LedgerPoisoned, SharedLedger},
    ledger::{HolderCursor, HolderPage, Ledger, ListError, PageQuery},
    quota::{Quotas, ReadKind},
    util::clock,
};

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list_leases))
}

/// List who holds a resource
///
/// What each holder wants, what its share of it is, what it has, and what keeps it from more; of a token that is bound to some clients,
/// those.
///
/// A page with a `next_cursor` may hold fewer than `limit`, or none, where many holders have gone, or a token is bound to few of very many:
/// the list ends where there is no `next_cursor`. Who holds the resource from the first page to the last is in one of them, and in no two,
/// whoever comes and goes meanwhile. A cursor ends with the server's start, and with the resource, once nobody holds it: then there
/// is no list (404), and when somebody holds it again, or the server has started anew, the list has to be begun again (400).
///
/// The example answers after that of `lease_capacity` has been sent.
#[utoipa::path(
    get,
    path = paths::RESOURCE_LEASES,
    tag = "views",
    params(
        ("resource_id" = ResourceId, Path, description = "Percent-encoded, slashes too: `tenant%2Facme`", example = "db"),
        ("client_id" = inline(Option<ClientId>), Query, nullable = false, description = "Only the holder of this name: found at once however many there are, and not to be combined with `cursor`"),
        ("limit" = inline(Option<Limit>), Query, nullable = false, description = "The most holders of a page: 50 when absent; what is above 1000 counts as 1000", example = 50),
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
        OfAQuery,
        NotFound,
        Unavailable
    )
)]
async fn list_leases(
    State(ledger): State<Arc<SharedLedger>>,
    State(limits): State<Arc<Quotas>>,
    State(seal): State<Arc<Seal>>,
    caller: Caller,
    Named(id): Named,
    uri: Uri,
) -> Result<Written, Refusal> {
    permit::resource(&id, caller.restrictions())?;
    let known = ["client_id", "limit", "cursor"];
    let [client_id, limit, cursor] = Query::read(&uri, known)?.into_values();
    let limit = query::limit(limit.as_deref())?;
    let from = cursor::read_lease(&seal, cursor.as_deref(), &id)?;
    if let Some(name) = client_id {
        if from.is_some() {
            return Err(bad(
                "`cursor` in the query does not go with `client_id`: that list has one page",
            ));
        }
        permit::client(&name, caller.restrictions())?;
        return one(&ledger, &id, &name);
    }

    let mut page = Page::new("leases");
    let mut next = from;
    let looking = limits.begin_read(ReadKind::Page).await?;
    for part in 0..PARTS {
        ledger.yield_to_waiters(looking.rest(clock::now())).await;
        let one_look = PageQuery {
            limit: limit.saturating_sub(page.len()).min(PART),
            allowed: caller.restrictions().clients.as_ref(),
        };
        let listed = look(&ledger, |core, now| core.holders(&id, &one_look, next, now))?;
        match listed {
            Ok((some, after)) => {
                some.iter().for_each(|lease| page.push(lease));
                next = after;
            }
            // It has gone, and who was there with it; who has come since was not there from the first page on.
            Err(_) if part > 0 => next = None,
            Err(ListError::NotLive) => return Err(not_live(&id)),
            Err(ListError::StaleCursor) => {
                return Err(bad(format!(
                    "nobody held `{id}` since the page that `cursor` in the query is from: begin again without it"
                )));
            }
        }
        if next.is_none() || page.len() >= limit {
            break;
        }
    }
    let next_cursor = next.map(|place| cursor::at_lease(&seal, &id, place));
    Ok(page.end(next_cursor.as_deref()))
}

/// The holder of one name; none when it neither holds the resource nor waits for it.
fn one(ledger: &SharedLedger, id: &ResourceId, name: &str) -> Result<Written, Refusal> {
    let name =
        ClientId::new(name).map_err(|error| bad(format!("`client_id` in the query {error}")))?;
    let (leases, _) =
        look(ledger, |core, now| core.holders_named(id, &name, now))?.map_err(|_| not_live(id))?;
    let mut page = Page::new("leases");
    leases.iter().for_each(|lease| page.push(lease));
    Ok(page.end(None))
}

type Listed = (Vec<HolderView>, Option<HolderCursor>);

/// ReadKind at the books; the sentences are written when they are free again.
fn look(
    ledger: &SharedLedger,
    look: impl FnOnce(&Ledger, Moment) -> Result<HolderPage, ListError>,
) -> Result<Result<Listed, ListError>, LedgerPoisoned> {
    let page = ledger.with(|core, now| look(core, now))?;
    let unix_now = clock::unix_seconds();
    Ok(page.map(|page| {
        let HolderPage {
            resource,
            holders,
            next,
        } = page;
        let bound = ledger.bound().get();
        let views = holders
            .into_iter()
            .map(|holding| holding.capped_at(bound).into_view(&resource, unix_now));
        (views.collect(), next)
    }))
}
