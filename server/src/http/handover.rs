//! `POST /v1/handover`: the ledger of the last master, for the next one.

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderValue, Response, Uri, header},
    routing::post,
};
use doorman_openapi::{Epoch, ProblemType, paths};

use super::{error::ApiError, extract::query, state::AppState};
use crate::{mastership::HandoverOffer, net::NoTimeout};

pub(super) fn routes() -> Router<AppState> {
    Router::new().route(paths::HANDOVER, post(hand_over))
}

/// For servers of the same node alone, so it is not in the OpenAPI document: a master that shuts
/// down offers its ledger to the next one, once, to the bearer of the secret that it left in etcd.
/// The format of the text may change with any release.
async fn hand_over(
    State(offer): State<Arc<HandoverOffer>>,
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
    let text = offer.take(epoch, secret).ok_or_else(|| {
        ApiError::new(
            ProblemType::Forbidden,
            "no ledger is offered to the bearer of this secret",
        )
    })?;
    let mut response = Response::new(Body::from_stream(text));
    let headers = response.headers_mut();
    let media_type = HeaderValue::from_static("application/x-ndjson");
    headers.insert(header::CONTENT_TYPE, media_type);
    let no_store = HeaderValue::from_static("no-store");
    headers.insert(header::CACHE_CONTROL, no_store);
    // A million leases take seconds. The server, which stops, ends a transfer without progress.
    response.extensions_mut().insert(NoTimeout);
    Ok(response)
}
