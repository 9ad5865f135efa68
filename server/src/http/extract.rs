//! What handlers are given: checked bodies, checked identifiers, and calls without a query.

use axum::{
    extract::{FromRequest, FromRequestParts, Path, Request},
    http::request::Parts,
};
use doorman_openapi::ResourceId;

use super::{
    body, media, query,
    read::{self, Body},
    refusal::Refusal,
};
use crate::{auth::Caller, http::state::AppState};

/// The body of a lease call, checked whole.
#[derive(Debug)]
pub(crate) struct Checked<T>(pub(crate) T);

impl<T: Body> FromRequest<AppState> for Checked<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Refusal> {
        let (parts, body) = request.into_parts();
        query::none(&parts.uri)?;
        media::check(&parts.headers)?;
        let body = body::take(&parts.headers, body, &state.room).await?;
        read::read(&body).map(Self)
    }
}

/// Who asks. Where tokens are asked for, only the door knows: a handler that it does not guard answers nobody.
impl FromRequestParts<AppState> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Refusal> {
        if state.auth.is_none() {
            return Ok(Self::ANONYMOUS);
        }
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(super::internal_error)
    }
}

/// A call that takes no query has none.
#[derive(Debug)]
pub(crate) struct NoQuery;

impl<S: Sync> FromRequestParts<S> for NoQuery {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        query::none(&parts.uri).map(|()| Self)
    }
}

/// The resource that a path names, percent-decoded: `tenant%2Facme` is `tenant/acme`.
#[derive(Debug)]
pub(crate) struct Named(pub(crate) ResourceId);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let Ok(Path(text)) = Path::<String>::from_request_parts(parts, state).await else {
            return Err(query::bad(
                "the resource in the path must be percent-encoded UTF-8",
            ));
        };
        match ResourceId::new(text) {
            Ok(id) => Ok(Self(id)),
            Err(rule) => Err(query::bad(format!("the resource in the path {rule}"))),
        }
    }
}
