//! `POST /v1/handover`: the ledger of the last master, for the next one.

use axum::{
    Extension,
    body::Body,
    extract::State,
    http::{HeaderMap, Response, Uri, header},
    response::IntoResponse,
};
use doorman_openapi::{Epoch, ProblemType};

use super::{error::ApiError, extract::query, state::AppState};
use crate::net::NoTimeout;

/// For servers of the same node alone, so it is not in the OpenAPI document: a master that shuts
/// down offers its ledger to the next one, once, to the bearer of the secret that it left in etcd.
/// The format of the text may change with any release.
pub(super) async fn hand_over(
    State(app): State<AppState>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response<Body>, ApiError> {
    let [epoch] = query::parse(&uri, ["epoch"])?;
    let epoch = epoch
        .and_then(|it| Epoch::new(it.parse().ok()?).ok())
        .ok_or_else(|| ApiError::malformed("query parameter `epoch` must be an epoch"))?;
    let secret = headers.get(header::AUTHORIZATION);
    let secret = secret
        .and_then(|it| it.as_bytes().strip_prefix(b"Bearer "))
        .unwrap_or_default();
    let text = app.offer.take(epoch, secret).ok_or_else(|| {
        ApiError::new(
            ProblemType::Forbidden,
            "no ledger is offered to the bearer of this secret",
        )
    })?;
    let headers = [
        (header::CONTENT_TYPE, "application/x-ndjson"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    // A million leases take seconds. The server, which stops, ends a transfer without progress.
    Ok((headers, Extension(NoTimeout), Body::from_stream(text)).into_response())
}
