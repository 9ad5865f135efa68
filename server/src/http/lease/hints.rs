//! `GET /v1/hints`: a long poll of a holder for the leases to refresh now.

use std::time::Duration;

use axum::{
    body::Body,
    extract::State,
    http::{HeaderValue, Response, Uri, Version, header},
    response::IntoResponse,
};
use doorman_config::Restrictions;
use doorman_core::ledger::{HolderId, MAX_AFTER};
use doorman_openapi::{
    ClientId, DEFAULT_HINT_WAIT, Epoch, HintsResponse, MAX_HINT_WAIT, NodeId, Run, Scope, paths,
};
use tokio::time::timeout;

use crate::{
    auth::Caller,
    http::{authorize, error::ApiError, extract::query, response::Json, state::AppState},
    leasing::{LedgerUnavailable, OpenPoll, PollEnd},
};

/// Poll for hints
///
/// Waits until the holder should refresh leases before their `refresh_interval` is over: capacity
/// is wanted elsewhere, became free, or its limit was changed. Also when rules have changed, and
/// when the server shuts down. After `wait` seconds the response has no hints. Poll again with the
/// `after` of the response. A holder has one poll; a new one ends the one before.
///
/// A hint grants nothing, and it is void once the holder has sent a request with a higher `seq` for
/// that resource. Without polls leases change at the next refresh. Only the most recent polls stay
/// open when connections run short: come back at a random moment within one refresh interval if a
/// poll fails, or is answered too early without hints.
#[utoipa::path(
    get,
    path = paths::HINTS,
    params(
        ("client_id" = inline(Option<ClientId>), Query, description = "The client; either this or `node_id`", example = "shop-1"),
        ("run" = inline(Option<Run>), Query, description = "The run of the client's process, as in its lease requests; not with `node_id`"),
        ("node_id" = inline(Option<NodeId>), Query, description = "The node; needs the scope `doorman:server`"),
        ("after" = inline(Option<u64>), Query, maximum = 9007199254740991i64, description = "The `after` of the last response, 0 at first: confirms its hints", example = 0),
        ("wait" = inline(Option<f64>), Query, minimum = 0, maximum = 60, description = "The longest wait in seconds, by default 25", example = 0)
    ),
    responses((status = OK, description = "What to refresh now, which may be nothing", body = HintsResponse))
)]
pub(in crate::http) async fn poll_hints(
    State(app): State<AppState>,
    caller: Caller,
    version: Version,
    uri: Uri,
) -> Result<Response<Body>, ApiError> {
    let (holder, after, wait) = parse(&uri)?;
    authorize_holder(&holder, &caller)?;
    // Requests of others share an HTTP/2 connection.
    let owns_connection = version < Version::HTTP_2;
    let poll = match app.ledger.open_poll(&holder, after, owns_connection) {
        // The holder finds the master elsewhere.
        Err(LedgerUnavailable::NotMaster) => None,
        poll => Some(poll?),
    };
    // It shares the buffer that the head was read into.
    drop((uri, holder));
    let last_epoch = || app.master.borrow().epoch.unwrap_or(Epoch::ZERO);
    let epoch = poll.as_ref().map_or_else(last_epoch, OpenPoll::epoch);
    let mut closes = poll.is_none();
    let end = match poll {
        Some(mut poll) => timeout(wait, poll.ended()).await,
        None => Ok(PollEnd::Leaving),
    };

    let mut response = HintsResponse::none(app.server.node.clone(), epoch, after);
    match end {
        Ok(PollEnd::Hints(batch)) => {
            let restrictions: &Restrictions = caller.restrictions();
            response.after = batch.after;
            response.refresh = batch.refresh;
            let allowed = |id: &str| restrictions.allows_resource(id);
            response
                .refresh
                .retain(|it| allowed(it.resource_id.as_str()));
            response.all = batch.all;
        }
        Ok(PollEnd::Rules) => response.rules = true,
        Ok(PollEnd::Leaving) => {
            response.leaving = true;
            // Behind a balancer the next connection may lead to the master.
            closes = true;
        }
        Ok(PollEnd::GiveWay) => closes = owns_connection,
        Err(_) => {}
    }
    let mut response = Json(response).into_response();
    if closes {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    Ok(response)
}

/// The holder, the batch that it confirms, and how long it waits.
fn parse(uri: &Uri) -> Result<(HolderId, u64, Duration), ApiError> {
    let [client, node, run, after, wait] =
        query::parse(uri, ["client_id", "node_id", "run", "after", "wait"])?;
    let run = run.map(|text| parse_run(&text)).transpose()?;
    let holder = match (client, node) {
        (Some(client), None) => ClientId::new(client)
            .map(|client| HolderId::Client(client, run))
            .map_err(|error| invalid("client_id", &error))?,
        (None, Some(_)) if run.is_some() => {
            return Err(ApiError::malformed(
                "query parameters `node_id` and `run` cannot be combined",
            ));
        }
        (None, Some(node)) => NodeId::new(node)
            .map(HolderId::Node)
            .map_err(|error| invalid("node_id", &error))?,
        (None, None) | (Some(_), Some(_)) => {
            return Err(ApiError::malformed(
                "exactly one of the query parameters `client_id` and `node_id` is needed",
            ));
        }
    };
    let after = after.map_or(Ok(0), |text| parse_after(&text))?;
    let wait = wait.map_or(Ok(DEFAULT_HINT_WAIT), |text| parse_wait(&text))?;
    let wait = Duration::try_from_secs_f64(wait).unwrap_or_default();
    Ok((holder, after, wait))
}

fn parse_after(text: &str) -> Result<u64, ApiError> {
    let after = parse_digits(text).filter(|it| *it <= MAX_AFTER);
    after.ok_or_else(|| invalid("after", &"must be an integer from 0 to 9007199254740991"))
}

fn parse_run(text: &str) -> Result<Run, ApiError> {
    let run = parse_digits(text).and_then(|it| Run::new(it).ok());
    run.ok_or_else(|| invalid("run", &"must be an integer from 0 to 9007199254740991"))
}

fn parse_digits(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

fn parse_wait(text: &str) -> Result<f64, ApiError> {
    let wait = text.parse().ok();
    wait.filter(|wait| (0.0..=MAX_HINT_WAIT).contains(wait))
        .ok_or_else(|| invalid("wait", &"must be a number from 0 to 60"))
}

fn invalid(name: &str, rule: &impl std::fmt::Display) -> ApiError {
    ApiError::malformed(format!("query parameter `{name}`: {rule}"))
}

/// As for the lease request of this holder.
fn authorize_holder(holder: &HolderId, caller: &Caller) -> Result<(), ApiError> {
    let scope = match holder {
        HolderId::Client(..) => Scope::Capacity,
        HolderId::Node(_) => Scope::Server,
    };
    if !caller.may(&[scope]) {
        return Err(ApiError::missing_scope(&[scope]));
    }
    authorize::client(holder.as_str(), caller.restrictions())
}
