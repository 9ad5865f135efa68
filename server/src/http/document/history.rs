//! `/v1/history`: the changes of the document, and its past revisions.

use axum::{
    body::Body,
    extract::State,
    http::{Response, Uri},
};
use doorman_config::Document;
use doorman_openapi::{Document as DocumentSchema, HistoryPage, PastChange, paths};

use super::entity::ReadRequest;
use crate::{
    auth::Caller,
    document::EditFailed,
    http::{
        authorize,
        error::ApiError,
        extract::{PathParam, query, query::Page},
        openapi::complete::NotModified,
        response::Json,
        state::AppState,
    },
};

/// The largest integer that every JSON parser reads exactly.
const MAX_REVISION: u64 = (1 << 53) - 1;

/// List past changes of the document
///
/// Newest first. The server keeps 10,000 changes (1,000 in etcd); beyond that it drops the oldest
/// of the caller with the most. The list is empty if the document comes from a file, and at a node
/// below the root of a tree.
///
/// A restricted token gets one page with the changes of the templates and rules that it may read,
/// among the newest 100 of the document, without `revision` and `version`.
#[utoipa::path(
    get,
    path = paths::HISTORY,
    params(Page),
    responses((status = OK, description = "A page of past changes", body = HistoryPage))
)]
pub(in crate::http) async fn list_history(
    State(app): State<AppState>,
    caller: Caller,
    uri: Uri,
) -> Result<Json<HistoryPage>, ApiError> {
    let [limit, cursor] = query::parse(&uri, ["limit", "cursor"])?;
    let Page { limit, cursor } = Page::parse(limit.as_deref(), cursor)?;
    let before = last_listed(cursor.as_deref())?;
    if !caller.restrictions().is_unrestricted() {
        return own_history(&app, &caller, limit).await;
    }
    // One more than the page holds tells whether there is a next page.
    let changes = app.editor.history(before, limit.saturating_add(1)).await;
    let mut changes = changes.map_err(unreadable)?;
    let more = changes.len() > limit;
    changes.truncate(limit);
    let last = changes.last().filter(|_| more);
    Ok(Json(HistoryPage {
        next_cursor: last.map(|last| last.revision.to_string()),
        changes,
    }))
}

/// The history as a restricted token sees it: its own changes among the newest of the document.
async fn own_history(
    app: &AppState,
    caller: &Caller,
    limit: usize,
) -> Result<Json<HistoryPage>, ApiError> {
    let restrictions = caller.restrictions().clone();
    let own = restrictions.clone();
    let describe = move |old: &Document, new: &Document| {
        let own = authorize::own_changes(old, new, &own);
        (!own.is_empty()).then(|| own.summary())
    };
    let changes = app
        .editor
        .described_history(limit, restrictions, describe)
        .await;
    let name = caller.name();
    let changes = changes
        .map_err(unreadable)?
        .into_iter()
        .map(|change| PastChange {
            revision: 0,
            changed_by: if change.changed_by == name {
                change.changed_by
            } else {
                "another caller".to_owned()
            },
            version: String::new(),
            ..change
        });
    Ok(Json(HistoryPage {
        changes: changes.collect(),
        next_cursor: None,
    }))
}

fn unreadable<E>(failed: EditFailed<E>) -> ApiError
where
    ApiError: From<EditFailed<E>>,
{
    match failed {
        EditFailed::Store(error) => {
            tracing::error!(%error, "cannot read document history");
            ApiError::unavailable(format!("cannot read the history: {error}"))
        }
        failed => failed.into(),
    }
}

/// Read a past document
///
/// The document of a revision of the history, in the form of `GET /v1/templates`. To put it in
/// force again, `PUT` it to `/v1/templates`. The server keeps the newest 64 MiB of documents.
#[utoipa::path(
    get,
    path = paths::REVISION,
    params(
        ("revision" = u64, Path, minimum = 1, maximum = 9007199254740991i64, description = "The `revision` of a past change", example = 1)
    ),
    responses((status = OK, description = "The document", body = DocumentSchema), NotModified)
)]
pub(in crate::http) async fn get_revision(
    PathParam(revision): PathParam,
    request: ReadRequest,
) -> Result<Response<Body>, ApiError> {
    authorize::whole_document(request.caller.restrictions())?;
    let document = request.app.editor.revision(number(&revision)?).await?;
    request.respond(document.version(), &document)
}

fn number(revision: &str) -> Result<u64, ApiError> {
    let digits = revision.bytes().all(|byte| byte.is_ascii_digit());
    let number = revision.parse().ok().filter(|_| digits);
    number
        .filter(|number| (1..=MAX_REVISION).contains(number))
        .ok_or_else(|| {
            ApiError::malformed("`revision` must be a whole number from 1, as /v1/history has it")
        })
}

/// Decodes the cursor: the last revision of the previous page.
fn last_listed(cursor: Option<&str>) -> Result<Option<u64>, ApiError> {
    match cursor {
        None | Some("") => Ok(None),
        Some(text) if text.bytes().all(|byte| byte.is_ascii_digit()) && text.len() <= 19 => {
            Ok(text.parse().ok())
        }
        Some(_) => Err(ApiError::malformed(
            "invalid query parameter `cursor`: must be the `next_cursor` of a page",
        )),
    }
}
