//! `GET /metrics`. The number of labels is bounded whatever clients send.

mod ledger;
mod scrape;

use axum::{extract::State, http::header, response::IntoResponse};
use doorman_openapi::paths;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{authorize, error::ApiError, openapi::responses::UnavailableError};
use crate::{auth::Caller, http::state::AppState};

/// Prometheus rejects a scrape without it.
pub(super) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(get_metrics))
}

/// Read the metrics
///
/// All metrics as OpenMetrics text, for Prometheus. Only the 50 resources with the highest demand
/// have metrics of their own.
#[utoipa::path(
    get,
    path = paths::METRICS,
    tag = "probes",
    responses(
        (
            status = OK,
            description = "The metrics",
            body = String,
            content_type = "application/openmetrics-text",
            example = "# HELP doorman_leases Leases of all resources.\n# TYPE doorman_leases gauge\ndoorman_leases 3.0\n# EOF\n"
        ),
        UnavailableError
    )
)]
async fn get_metrics(
    State(app): State<AppState>,
    caller: Caller,
) -> Result<impl IntoResponse, ApiError> {
    authorize::all_resources(caller.restrictions())?;
    let text = scrape::scrape(&app).await?;
    Ok(([(header::CONTENT_TYPE, MEDIA_TYPE)], text))
}
