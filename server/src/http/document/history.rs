//! `/v1/history`: the changes of the document, and its past revisions.

use axum::{
    body::Body,
    extract::State,
    http::{Response, Uri},
};
use doorman_openapi::{Document as DocumentSchema, HistoryPage, paths};

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
    authorize::whole_document(caller.restrictions())?;
    let [limit, cursor] = query::parse(&uri, ["limit", "cursor"])?;
    let Page { limit, cursor } = Page::parse(limit.as_deref(), cursor)?;
    let before = last_listed(cursor.as_deref())?;
    // One more than the page holds tells whether there is a next page.
    let mut changes = match app.editor.history(before, limit.saturating_add(1)).await {
        Ok(changes) => changes,
        Err(EditFailed::Store(error)) => {
            tracing::error!(%error, "cannot read document history");
            return Err(ApiError::unavailable(format!(
                "cannot read the history: {error}"
            )));
        }
        Err(failed) => return Err(failed.into()),
    };
    let more = changes.len() > limit;
    changes.truncate(limit);
    let last = changes.last().filter(|_| more);
    Ok(Json(HistoryPage {
        next_cursor: last.map(|last| last.revision.to_string()),
        changes,
    }))
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
