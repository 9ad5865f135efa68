//! Who may call what: the one table of all routes, and the door that holds to it.
//!
//! The OpenAPI document takes its security requirements from the same table (`security`). A route that does not stand in it answers
//! nobody where tokens are asked for: forgetting one closes it, and a test names it.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{MatchedPath, Request, State},
    http::{HeaderValue, Method, Response},
    middleware::Next,
    response::IntoResponse,
};
use doorman_openapi::{ProblemType, Scope, paths};

use super::{challenge, refusal::Refusal};
use crate::{app::App, auth::Unauthenticated, trail};

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Everybody, without a token.
    Open,
    /// Whose token has one of these scopes.
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
        // The same for every server of this version, and nothing of this one: the page asks for a token itself.
        paths::OPENAPI | paths::DOCS | "/docs/" | "/docs/{file}" | "/" if reads => Open,
        _ => return None,
    })
}

/// Lets a request pass, with its caller in its extensions, if the caller may use the route.
pub(super) async fn check(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response<Body> {
    let Some(auth) = app.auth() else {
        return next.run(request).await;
    };
    // What no route matches is answered 404, whoever asks.
    let Some(path) = request.extensions().get::<MatchedPath>() else {
        return next.run(request).await;
    };
    let path = path.clone();
    let scopes = match access(request.method(), path.as_str()) {
        Some(Access::Open) => return next.run(request).await,
        Some(Access::AnyOf(scopes)) => scopes,
        // A method that the path does not take is answered 405; but only to those who may do something.
        None => Scope::ALL,
    };
    let caller = auth.caller(request.headers()).await;
    if let Ok(caller) = &caller {
        trail::sent_by(caller);
    }
    match caller {
        Ok(caller) if caller.may(scopes) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Ok(caller) => {
            let subject = caller.identity().map(|it| it.subject.as_str());
            tracing::debug!(
                subject,
                path = path.as_str(),
                "the token has none of the scopes"
            );
            challenge::scope(scopes).into_response()
        }
        Err(why) => unauthenticated(why).into_response(),
    }
}

fn unauthenticated(why: Unauthenticated) -> Refusal {
    let (detail, says) = match why {
        Unauthenticated::NoKeys => {
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
        Unauthenticated::Early => ("the token does not count yet", challenge::EARLY),
        Unauthenticated::Expired => ("the token has expired", challenge::EXPIRED),
    };
    Refusal::new(ProblemType::Unauthorized, detail).challenging(HeaderValue::from_static(says))
}
