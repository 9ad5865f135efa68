//! Discovery, for clients that look for the master, and status, for operators.

use std::sync::Arc;

use axum::extract::State;
use doorman_openapi::{Discovery, Epoch, Mastership, ParentStatus, Seconds, Status, paths};
use tokio::sync::watch;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    auth::Caller, document::ActiveDocument, document::warnings, http::error::ApiError,
    http::extract::NoQuery, http::openapi::responses::QueryErrors,
    http::openapi::responses::UnavailableError, http::response::Json, http::state::AppState,
    http::state::ServerInfo, leasing::LedgerUnavailable, leasing::SharedLedger, util::clock,
};
use doorman_core::election::View;

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
                "root": "http://127.0.0.1:7300",
                "epoch": 1795123456
            })
        ),
        QueryErrors
    )
)]
async fn get_discovery(
    State(ledger): State<Arc<SharedLedger>>,
    State(server): State<Arc<ServerInfo>>,
    State(master): State<watch::Receiver<View>>,
    NoQuery: NoQuery,
) -> Json<Discovery> {
    let View { address, epoch, .. } = master.borrow().clone();
    Json(Discovery {
        is_master: ledger.is_master(),
        mastership: Mastership {
            master_address: address,
        },
        server_id: server.server_id.clone(),
        node: server.node.clone(),
        level: server.level(),
        root: server.root(),
        epoch: epoch.unwrap_or(Epoch::ZERO),
    })
}

/// Read the server status
///
/// Identity, uptime, version of the active document, and number of resources and leases.
/// `config_error` is present while the document source has an invalid document, which is not
/// active, or cannot be changed. `config_warnings` are those of the active document.
/// `learning_ends_in` is present in learning mode, after a crash or on an empty data directory.
/// At a node below the root, `parent` has the time of the parent's last successful response, the
/// end of its leases, and the last error.
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
    State(master): State<watch::Receiver<View>>,
    caller: Caller,
    NoQuery: NoQuery,
) -> Result<Json<Status>, ApiError> {
    let read = ledger.with(|ledger, now| {
        let learning_until = ledger.learning_until();
        let learning = (now < learning_until).then(|| learning_until.since(now));
        (ledger.stats(), learning, ledger.resources_learning(now))
    });
    let (stats, learning, resources_learning) = match read {
        Ok((stats, learning, resources)) => (Some(stats), learning, learning.map(|_| resources)),
        Err(LedgerUnavailable::NotMaster) => (None, None, None),
        Err(poisoned @ LedgerUnavailable::Poisoned) => return Err(poisoned.into()),
    };
    let is_master = stats.is_some();
    // The error quotes the document, and the totals tell of others.
    let unrestricted = caller.restrictions().is_unrestricted();
    let stats = stats.filter(|_| unrestricted);
    let View { address, epoch, .. } = master.borrow().clone();
    let document = active.get();
    let parent = server.parent.as_ref();
    Ok(Json(Status {
        server_id: server.server_id.clone(),
        node: server.node.clone(),
        level: server.level(),
        is_master,
        epoch: epoch.unwrap_or(Epoch::ZERO),
        master: address,
        parents: parent.map_or_else(Vec::new, |parent| parent.servers().to_vec()),
        parent: parent.map(|parent| {
            let status = parent.status(clock::now());
            ParentStatus {
                error: status.error.filter(|_| unrestricted),
                ..status
            }
        }),
        uptime: Seconds::from(clock::now().since(server.started)),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        config_source: server.config_source.clone(),
        config_version: document.version().to_owned(),
        config_error: active.error().filter(|_| unrestricted),
        config_warnings: warnings::of_document(&document, caller.restrictions()),
        resources: stats.map(|it| it.resources),
        leases: stats.map(|it| it.leases),
        learning_ends_in: learning.map(Seconds::from),
        resources_learning: resources_learning.filter(|_| unrestricted),
        max_leases: server.max_leases,
    }))
}
