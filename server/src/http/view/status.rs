//! Discovery, for clients that look for the master, and status, for operators.

use axum::extract::State;
use doorman_core::election::View;
use doorman_openapi::{Discovery, Epoch, Mastership, ParentStatus, Seconds, Status, paths};

use crate::{
    auth::Caller,
    document::warnings,
    http::{error::ApiError, extract::NoQuery, response::Json, state::AppState},
    leasing::LedgerUnavailable,
    util::clock,
};

/// Find the master
///
/// The address of the master of this server's node, and whether it is this server.
#[utoipa::path(
    get,
    path = paths::DISCOVERY,
    responses((status = OK, description = "The master", body = Discovery))
)]
pub(in crate::http) async fn get_discovery(
    State(app): State<AppState>,
    NoQuery: NoQuery,
) -> Json<Discovery> {
    let View { address, epoch, .. } = app.master.borrow().clone();
    let server = &app.server;
    Json(Discovery {
        is_master: app.ledger.is_master(),
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
    responses((status = OK, description = "The status", body = Status))
)]
pub(in crate::http) async fn get_status(
    State(app): State<AppState>,
    caller: Caller,
    NoQuery: NoQuery,
) -> Result<Json<Status>, ApiError> {
    let read = app.ledger.with(|ledger, now| {
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
    let View { address, epoch, .. } = app.master.borrow().clone();
    let document = app.document.get();
    let server = &app.server;
    let now = clock::now();
    let parent = server.parent.as_ref();
    let problem = server.parent_problem(now);
    let config_error = app.document.error().map(|error| match problem {
        Some(problem) => format!("{problem}: {error}"),
        None => error,
    });
    Ok(Json(Status {
        server_id: server.server_id.clone(),
        node: server.node.clone(),
        level: server.level(),
        is_master,
        epoch: epoch.unwrap_or(Epoch::ZERO),
        master: address,
        parents: parent.map_or_else(Vec::new, |parent| parent.servers().to_vec()),
        parent: parent.map(|parent| {
            let status = parent.status(now);
            ParentStatus {
                error: status.error.filter(|_| unrestricted),
                ..status
            }
        }),
        uptime: Seconds::from(clock::now().since(server.started)),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        config_source: server.config_source.clone(),
        config_version: document.version().to_owned(),
        config_error: config_error.filter(|_| unrestricted),
        config_warnings: warnings::of_document(&document, caller.restrictions()),
        resources: stats.map(|it| it.resources),
        leases: stats.map(|it| it.leases),
        learning_ends_in: learning.map(Seconds::from),
        resources_learning: resources_learning.filter(|_| unrestricted),
        max_leases: server.max_leases,
    }))
}
