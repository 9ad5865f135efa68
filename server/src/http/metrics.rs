//! Endpoint of the metrics.

mod ledger;
mod scrape;
use axum::{extract::State, http::header, response::IntoResponse};
use doorman_openapi::paths;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{failures::Unavailable, permit, refusal::Refusal};
use crate::{auth::Caller, http::state::AppState};

/// Prometheus rejects a scrape without it.
const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(get_metrics))
}

/// Read the metrics
///
/// All of them, in the OpenMetrics text that Prometheus reads. Of the resources, the 50 that want the most are named.
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
            example = "# HELP doorman_leases Leases of all resources together.\n# TYPE doorman_leases gauge\ndoorman_leases 3.0\n# EOF\n"
        ),
        Unavailable
    )
)]
async fn get_metrics(
    State(app): State<AppState>,
    caller: Caller,
) -> Result<impl IntoResponse, Refusal> {
    permit::everything(caller.restrictions())?;
    let text = scrape::scrape(&app).await?;
    Ok(([(header::CONTENT_TYPE, MEDIA_TYPE)], text))
}
