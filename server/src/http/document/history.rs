//! `GET /v1/history`: authors and times of the document's changes.

use std::sync::Arc;

use axum::{extract::State, http::Uri};
use doorman_openapi::{HistoryPage, ProblemType, paths};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    auth::Caller,
    document::{DocumentEditor, EditFailed},
    http::{
        authorize,
        error::ApiError,
        extract::query,
        openapi::{
            responses::{QueryErrors, UnavailableError},
            schemas::Limit,
        },
        response::Json,
        state::AppState,
    },
};

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list_history))
}

/// List past changes of the document
///
/// Newest first. The server keeps 10,000 changes; beyond that it drops the oldest of the caller
/// with the most. The list is empty if the document comes from a file.
#[utoipa::path(
    get,
    path = paths::HISTORY,
    tag = "document",
    params(
        ("limit" = inline(Option<Limit>), Query, nullable = false, description = "The page size: 50 by default, at most 1000; a larger value is lowered", example = 50),
        ("cursor" = inline(Option<String>), Query, nullable = false, description = "The `next_cursor` of the previous page")
    ),
    responses(
        (
            status = OK,
            description = "A page of past changes",
            body = HistoryPage,
            example = json!({
                "changes": [{
                    "revision": 1,
                    "changed_at": 1795123456,
                    "changed_by": "doorman",
                    "change": "the first document",
                    "version": "6c62272e07bb014262b821756295c58d"
                }]
            })
        ),
        QueryErrors,
        UnavailableError
    )
)]
async fn list_history(
    State(editor): State<Arc<DocumentEditor>>,
    caller: Caller,
    uri: Uri,
) -> Result<Json<HistoryPage>, ApiError> {
    authorize::whole_document(caller.restrictions())?;
    let [limit, cursor] = query::parse(&uri, ["limit", "cursor"])?;
    let limit = query::limit(limit.as_deref())?;
    let before = revision(cursor.as_deref())?;
    // One more than the page holds tells whether there is a next page.
    let mut changes = match editor.history(before, limit.saturating_add(1)).await {
        Ok(changes) => changes,
        Err(EditFailed::Store(error)) => {
            tracing::error!(%error, "cannot read document history");
            return Err(ApiError::new(
                ProblemType::Unavailable,
                format!("cannot read the history: {error}"),
            ));
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

/// Decodes the cursor: the last revision of the previous page.
fn revision(cursor: Option<&str>) -> Result<Option<u64>, ApiError> {
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
