//! What a server says of itself.
//!
//! Discovery is for machines that look for the master, and cheap: it does not touch the books. Status is for operators.

use std::sync::Arc;

use axum::extract::State;
use doorman_openapi::{Discovery, Status, paths};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    extract::NoQuery,
    failures::{OfAQuery, Unavailable},
    refusal::Refusal,
    reply::Fresh,
};
use crate::{auth::Caller, http::state::App};

pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(get_discovery))
        .routes(routes!(get_status))
}

/// Find the master
///
/// Where the master of this server's node is, and whether it is this server.
#[utoipa::path(
    get,
    path = paths::DISCOVERY,
    tag = "views",
    responses(
        (
            status = OK,
            description = "Where the master is",
            body = Discovery,
            example = json!({
                "is_master": true,
                "mastership": {"master_address": "http://127.0.0.1:7300"},
                "server_id": "host-a:7300",
                "node": "node-5a1c9e0b7d2f4386",
                "level": 0,
                "epoch": 1795123456
            })
        ),
        OfAQuery
    )
)]
async fn get_discovery(State(app): State<Arc<App>>, NoQuery: NoQuery) -> Fresh<Discovery> {
    Fresh::new(app.discovery())
}

/// Look at the server
///
/// Who it is, how long it has been up, which document is in force, and how much its books hold. `config_error` is there while the
/// document's source says what cannot come into force, and why.
#[utoipa::path(
    get,
    path = paths::STATUS,
    tag = "views",
    responses(
        (
            status = OK,
            description = "The server",
            body = Status,
            example = json!({
                "server_id": "host-a:7300",
                "node": "node-5a1c9e0b7d2f4386",
                "level": 0,
                "is_master": true,
                "epoch": 1795123456,
                "master": "http://127.0.0.1:7300",
                "parents": [],
                "uptime": 12.5,
                "version": "0.1.0",
                "config_source": "built-in",
                "config_version": "8d1f0c2ab34e5f67",
                "resources": 1,
                "leases": 3,
                "max_leases": 1000000
            })
        ),
        OfAQuery,
        Unavailable
    )
)]
async fn get_status(
    State(app): State<Arc<App>>,
    caller: Caller,
    NoQuery: NoQuery,
) -> Result<Fresh<Status>, Refusal> {
    let mut status = app.status()?;
    if !caller.restrictions().is_unrestricted() {
        // It quotes the document, which speaks of others, too; and how many there are of all is nobody's own.
        status.config_error = None;
        status.resources = None;
        status.leases = None;
    }
    Ok(Fresh::new(status))
}
