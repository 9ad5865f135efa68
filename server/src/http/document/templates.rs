//! `/v1/templates`: the document as a whole, and its individual templates.
//!
//! The whole document is one entity, since the order of templates matters, and one may take its
//! algorithm from another. Every entity has a strong `ETag`; preconditions are optional.

use axum::{body::Body, http::Response};
use doorman_config as config;
use doorman_openapi::{Document, Glob, Template, paths};

use super::{
    edit::{self, EditBody, EditRequest},
    entity::{self, Change, Entity, ReadRequest},
};
use crate::http::{authorize, error::ApiError, extract::PathParam, openapi::complete::NotModified};

/// Read the document
///
/// All templates and rules, with every default written out. Only a template that takes its
/// algorithm from the one for `*` has none. A node below the root of a tree answers 404.
#[utoipa::path(
    get,
    path = paths::TEMPLATES,
    responses((status = OK, description = "The document", body = Document), NotModified)
)]
pub(in crate::http) async fn get_templates(
    mut request: ReadRequest,
) -> Result<Response<Body>, ApiError> {
    authorize::whole_document(request.caller.restrictions())?;
    request.refresh().await;
    let document = config::Template::document(&request.app)?;
    request.respond(document.version(), &*document)
}

/// Replace the document
///
/// The new document is active immediately; a lease keeps its terms until its holder's next refresh.
/// An invalid document changes nothing, and the response lists all its errors. With `dry_run=true`
/// nothing changes, and the response describes the change.
#[utoipa::path(
    put,
    path = paths::TEMPLATES,
    request_body = Document,
    responses((status = OK, description = "The new document, or the effect of the change"))
)]
pub(in crate::http) async fn replace_templates(
    EditBody { edit, text }: EditBody,
) -> Result<Response<Body>, ApiError> {
    authorize::whole_document(edit.restrictions())?;
    let preconditions = edit.preconditions.clone();
    let plan = move |document: &config::Document| {
        preconditions.check(Some(document.version()))?;
        Ok(config::Edited {
            document: config::Document::parse_json(&text)?,
            notes: config::EditNotes {
                replaces_all: true,
                ..config::EditNotes::default()
            },
        })
    };
    if edit.dry_run {
        return edit.describe(plan).await;
    }
    let restrictions = edit.restrictions().clone();
    let made = edit.make(plan).await?;
    let document = &*made.after;
    Ok(edit::saved(
        &made,
        document,
        document.version(),
        false,
        &restrictions,
    ))
}

/// Read a template
///
/// As the document has it.
#[utoipa::path(
    get,
    path = paths::TEMPLATE,
    params(("identifier_glob" = Glob, Path, description = "The glob, percent-encoded: `tenant%2F*`, or `tenant/*`", example = "*")),
    responses((status = OK, description = "The template", body = Template), NotModified)
)]
pub(in crate::http) async fn get_template(
    PathParam(glob): PathParam,
    request: ReadRequest,
) -> Result<Response<Body>, ApiError> {
    request.entity::<config::Template>(&glob).await
}

/// Put a template
///
/// Replaces the template with this glob; to change single fields, patch it. A new one is inserted
/// before the first that matches everything that it matches, such as the one for `*`, or at the
/// end. `identifier_glob` is optional in the body. `warnings` has the fields that the replacement
/// drops. With `dry_run=true` nothing changes, and the response describes the change.
#[utoipa::path(
    put,
    path = paths::TEMPLATE,
    params(("identifier_glob" = Glob, Path, description = "The glob, percent-encoded: `tenant%2F*`, or `tenant/*`", example = "*")),
    request_body = Template,
    responses(
        (status = OK, description = "The replaced template, or the effect of the change"),
        (status = CREATED, description = "The new template")
    )
)]
pub(in crate::http) async fn put_template(
    PathParam(glob): PathParam,
    EditBody { edit, text }: EditBody,
) -> Result<Response<Body>, ApiError> {
    entity::change::<config::Template>(edit, glob, Change::Put(text)).await
}

/// Patch a template
///
/// Changes only the fields that the body names: a JSON merge patch (RFC 7396). `null` removes a
/// field, `algorithm` is merged, and `parameters` is replaced. With `dry_run=true` nothing changes,
/// and the response describes the change.
#[utoipa::path(
    patch,
    path = paths::TEMPLATE,
    params(("identifier_glob" = Glob, Path, description = "The glob, percent-encoded: `tenant%2F*`, or `tenant/*`", example = "*")),
    request_body = Template,
    responses((status = OK, description = "The changed template, or the effect of the change"))
)]
pub(in crate::http) async fn patch_template(
    PathParam(glob): PathParam,
    EditBody { edit, text }: EditBody,
) -> Result<Response<Body>, ApiError> {
    entity::change::<config::Template>(edit, glob, Change::Patch(text)).await
}

/// Delete a template
///
/// Its resources use the next template that matches. A template that others take their algorithm
/// from cannot be deleted. With `dry_run=true` nothing changes, and the response describes the
/// change.
#[utoipa::path(
    delete,
    path = paths::TEMPLATE,
    params(("identifier_glob" = Glob, Path, description = "The glob, percent-encoded: `tenant%2F*`, or `tenant/*`", example = "*")),
    responses(
        (status = OK, description = "The template is deleted, and the document has warnings; or the effect of the change"),
        (status = NO_CONTENT, description = "The template is deleted")
    )
)]
pub(in crate::http) async fn delete_template(
    PathParam(glob): PathParam,
    edit: EditRequest,
) -> Result<Response<Body>, ApiError> {
    entity::change::<config::Template>(edit, glob, Change::Delete).await
}
