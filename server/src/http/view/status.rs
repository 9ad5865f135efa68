//! Discovery, for clients that look for the master, and status, for operators.

use std::sync::Arc;

use axum::extract::State;
use doorman_openapi::{Discovery, Mastership, Seconds, Status, paths};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    auth::Caller,
    document::{ActiveDocument, warnings},
    http::{
        error::ApiError,
        extract::NoQuery,
        openapi::responses::{QueryErrors, UnavailableError},
        response::Json,
        state::{AppState, ServerInfo},
    },
    leasing::SharedLedger,
};

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(get_discovery))
        .routes(routes!(get_status))
}

/// Find the master
///
/// The address of the master of this server's node, and whether it is this server.
#[utoipa::path(
    get,
    path = paths::DISCOVERY,
    tag = "views",
    responses(
        (
            status = OK,
            description = "The master",
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
        QueryErrors
    )
)]
async fn get_discovery(State(server): State<Arc<ServerInfo>>, NoQuery: NoQuery) -> Json<Discovery> {
    // A server without election is the master of its own node.
    Json(Discovery {
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

/// Read the server status
///
/// Identity, uptime, version of the active document, and number of resources and leases.
/// `config_error` is present while the document source has an invalid document, which is not
/// active, or cannot be changed. `config_warnings` are those of the active document.
/// `learning_ends_in` is present in learning mode, after a crash or on an empty data directory.
#[utoipa::path(
    get,
    path = paths::STATUS,
    tag = "views",
    responses(
        (
            status = OK,
            description = "The status",
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
        QueryErrors,
        UnavailableError
    )
)]
async fn get_status(
    State(ledger): State<Arc<SharedLedger>>,
    State(active): State<Arc<ActiveDocument>>,
    State(server): State<Arc<ServerInfo>>,
    caller: Caller,
    NoQuery: NoQuery,
) -> Result<Json<Status>, ApiError> {
    let (stats, max_leases, learning_until, resources_learning, now) =
        ledger.with(|ledger, now| {
            let resources_learning = ledger.resources_learning(now);
            let learning_until = ledger.learning_until();
            (
                ledger.stats(),
                ledger.max_leases(),
                learning_until,
                resources_learning,
                now,
            )
        })?;
    // The error quotes the document, and the totals tell of others.
    let unrestricted = caller.restrictions().is_unrestricted();
    let is_learning = now < learning_until;
    let document = active.get();
    Ok(Json(Status {
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
        config_version: document.version().to_owned(),
        config_error: active.error().filter(|_| unrestricted),
        config_warnings: warnings::of_document(&document, caller.restrictions()),
        resources: unrestricted.then_some(stats.resources),
        leases: unrestricted.then_some(stats.leases),
        learning_ends_in: is_learning.then(|| learning_until.since(now).into()),
        resources_learning: (is_learning && unrestricted).then_some(resources_learning),
        max_leases,
    }))
}
