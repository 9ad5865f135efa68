//! Who changed what of the document, and when.

use std::sync::Arc;

use axum::{extract::State, http::Uri};
use doorman_openapi::{HistoryPage, paths};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    failures::{OfAQuery, Unavailable},
    permit,
    query::{self, Query},
    refusal::Refusal,
    reply::Fresh,
    shapes::Limit,
};
use crate::{
    auth::Caller,
    document::{DocumentEditor, EditFailed},
    http::state::AppState,
};

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list_history))
}

/// List past changes of the document
///
/// The newest first. 10,000 are remembered; beyond that the oldest goes of whoever has made the most. The list is empty where the document comes from a file.
#[utoipa::path(
    get,
    path = paths::HISTORY,
    tag = "document",
    params(
        ("limit" = inline(Option<Limit>), Query, nullable = false, description = "The most changes of a page: 50 when absent; what is above 1000 counts as 1000", example = 50),
        ("cursor" = inline(Option<String>), Query, nullable = false, description = "The `next_cursor` of the page before")
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
        OfAQuery,
        Unavailable
    )
)]
async fn list_history(
    State(editor): State<Arc<DocumentEditor>>,
    caller: Caller,
    uri: Uri,
) -> Result<Fresh<HistoryPage>, Refusal> {
    permit::whole_document(caller.restrictions())?;
    let [limit, cursor] = Query::read(&uri, ["limit", "cursor"])?.into_values();
    let limit = query::limit(limit.as_deref())?;
    let before = match cursor.as_deref() {
        None | Some("") => None,
        // Short enough for any revision, and digits alone: no sign, no space.
        Some(text) if text.len() <= 19 && text.bytes().all(|byte| byte.is_ascii_digit()) => {
            text.parse().ok()
        }
        Some(_) => {
            return Err(query::bad(
                "`cursor` in the query must be the `next_cursor` of a page",
            ));
        }
    };
    // One more than the page holds tells whether there is another page.
    let read = editor.history(before, limit.saturating_add(1)).await;
    let mut changes = read.map_err(|failed| match failed {
        // There was no plan that could be refused.
        EditFailed::Rejected(()) => super::internal_error(),
        EditFailed::Store(error) => {
            tracing::error!(%error, "the history could not be read");
            Refusal::new(
                doorman_openapi::ProblemType::Unavailable,
                format!("the history could not be read: {error}"),
            )
        }
        EditFailed::ReadOnly => EditFailed::<Refusal>::ReadOnly.into(),
        EditFailed::Busy => EditFailed::<Refusal>::Busy.into(),
        EditFailed::Poisoned(poisoned) => poisoned.into(),
        EditFailed::Panicked => super::internal_error(),
    })?;
    let more = changes.len() > limit;
    changes.truncate(limit);
    let last = changes.last().filter(|_| more);
    Ok(Fresh::new(HistoryPage {
        next_cursor: last.map(|last| last.revision.to_string()),
        changes,
    }))
}
