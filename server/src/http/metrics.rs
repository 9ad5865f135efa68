//! `GET /metrics`. The number of labels is bounded whatever clients send.

mod format;
mod ledger;
mod scrape;

use axum::{
    extract::State,
    http::{HeaderMap, header},
    response::IntoResponse,
};
use doorman_openapi::paths;
use prometheus_client::{
    encoding::text,
    metrics::{counter::ConstCounter, info::Info},
    registry::Registry,
};

use self::format::TextFormat;
use super::{authorize, error::ApiError};
use crate::{auth::Caller, http::state::AppState, observe::log};

/// Read the metrics
///
/// All metrics as OpenMetrics text, or in the text format of Prometheus if `Accept` prefers
/// `text/plain`. Only the 50 resources with the highest demand
/// have metrics of their own.
#[utoipa::path(
    get,
    path = paths::METRICS,
    responses((status = OK, description = "The metrics", content((String = "application/openmetrics-text"), (String = "text/plain"))))
)]
pub(super) async fn get_metrics(
    State(app): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
) -> Result<impl IntoResponse, ApiError> {
    authorize::all_resources(caller.restrictions())?;
    let mut registry = registry();
    scrape::register(&mut registry, &app).await?;
    encode(&registry, &headers)
}

/// The registry of a process, with what all processes have.
pub(super) fn registry() -> Registry {
    let mut registry = Registry::with_prefix("doorman");
    registry.register(
        "build",
        "Build information",
        Info::new([("version", env!("CARGO_PKG_VERSION"))]),
    );
    registry.register(
        "log_lines_left_out",
        "Log lines dropped because standard error accepted no more output",
        ConstCounter::new(log::dropped_lines()),
    );
    registry
}

/// The response with all metrics, in the format that the client accepts.
pub(super) fn encode(
    registry: &Registry,
    headers: &HeaderMap,
) -> Result<impl IntoResponse + use<>, ApiError> {
    let format = TextFormat::accepted(headers);
    let fields = [
        (header::CONTENT_TYPE, format.media_type()),
        (header::VARY, "accept"),
    ];
    let mut text = String::new();
    match text::encode(&mut text, registry) {
        Ok(()) => Ok((fields, format.convert(text))),
        Err(error) => {
            tracing::error!(%error, "cannot encode metrics");
            Err(ApiError::internal())
        }
    }
}
