//! Middleware before every handler: allowed host, authentication, rate limit, scope.

use axum::{
    body::{Body, HttpBody},
    extract::{MatchedPath, Request, State},
    http::{HeaderMap, Method, Response},
    middleware::Next,
    response::IntoResponse,
};
use doorman_openapi::{MAX_BODY_BYTES, Scope};

use super::{
    allowed_hosts::AllowedHosts,
    error::ApiError,
    lease::charge::QuotaCharge,
    policy::{self, Access, Policy, RequestCost},
};
use crate::{
    auth::{Auth, Caller, TokenStatus},
    http::state::{AppParts, AppState},
    observe::context,
    quota::{Charge, LeaseCost, QuotaKey, Quotas, RateLimited},
    util::{clock, peer::PeerAddr},
};

/// Lets a request pass with its `Caller` in the extensions.
pub(super) async fn guard(
    State(app): State<AppState>,
    mut request: Request,
    next: Next,
) -> Response<Body> {
    let policy = policy_of(&request);
    let checked = match &app.auth {
        None => check_anonymous(&app, &app.allowed_hosts, policy, &mut request),
        Some(auth) => check_token(&app, auth, policy, &mut request).await,
    };
    match checked.and_then(|()| check_master(&app, policy, &request)) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

/// Lets a request pass without authentication: for the metrics listener.
pub(super) async fn guard_without_auth(
    State((app, hosts)): State<(AppState, AllowedHosts)>,
    mut request: Request,
    next: Next,
) -> Response<Body> {
    let policy = policy_of(&request);
    match check_anonymous(&app, &hosts, policy, &mut request) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

/// `None`: there is no such path, or it does not support the method.
fn policy_of(request: &Request) -> Option<Policy> {
    let path = request.extensions().get::<MatchedPath>()?;
    policy::of(request.method(), path.as_str())
}

/// Sends requests that only the master can answer to it.
fn check_master(app: &AppParts, policy: Option<Policy>, request: &Request) -> Result<(), ApiError> {
    // The handler responds that the ledger is poisoned.
    if app.ledger.is_master() || app.ledger.is_poisoned() {
        return Ok(());
    }
    if !policy.is_some_and(|policy| policy.needs_master) {
        return Ok(());
    }
    let path = request.uri().path_and_query().map_or("", |it| it.as_str());
    // A server that has just lost mastership may not know yet.
    let is_other = |it: &String| *it != app.server.advertise;
    let master = app.master.borrow().address.clone().filter(is_other);
    Err(ApiError::not_master(master.as_deref(), path))
}

fn check_anonymous(
    app: &AppParts,
    hosts: &AllowedHosts,
    policy: Option<Policy>,
    request: &mut Request,
) -> Result<(), ApiError> {
    let cost = cost(policy);
    if cost == RequestCost::Free {
        return Ok(());
    }
    hosts.check(request)?;
    let key = peer_key(request, app);
    Ok(charge(cost, &app.quotas, key, request)?)
}

async fn check_token(
    app: &AppParts,
    auth: &Auth,
    policy: Option<Policy>,
    request: &mut Request,
) -> Result<(), ApiError> {
    let cost = cost(policy);
    if cost == RequestCost::Free {
        return Ok(());
    }
    let path = request.extensions().get::<MatchedPath>().cloned();
    let path = path.as_ref().map(MatchedPath::as_str);
    let scopes = match (path, policy) {
        // 404 for everybody.
        (None, _) => None,
        (_, Some(policy)) => policy.access.scopes(),
        // 405: for everybody on a public path, else for callers with any scope.
        (Some(path), None) => match policy::of(&Method::GET, path) {
            Some(policy) if policy.access == Access::Public => None,
            _ => Some(Scope::ALL),
        },
    };
    let key = peer_key(request, app);
    let Some(scopes) = scopes else {
        return Ok(app.quotas.charge(key, Charge::Open, clock::now())?);
    };
    let caller = authenticate(app, auth, key, request.headers()).await?;
    if let Some(identity) = caller.identity() {
        context::set_caller(&identity.issuer, &identity.subject);
    }
    let key = caller.identity_hash().map(QuotaKey::of_caller);
    charge(cost, &app.quotas, key, request)?;
    if !caller.may(scopes) {
        let subject = caller.identity().map(|it| &*it.subject);
        tracing::debug!(subject, path, "token lacks the scope");
        return Err(ApiError::missing_scope(scopes));
    }
    request.extensions_mut().insert(caller);
    Ok(())
}

fn cost(policy: Option<Policy>) -> RequestCost {
    policy.map_or(RequestCost::Public, |policy| policy.cost)
}

/// Charges what is due before the handler runs.
fn charge(
    cost: RequestCost,
    quotas: &Quotas,
    key: Option<QuotaKey>,
    request: &mut Request,
) -> Result<(), RateLimited> {
    if key.is_none() {
        return Ok(());
    }
    let charge = match cost {
        RequestCost::Free => return Ok(()),
        RequestCost::Lease => {
            let cost = body_cost(request.body());
            request.extensions_mut().insert(QuotaCharge::new(key, cost));
            Charge::Reading(cost)
        }
        RequestCost::Request => Charge::Request,
        RequestCost::Operation(operation) => Charge::Operation(operation),
        RequestCost::Public => Charge::Open,
    };
    quotas.charge(key, charge, clock::now())
}

/// The cost of reading a body, by its declared length; without one, that of the largest body.
fn body_cost(body: &Body) -> LeaseCost {
    let largest = u64::try_from(MAX_BODY_BYTES).unwrap_or(u64::MAX);
    let declared = body.size_hint().exact();
    LeaseCost::for_body(declared.unwrap_or(largest).min(largest))
}

/// The account of the peer's address.
fn peer_key(request: &Request, app: &AppParts) -> Option<QuotaKey> {
    let peer = request.extensions().get::<PeerAddr>().copied();
    app.quotas.address_key(peer)
}

/// Verifies the token. An unknown token is charged to the peer's address, and refunded if it is
/// valid. A token that was valid before is verified whatever others at its address have spent.
async fn authenticate(
    app: &AppParts,
    auth: &Auth,
    key: Option<QuotaKey>,
    headers: &HeaderMap,
) -> Result<Caller, ApiError> {
    let (quotas, now) = (&app.quotas, clock::now());
    match auth.token_status(headers, now) {
        TokenStatus::Verified(caller) => Ok(caller),
        TokenStatus::Stale => verify(auth, headers).await,
        TokenStatus::Absent => {
            quotas.charge(key, Charge::Open, now)?;
            verify(auth, headers).await
        }
        TokenStatus::Unknown => {
            quotas.charge(key, Charge::Verification, now)?;
            let caller = verify(auth, headers).await?;
            quotas.refund_verification(key, now);
            Ok(caller)
        }
    }
}

/// Leaves the failed check to the log: the caller learns less.
async fn verify(auth: &Auth, headers: &HeaderMap) -> Result<Caller, ApiError> {
    auth.authenticate(headers).await.map_err(|error| {
        context::set_failed_check(error.failed_check());
        error.into()
    })
}
