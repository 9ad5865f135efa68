//! `/v1/history`: the changes of the document, and its past revisions.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, Response, Uri},
};
use doorman_openapi::{Document as DocumentSchema, HistoryPage, ProblemType, paths};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::edit;
use crate::{
    auth::Caller,
    document::{DocumentEditor, EditFailed},
    http::{
        authorize,
        error::ApiError,
        extract::{NoQuery, PathParam, query},
        openapi::{
            responses::{NotFoundError, QueryErrors, ReadErrors, UnavailableError},
            schemas::{Limit, Revision},
        },
        response::{Json, conditional},
        state::AppState,
    },
};

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list_history))
        .routes(routes!(get_revision))
}

/// List past changes of the document
///
/// Newest first. The server keeps 10,000 changes (1,000 in etcd); beyond that it drops the oldest
/// of the caller with the most. The list is empty if the document comes from a file, and at a node
/// below the root of a tree.
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
    let before = last_listed(cursor.as_deref())?;
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

/// Read a past document
///
/// The document of a revision of the history, in the form of `GET /v1/templates`. To put it in
/// force again, `PUT` it to `/v1/templates`. The server keeps the newest 64 MiB of documents.
#[utoipa::path(
    get,
    path = paths::REVISION,
    tag = "document",
    params(
        ("revision" = inline(Revision), Path, description = "The `revision` of a past change", example = 1),
        ("If-None-Match" = inline(Option<String>), Header, nullable = false, description = "The `ETag` of an earlier response"),
        ("If-Match" = inline(Option<String>), Header, nullable = false, description = "Fail with 412 unless the revision has this `ETag`")
    ),
    responses(
        (
            status = OK,
            description = "The document",
            body = DocumentSchema,
            headers(
                ("ETag" = String, description = "The version of the document; equal documents have the same"),
                ("Cache-Control" = String, description = "`no-cache`")
            ),
            example = json!({
                "resources": [{
                    "identifier_glob": "*",
                    "capacity": 1000,
                    "description": "every resource without an entry of its own",
                    "unit": "rate",
                    "per": 1,
                    "minimum_refresh_interval": 0,
                    "algorithm": {"kind": "FAIR_SHARE", "lease_length": 60, "refresh_interval": 5}
                }]
            })
        ),
        (status = NOT_MODIFIED, description = "The document has the version of `If-None-Match`"),
        ReadErrors,
        NotFoundError,
        UnavailableError
    )
)]
async fn get_revision(
    State(editor): State<Arc<DocumentEditor>>,
    caller: Caller,
    PathParam(revision): PathParam,
    NoQuery: NoQuery,
    headers: HeaderMap,
) -> Result<Response<Body>, ApiError> {
    authorize::whole_document(caller.restrictions())?;
    let document = editor.revision(number(&revision)?).await?;
    edit::check_if_match(&headers, document.version())?;
    Ok(conditional::json(&headers, document.version(), || {
        &document
    }))
}

fn number(revision: &str) -> Result<u64, ApiError> {
    let digits = revision.bytes().all(|byte| byte.is_ascii_digit());
    let number = revision.parse().ok().filter(|_| digits);
    number
        .filter(|number| (1..=Revision::MAX).contains(number))
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
