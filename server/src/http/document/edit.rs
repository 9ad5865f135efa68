//! Parts that all document changes share: extractors, the change itself, and responses.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{FromRequest, FromRequestParts, Request},
    http::{HeaderMap, HeaderValue, Response, StatusCode, Uri, header, request::Parts},
    response::IntoResponse,
};
use doorman_config::{Document, Edited, Restrictions};
use doorman_openapi::{Deleted, ProblemType};
use serde::Serialize;

use crate::{
    auth::Caller,
    document::{DocumentEditor, Edit, warnings},
    http::{
        authorize,
        error::ApiError,
        extract::{body, query},
        response::{
            Json,
            conditional::{Preconditions, set_etag},
        },
        state::AppState,
    },
    quota::{Quotas, ReadKind},
    util::clock,
};

/// The caller and the conditions of a change.
#[derive(Debug)]
pub(super) struct EditRequest {
    caller: Caller,
    dry_run: bool,
    preconditions: Preconditions,
}

impl EditRequest {
    pub(super) fn restrictions(&self) -> &Restrictions {
        self.caller.restrictions()
    }
}

impl FromRequestParts<AppState> for EditRequest {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        Ok(Self {
            caller: Caller::from_request_parts(parts, state).await?,
            dry_run: dry_run(&parts.uri)?,
            preconditions: Preconditions::of(&parts.headers),
        })
    }
}

#[derive(Debug)]
pub(super) struct PutRequest {
    pub(super) edit: EditRequest,
    pub(super) text: String,
}

impl FromRequest<AppState> for PutRequest {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, ApiError> {
        let (edit, text) = read(request, state, body::JSON).await?;
        Ok(Self { edit, text })
    }
}

/// A request with a JSON merge patch.
#[derive(Debug)]
pub(super) struct PatchRequest {
    pub(super) edit: EditRequest,
    pub(super) text: String,
}

impl FromRequest<AppState> for PatchRequest {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, ApiError> {
        let (edit, text) = read(request, state, body::MERGE_PATCH).await?;
        Ok(Self { edit, text })
    }
}

async fn read(
    request: Request,
    state: &AppState,
    types: body::MediaTypes,
) -> Result<(EditRequest, String), ApiError> {
    let (mut parts, body) = request.into_parts();
    let edit = EditRequest::from_request_parts(&mut parts, state).await?;
    let bytes = body::read(&parts.headers, types, body, &state.body_buffer).await?;
    let text = body::utf8(&bytes)?;
    body::check_syntax(text)?;
    Ok((edit, text.to_owned()))
}

fn dry_run(uri: &Uri) -> Result<bool, ApiError> {
    let [dry_run] = query::parse(uri, ["dry_run"])?;
    match dry_run.as_deref() {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(ApiError::malformed(
            "query parameter `dry_run` must be true or false",
        )),
    }
}

/// Changes the document, or describes the change in a dry run. `version` is the current version of
/// the entity, and `respond` makes the response to a change that was made.
pub(super) async fn apply(
    editor: &Arc<DocumentEditor>,
    quotas: Arc<Quotas>,
    request: EditRequest,
    version: impl Fn(&Document) -> Result<Option<String>, ApiError> + Send + 'static,
    edit: impl Fn(&Document) -> Result<Edited, ApiError> + Send + 'static,
    respond: impl FnOnce(&Edit) -> Response<Body>,
) -> Result<Response<Body>, ApiError> {
    let EditRequest {
        caller,
        dry_run,
        preconditions,
    } = request;
    let restrictions = caller.restrictions().clone();
    let plan = move |document: &Document| {
        preconditions.check(version(document)?.as_deref())?;
        let edited = edit(document)?;
        authorize::edit(document, &edited.document, &restrictions)?;
        Ok::<_, ApiError>(edited)
    };
    if dry_run {
        let restrictions = caller.restrictions().clone();
        let pause = move || quotas.read_delay(ReadKind::All, clock::now());
        let result = editor.dry_run(restrictions, pause, plan).await?;
        Ok(Json(result).into_response())
    } else {
        let edit = editor.edit(caller.name(), plan).await?;
        Ok(respond(&edit))
    }
}

/// The response to a `PUT` or `PATCH`: the entity, its `ETag`, and 201 if it is new.
pub(super) fn saved<T>(
    previous: Option<&T>,
    version: &str,
    body: impl Serialize,
) -> Response<Body> {
    let mut response = Json(body).into_response();
    if response.status().is_success() {
        *response.status_mut() = match previous {
            Some(_) => StatusCode::OK,
            None => StatusCode::CREATED,
        };
        set_etag(&mut response, version);
    }
    response
}

/// An entity with the warnings of the edit and of its document.
#[derive(Debug, Serialize)]
pub(super) struct WithWarnings<T> {
    #[serde(flatten)]
    entity: T,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

impl<T> WithWarnings<T> {
    pub(super) fn new(entity: T, edit: &Edit, restrictions: &Restrictions) -> Self {
        Self {
            entity,
            warnings: warnings::of_edit(&edit.notes, &edit.after, restrictions),
        }
    }
}

/// The response to a `DELETE`: the warnings, or 204 if there is none.
pub(super) fn deleted(edit: &Edit, restrictions: &Restrictions) -> Response<Body> {
    let warnings = warnings::of_edit(&edit.notes, &edit.after, restrictions);
    if !warnings.is_empty() {
        return Json(Deleted { warnings }).into_response();
    }
    let no_store = [(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))];
    (StatusCode::NO_CONTENT, no_store).into_response()
}

/// Checks the precondition of a `GET`.
pub(super) fn check_if_match(headers: &HeaderMap, version: &str) -> Result<(), ApiError> {
    Preconditions::of(headers).check_if_match(Some(version))
}

pub(super) fn not_found(kind: &str, name: &str) -> ApiError {
    let name: String = name.chars().take(256).collect();
    ApiError::new(
        ProblemType::NotFound,
        format!("the document has no {kind} `{name}`"),
    )
}

/// 404 of a patch.
pub(super) fn nothing_to_patch(kind: &str, name: &str) -> ApiError {
    not_found(kind, name).with_hint("PUT creates one")
}
