//! Who may call what: the one table of all routes, and the door that holds to it.
//!
//! The OpenAPI document takes its security requirements from the same table (`security`). A route that does not stand in it answers
//! nobody where tokens are asked for: forgetting one closes it, and a test names it.

use axum::{
    body::Body,
    extract::{MatchedPath, Request, State},
    http::{HeaderMap, HeaderValue, Method, Response},
    middleware::Next,
    response::IntoResponse,
};
use doorman_openapi::{ProblemType, Scope, paths};

use super::{
    challenge,
    names::Names,
    refusal::Refusal,
    toll::{self, Toll},
};
use crate::{
    auth::{Auth, Caller, TokenStatus, Unauthenticated},
    http::state::{AppParts, AppState},
    observe::context,
    quota::QuotaKey,
    util::{clock, peer::PeerAddr},
};

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Everybody, without a token.
    Open,
    /// The token must have one of these scopes.
    AnyOf(&'static [Scope]),
}

/// Who may use a route with a method; `None` when the path does not take the method, or nobody has said.
pub(super) fn access(method: &Method, path: &str) -> Option<Access> {
    use Access::{AnyOf, Open};

    let reads = *method == Method::GET || *method == Method::HEAD;
    Some(match path {
        paths::CAPACITY | paths::CAPACITY_RELEASE if *method == Method::POST => {
            AnyOf(&[Scope::Capacity])
        }
        paths::SERVER_CAPACITY | paths::SERVER_CAPACITY_RELEASE if *method == Method::POST => {
            AnyOf(&[Scope::Server])
        }
        // Whoever may do anything may learn where.
        paths::DISCOVERY if reads => AnyOf(Scope::ALL),
        // Layers follow rules with the token that they lease with.
        paths::RULES if reads => AnyOf(&[Scope::Capacity, Scope::TemplatesRead]),
        paths::TEMPLATES | paths::TEMPLATE | paths::RULE | paths::HISTORY if reads => {
            AnyOf(&[Scope::TemplatesRead])
        }
        paths::TEMPLATES if *method == Method::PUT => AnyOf(&[Scope::TemplatesWrite]),
        paths::TEMPLATE | paths::RULE if [Method::PUT, Method::DELETE].contains(method) => {
            AnyOf(&[Scope::TemplatesWrite])
        }
        paths::RESOURCES | paths::RESOURCE | paths::RESOURCE_LEASES | paths::STATUS if reads => {
            AnyOf(&[Scope::StatusRead])
        }
        paths::METRICS if reads => AnyOf(&[Scope::StatusRead]),
        // What orchestrators ask has no token, and tells nothing.
        paths::LIVEZ | paths::READYZ if reads => Open,
        // The same for every server of this version that asks for tokens, and nothing of this one: the page asks for a token itself.
        paths::OPENAPI | paths::DOCS | "/docs/" | "/docs/{file}" | "/" if reads => Open,
        _ => return None,
    })
}

