//! What a server says of itself.
//!
//! Discovery is for machines that look for the master, and cheap: it does not touch the books. Status is for operators.

use std::sync::Arc;

use axum::extract::State;
use doorman_openapi::{Discovery, Mastership, Seconds, Status, paths};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    extract::NoQuery,
    failures::{OfAQuery, Unavailable},
    refusal::Refusal,
    reply::Fresh,
};
use crate::{
    auth::Caller,
    document::ActiveDocument,
    http::state::{AppState, ServerInfo},
    leasing::SharedLedger,
};

pub(super) fn routes() -> OpenApiRouter<AppState> {
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
async fn get_discovery(
    State(server): State<Arc<ServerInfo>>,
    NoQuery: NoQuery,
) -> Fresh<Discovery> {
    // A server without election is the master of its own node.
    Fresh::new(Discovery {
        is_master: true,
        mastership: Mastership {
            master_address: Some(server.advertise.clone()),
        },
        server_id: server.server_id.clone(),
        node: server.node.clone(),
        level: 0,
        epoch: server.epoch,
    })
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
    State(ledger): State<Arc<SharedLedger>>,
    State(active): State<Arc<ActiveDocument>>,
    State(server): State<Arc<ServerInfo>>,
    caller: Caller,
    NoQuery: NoQuery,
) -> Result<Fresh<Status>, Refusal> {
    let (counts, max_leases, now) =
        ledger.with(|ledger, now| (ledger.stats(), ledger.max_leases(), now))?;
    let mut status = Status {
        server_id: server.server_id.clone(),
        node: server.node.clone(),
        level: 0,
        is_master: true,
        epoch: server.epoch,
        master: Some(server.advertise.clone()),
        parents: Vec::new(),
        uptime: Seconds::from(now.since(server.started)),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        config_source: server.config_source.clone(),
        config_version: active.get().version().to_owned(),
        config_error: active.error(),
        resources: Some(counts.resources),
        leases: Some(counts.leases),
        max_leases,
    };
    if !caller.restrictions().is_unrestricted() {
        // It quotes the document, which speaks of others, too; and how many there are of all is nobody's own.
        status.config_error = None;
        status.resources = None;
        status.leases = None;
    }
    Ok(Fresh::new(status))
}
