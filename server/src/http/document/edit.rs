//! Parts that all document changes share: extractors, the change itself, and responses.

use std::time::Duration;

use axum::{
    body::Body,
    extract::{FromRequest, FromRequestParts, Request},
    http::{HeaderValue, Method, Response, StatusCode, Uri, header, request::Parts},
    response::IntoResponse,
};
use doorman_config::{Document, Edited, Restrictions};
use doorman_openapi::Deleted;
use serde::Serialize;

use crate::{
    auth::Caller,
    document::{Edit, warnings},
    http::{
        error::ApiError,
        extract::{body, query},
        response::{
            Json,
            conditional::{Preconditions, set_etag},
        },
        state::AppState,
    },
    quota::ReadKind,
    util::clock,
};

/// The caller and the conditions of a change.
#[derive(Debug)]
pub(in crate::http) struct EditRequest {
    app: AppState,
    caller: Caller,
    pub(super) dry_run: bool,
    pub(super) preconditions: Preconditions,
}

impl FromRequestParts<AppState> for EditRequest {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        Ok(Self {
            app: state.clone(),
            caller: Caller::from_request_parts(parts, state).await?,
            dry_run: dry_run(&parts.uri)?,
            preconditions: Preconditions::of(&parts.headers),
        })
    }
}

/// A change with JSON: an entity or, in a `PATCH`, a merge patch.
#[derive(Debug)]
pub(in crate::http) struct EditBody {
    pub(super) edit: EditRequest,
    pub(super) text: String,
}

impl FromRequest<AppState> for EditBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, ApiError> {
        let (mut parts, body) = request.into_parts();
        let edit = EditRequest::from_request_parts(&mut parts, state).await?;
        let types = if parts.method == Method::PATCH {
            body::MERGE_PATCH
        } else {
            body::JSON
        };
        let bytes = body::read(&parts.headers, types, body, &state.body_buffer).await?;
        let text = body::utf8(&bytes)?;
        body::check_syntax(text)?;
        Ok(Self {
            edit,
            text: text.to_owned(),
        })
    }
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

impl EditRequest {
    pub(super) fn restrictions(&self) -> &Restrictions {
        self.caller.restrictions()
    }

    /// Makes the change that `plan` returns for the document.
    pub(super) async fn make(
        self,
        plan: impl Fn(&Document) -> Result<Edited, ApiError> + Send + 'static,
    ) -> Result<Edit, ApiError> {
        let edit = self.app.editor.edit(self.caller.name(), plan).await?;
        let (restrictions, pause) = (self.restrictions().clone(), self.read_pause());
        let editor = &self.app.editor;
        Ok(editor.with_effects(edit, restrictions, pause).await)
    }

    /// How long to wait before each read of the ledger.
    fn read_pause(&self) -> impl Fn() -> Duration + Send + use<> {
        let app = self.app.clone();
        move || app.quotas.read_delay(ReadKind::All, clock::now())
    }

    /// Describes the change that `plan` returns for the document.
    pub(super) async fn describe(
        self,
        plan: impl Fn(&Document) -> Result<Edited, ApiError> + Send + 'static,
    ) -> Result<Response<Body>, ApiError> {
        let (restrictions, pause) = (self.restrictions().clone(), self.read_pause());
        let editor = &self.app.editor;
        let result = editor.dry_run(restrictions, pause, plan).await?;
        Ok(Json(result).into_response())
    }
}

/// The response to a `PUT` or `PATCH`: the entity with the warnings of the edit and of its
/// document, its `ETag`, and 201 if it is new.
pub(super) fn saved(
    edit: &Edit,
    entity: &impl Serialize,
    version: &str,
    is_new: bool,
    restrictions: &Restrictions,
) -> Response<Body> {
    #[derive(Serialize)]
    struct WithWarnings<'a, T> {
        #[serde(flatten)]
        entity: &'a T,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
    }

    let warnings = warnings_of(edit, restrictions);
    let mut response = Json(WithWarnings { entity, warnings }).into_response();
    if response.status().is_success() {
        if is_new {
            *response.status_mut() = StatusCode::CREATED;
        }
        set_etag(&mut response, version);
    }
    response
}

fn warnings_of(edit: &Edit, restrictions: &Restrictions) -> Vec<String> {
    let documents = [&*edit.before, &*edit.after];
    warnings::of_edit(&edit.effects, &edit.notes, documents, restrictions)
}

/// The response to a `DELETE`: the warnings, or 204 if there is none.
pub(super) fn deleted(edit: &Edit, restrictions: &Restrictions) -> Response<Body> {
    let warnings = warnings_of(edit, restrictions);
    if !warnings.is_empty() {
        return Json(Deleted { warnings }).into_response();
    }
    let no_store = [(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))];
    (StatusCode::NO_CONTENT, no_store).into_response()
}
