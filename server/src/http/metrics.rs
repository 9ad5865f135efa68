//! `GET /metrics`. The number of labels is bounded whatever clients send.

mod ledger;
mod scrape;

use axum::{extract::State, http::header, response::IntoResponse};
use doorman_openapi::paths;
use prometheus_client::{
    encoding::text,
    metrics::{counter::ConstCounter, info::Info},
    registry::Registry,
};

use super::{authorize, error::ApiError};
use crate::{auth::Caller, http::state::AppState, observe::log};

/// Prometheus rejects a scrape without it.
const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Read the metrics
///
/// All metrics as OpenMetrics text, for Prometheus. Only the 50 resources with the highest demand
/// have metrics of their own.
#[utoipa::path(
    get,
    path = paths::METRICS,
    responses((status = OK, description = "The metrics", body = String, content_type = "application/openmetrics-text"))
)]
pub(super) async fn get_metrics(
    State(app): State<AppState>,
    caller: Caller,
) -> Result<impl IntoResponse, ApiError> {
    authorize::all_resources(caller.restrictions())?;
    let mut registry = registry();
    scrape::register(&mut registry, &app).await?;
    encode(&registry)
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

/// The response with all metrics, in OpenMetrics text.
pub(super) fn encode(registry: &Registry) -> Result<impl IntoResponse + use<>, ApiError> {
    let mut text = String::new();
    match text::encode(&mut text, registry) {
        Ok(()) => Ok(([(header::CONTENT_TYPE, MEDIA_TYPE)], text)),
        Err(error) => {
            tracing::error!(%error, "cannot encode metrics");
            Err(ApiError::internal())
        }
    }
}
