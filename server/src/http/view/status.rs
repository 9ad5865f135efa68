//! Discovery, for clients that look for the master, and status, for operators.

use std::time::Duration;

use axum::extract::State;
use doorman_core::{election::View, ledger::LedgerStats};
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
        election_unread_for: app.election_unread_for(clock::now()).map(Seconds::from),
    })
}

/// Of a master.
struct Totals {
    stats: LedgerStats,
    learning: Option<Duration>,
    resources_learning: Option<usize>,
    resources_unmet: usize,
    unmet_for: Option<Duration>,
}

impl Totals {
    /// `None`: this server is not master.
    fn read(app: &AppState) -> Result<Option<Self>, ApiError> {
        let read = app.ledger.with(|ledger, now| {
            let learning_until = ledger.learning_until();
            let learning = (now < learning_until).then(|| learning_until.since(now));
            let unmet = ledger.unmet_for_a_minute();
            Self {
                stats: ledger.stats(),
                learning,
                resources_learning: learning.map(|_| ledger.resources_learning(now)),
                resources_unmet: unmet.resources(),
                unmet_for: unmet.since().map(|since| now.since(since)),
            }
        });
        match read {
            Ok(totals) => Ok(Some(totals)),
            Err(LedgerUnavailable::NotMaster) => Ok(None),
            Err(poisoned @ LedgerUnavailable::Poisoned) => Err(poisoned.into()),
        }
    }
}

/// Read the server status
///
/// Identity, uptime, version of the active document, and number of resources and leases.
/// `config_error` is present while the document source has an invalid document, which is not
/// active, or cannot be changed. `config_warnings` are those of the active document.
/// `learning_ends_in` is present in learning mode, after a crash or on an empty data directory.
/// `resources_unmet` counts the resources whose demand has been unmet for at least a minute.
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
    let totals = Totals::read(&app)?;
    let is_master = totals.is_some();
    let learning = totals.as_ref().and_then(|it| it.learning);
    // The error quotes the document, and the totals tell of others.
    let unrestricted = caller.restrictions().is_unrestricted();
    let totals = totals.as_ref().filter(|_| unrestricted);
    let unmet_for = totals.and_then(|it| it.unmet_for);
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
        election_unread_for: app.election_unread_for(now).map(Seconds::from),
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
        resources: totals.map(|it| it.stats.resources),
        leases: totals.map(|it| it.stats.leases),
        learning_ends_in: learning.map(Seconds::from),
        resources_learning: totals.and_then(|it| it.resources_learning),
        resources_unmet: totals.map(|it| it.resources_unmet),
        unmet_since: unmet_for.map(|it| clock::unix_seconds().saturating_sub(it.as_secs())),
        max_leases: server.max_leases,
    }))
}