/// Lets a request pass, with its caller in its extensions, if it is addressed to this server, its caller may use the route, and has not
/// asked for too much.
pub(super) async fn check(
    State(app): State<AppState>,
    mut request: Request,
    next: Next,
) -> Response<Body> {
    let admitted = match &app.auth {
        None => anybody(&app, &app.names, &mut request),
        Some(auth) => somebody(&app, auth, &mut request).await,
    };
    match admitted {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

/// Lets a request pass, whoever sends it, if it is addressed to one of these names, and its address has not asked for too much.
pub(super) async fn check_nobody(
    State((app, names)): State<(AppState, Names)>,
    mut request: Request,
    next: Next,
) -> Response<Body> {
    match anybody(&app, &names, &mut request) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

/// Admits a request where nobody is asked who they are.
fn anybody(app: &AppParts, names: &Names, request: &mut Request) -> Result<(), Refusal> {
    let path = request.extensions().get::<MatchedPath>();
    let toll = toll::of(request.method(), path.map(MatchedPath::as_str));
    if toll == Toll::Free {
        return Ok(());
    }
    names.check(request)?;
    let payer = payer_at(request, app);
    toll.pay(&app.limits, payer, request)
}

/// Admits a request, and puts its caller in its extensions.
async fn somebody(app: &AppParts, auth: &Auth, request: &mut Request) -> Result<(), Refusal> {
    let path = request.extensions().get::<MatchedPath>().cloned();
    let path = path.as_ref().map(MatchedPath::as_str);
    let toll = toll::of(request.method(), path);
    if toll == Toll::Free {
        return Ok(());
    }
    // A wrong method on an open path is answered 405, whoever asks.
    let open = |path| access(&Method::GET, path).filter(|it| *it == Access::Open);
    let access = path.map(|path| access(request.method(), path).or_else(|| open(path)));
    let scopes = match access {
        // What no route matches is answered 404, whoever asks.
        None | Some(Some(Access::Open)) => {
            let payer = payer_at(request, app);
            return Ok(app.limits.charge_open(payer, clock::now())?);
        }
        Some(Some(Access::AnyOf(scopes))) => scopes,
        // A method that the path does not take is answered 405; but only to those who may do something.
        Some(None) => Scope::ALL,
    };
    let payer = payer_at(request, app);
    let caller = caller(app, auth, payer, request.headers()).await?;
    if let Some(identity) = caller.identity() {
        context::set_caller(&identity.issuer, &identity.subject);
    }
    let payer = caller.identity_hash().map(QuotaKey::of_caller);
    toll.pay(&app.limits, payer, request)?;
    if !caller.may(scopes) {
        let subject = caller.identity().map(|it| &*it.subject);
        tracing::debug!(subject, path, "the token has none of the scopes");
        return Err(challenge::scope(scopes));
    }
    request.extensions_mut().insert(caller);
    Ok(())
}

/// On whose account a request goes of which nobody knows who sends it.
fn payer_at(request: &Request, app: &AppParts) -> Option<QuotaKey> {
    let peer = request.extensions().get::<PeerAddr>().copied();
    app.limits.address_key(peer)
}

/// The caller that the token speaks of. Verifying a token that does not count is charged to the address that it comes from, on another
/// account than calls without a token. One that counts costs its address nothing, and one that has counted before, by other keys or
/// grants or longer ago, is verified whatever others at its address have spent. Only a quite new one may be refused where false tokens
/// come by the same proxy as fast as the limit lets them.
async fn caller(
    app: &AppParts,
    auth: &Auth,
    payer: Option<QuotaKey>,
    headers: &HeaderMap,
) -> Result<Caller, Refusal> {
    let (limits, now) = (&app.limits, clock::now());
    match auth.token_status(headers, now) {
        TokenStatus::Verified(caller) => Ok(caller),
        TokenStatus::Stale => auth.authenticate(headers).await.map_err(unauthenticated),
        TokenStatus::Absent => {
            limits.charge_open(payer, now)?;
            auth.authenticate(headers).await.map_err(unauthenticated)
        }
        TokenStatus::Unknown => {
            limits.charge_verification(payer, now)?;
            let caller = auth.authenticate(headers).await.map_err(unauthenticated)?;
            limits.refund_verification(payer, now);
            Ok(caller)
        }
    }
}

fn unauthenticated(why: Unauthenticated) -> Refusal {
    let (detail, says) = match why {
        Unauthenticated::KeysUnavailable => {
            return Refusal::new(
                ProblemType::Unavailable,
                "the keys of the issuer have not come yet",
            );
        }
        // Who sends no token is not told what is wrong with it: RFC 6750, section 3.1.
        Unauthenticated::NoToken => (
            "the call needs a token: `authorization: Bearer …`",
            challenge::NO_TOKEN,
        ),
        Unauthenticated::Malformed => (
            "one `authorization` header must hold one bearer token of at most 8192 bytes",
            challenge::MALFORMED,
        ),
        Unauthenticated::Invalid => ("the token does not count here", challenge::INVALID),
        Unauthenticated::NotYetValid => ("the token does not count yet", challenge::EARLY),
        Unauthenticated::Expired => ("the token has expired", challenge::EXPIRED),
    };
    Refusal::new(ProblemType::Unauthorized, detail).challenging(HeaderValue::from_static(says))
}
