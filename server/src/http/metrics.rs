//! Metrics, for machines that watch the server. The labels are bounded whatever clients send, so the text stays small.

use axum::{extract::State, http::header, response::IntoResponse};
use doorman_openapi::paths;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{failures::Unavailable, internal_error, permit, refusal::Refusal};
use crate::{
    auth::Caller,
    http::state::AppState,
    observe::metrics::{self, MEDIA_TYPE, Sources, Unreadable},
};

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
    let text = metrics::scrape(&Sources {
        epoch: app.server.epoch,
        assumed_first_start: app.server.assumed_first_start,
        ledger: &app.ledger,
        active: &app.document,
        editor: &app.editor,
        limits: &app.limits,
        tls: app.tls.as_deref(),
        requests: &app.requests,
        connections: &app.connections,
    })
    .await
    .map_err(|error| match error {
        Unreadable::RateLimited(limited) => limited.into(),
        Unreadable::Poisoned(poisoned) => poisoned.into(),
        Unreadable::Text(error) => {
            tracing::error!(%error, "the metrics could not be written");
            internal_error()
        }
    })?;
    Ok(([(header::CONTENT_TYPE, MEDIA_TYPE)], text))
}
