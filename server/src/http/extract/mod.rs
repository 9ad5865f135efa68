//! Extractors: caller, path, query and body.

pub(crate) mod body;
pub(super) mod json;
pub(super) mod query;
mod strict;

use axum::{
    extract::{FromRequestParts, Path},
    http::request::Parts,
};
use doorman_openapi::ResourceId;
use utoipa::IntoParams;

use super::error::ApiError;
use crate::{auth::Caller, http::state::AppState};

/// The caller that `guard` put into the request. A route that is not guarded fails closed.
impl FromRequestParts<AppState> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        if state.auth.is_none() {
            return Ok(Self::ANONYMOUS);
        }
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(ApiError::internal)
    }
}

/// A request without query parameters.
#[derive(Debug)]
pub(crate) struct NoQuery;

impl<S: Sync> FromRequestParts<S> for NoQuery {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        query::parse(&parts.uri, []).map(|[]| Self)
    }
}

/// The one parameter of a path, percent-decoded: `tenant%2Facme` is `tenant/acme`.
#[derive(Debug)]
pub(crate) struct PathParam(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for PathParam {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(text)) => Ok(Self(text)),
            Err(_) => Err(ApiError::malformed(
                "path parameter must be percent-encoded UTF-8",
            )),
        }
    }
}

/// A path parameter that is a resource identifier.
#[derive(Debug, IntoParams)]
#[into_params(names("resource_id"), parameter_in = Path)]
pub(crate) struct ResourcePath(
    /// Percent-encoded: `tenant%2Facme`, or `tenant/acme`
    #[param(example = "db")]
    pub(crate) ResourceId,
);

impl<S: Send + Sync> FromRequestParts<S> for ResourcePath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let PathParam(text) = PathParam::from_request_parts(parts, state).await?;
        match ResourceId::new(text) {
            Ok(id) => Ok(Self(id)),
            Err(error) => Err(ApiError::malformed(format!("resource_id {error}"))),
        }
    }
}
