//! `/v1/templates`: the document as a whole, and its individual templates.
//!
//! The whole document is one entity, since the order of templates matters, and one may take its
//! algorithm from another. Every entity has a strong `ETag`; preconditions are optional.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, Response},
};
use doorman_config::{Document, Restrictions};
use doorman_openapi::{Document as DocumentSchema, ProblemType, Template, paths};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::edit::{self, EditRequest, PatchRequest, PutRequest, WithWarnings};
use crate::{
    auth::Caller,
    document::{ActiveDocument, DocumentEditor, Edit},
    http::{
        authorize,
        error::ApiError,
        extract::{NoQuery, PathParam},
        openapi::{
            responses::{ChangeErrors, DeletionErrors, NotFoundError, PatchErrors, ReadErrors},
            schemas::{
                ChangedTemplate, DeletedOrDryRun, DocumentOrDryRun, PatchTemplate, PutTemplate,
                TemplateOrDryRun,
            },
        },
        response::conditional,
        state::{AppState, ServerInfo},
    },
    quota::Quotas,
};

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(get_templates, replace_templates))
        .routes(routes!(
            get_template,
            put_template,
            patch_template,
            delete_template
        ))
}

/// Read the document
///
/// All templates and rules, with every default written out. Only a template that takes its
/// algorithm from the one for `*` has none. A node below the root of a tree answers 404.
#[utoipa::path(
    get,
    path = paths::TEMPLATES,
    tag = "document",
    params(
        ("If-None-Match" = inline(Option<String>), Header, nullable = false, description = "The `ETag` of an earlier response"),
        ("If-Match" = inline(Option<String>), Header, nullable = false, description = "Fail with 412 unless the current version has this `ETag`")
    ),
    responses(
        (
            status = OK,
            description = "The document",
            body = DocumentSchema,
            headers(
                ("ETag" = String, description = "The version of the document"),
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
        NotFoundError
    )
)]
async fn get_templates(
    State(active): State<Arc<ActiveDocument>>,
    State(server): State<Arc<ServerInfo>>,
    caller: Caller,
    NoQuery: NoQuery,
    headers: HeaderMap,
) -> Result<Response<Body>, ApiError> {
    authorize::whole_document(caller.restrictions())?;
    check_has_templates(&server)?;
    let document = active.get();
    edit::check_if_match(&headers, document.version())?;
    Ok(conditional::json(&headers, document.version(), || {
        &*document
    }))
}

/// A node below the root has no templates: terms come with the leases from its parent.
///
/// # Errors
/// 404.
fn check_has_templates(server: &ServerInfo) -> Result<(), ApiError> {
    match &server.parent {
        Some(parent) => Err(ApiError::at_root(ProblemType::NotFound, parent)),
        None => Ok(()),
    }
}

/// Replace the document
///
/// The new document is active immediately; a lease keeps its terms until its holder's next refresh.
/// An invalid document changes nothing, and the response lists all its errors. With `dry_run=true`
/// nothing changes, and the response describes the change.
#[utoipa::path(
    put,
    path = paths::TEMPLATES,
    tag = "document",
    params(
        ("dry_run" = inline(Option<bool>), Query, nullable = false, description = "Only describe the change"),
        ("If-Match" = inline(Option<String>), Header, nullable = false, description = "Fail with 412 unless the current version has this `ETag`"),
        ("If-None-Match" = inline(Option<String>), Header, nullable = false, description = "Fail with 412 if the current version has this `ETag`; `*`: if there is one")
    ),
    request_body(
        content = DocumentSchema,
        examples(
            ("two" = (
                summary = "A limit for one resource, and one for each other",
                value = json!({
                    "resources": [
                        {"identifier_glob": "db", "capacity": 50},
                        {"identifier_glob": "*", "capacity": 1000, "algorithm": {"kind": "FAIR_SHARE"}}
                    ]
                })
            ))
        )
    ),
    responses(
        (
            status = OK,
            description = "The new document, or the effect of the change",
            body = inline(DocumentOrDryRun),
            headers(("ETag" = String, description = "The version of the document")),
            example = json!({
                "resources": [
                    {
                        "identifier_glob": "db",
                        "capacity": 50,
                        "unit": "rate",
                        "per": 1,
                        "minimum_refresh_interval": 0
                    },
                    {
                        "identifier_glob": "*",
                        "capacity": 1000,
                        "unit": "rate",
                        "per": 1,
                        "minimum_refresh_interval": 0,
                        "algorithm": {"kind": "FAIR_SHARE", "lease_length": 60, "refresh_interval": 5}
                    }
                ]
            })
        ),
        ChangeErrors
    )
)]
async fn replace_templates(
    State(editor): State<Arc<DocumentEditor>>,
    State(quotas): State<Arc<Quotas>>,
    PutRequest { edit, text }: PutRequest,
) -> Result<Response<Body>, ApiError> {
    authorize::whole_document(edit.restrictions())?;
    let restrictions = edit.restrictions().clone();
    edit::apply(
        &editor,
        quotas,
        edit,
        |document| Ok(Some(document.version().to_owned())),
        move |_| Ok(Document::parse_json(&text)?.into()),
        |edit| {
            let document = &*edit.after;
            let body = WithWarnings::new(document, edit, &restrictions);
            edit::saved(Some(&edit.before), document.version(), body)
        },
    )
    .await
}

/// Read a template
///
/// As the document has it.
#[utoipa::path(
    get,
    path = paths::TEMPLATE,
    tag = "document",
    params(
        ("identifier_glob" = inline(String), Path, min_length = 1, max_length = 1024, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$", description = "The glob, percent-encoded: `tenant%2F*`, or `tenant/*`", example = "*"),
        ("If-None-Match" = inline(Option<String>), Header, nullable = false, description = "The `ETag` of an earlier response"),
        ("If-Match" = inline(Option<String>), Header, nullable = false, description = "Fail with 412 unless the current version has this `ETag`")
    ),
    responses(
        (
            status = OK,
            description = "The template",
            body = Template,
            headers(
                ("ETag" = String, description = "The version of the template"),
                ("Cache-Control" = String, description = "`no-cache`")
            ),
            example = json!({
                "identifier_glob": "*",
                "capacity": 1000,
                "description": "every resource without an entry of its own",
                "unit": "rate",
                "per": 1,
                "minimum_refresh_interval": 0,
                "algorithm": {"kind": "FAIR_SHARE", "lease_length": 60, "refresh_interval": 5}
            })
        ),
        (status = NOT_MODIFIED, description = "The template has the version of `If-None-Match`"),
        ReadErrors,
        NotFoundError
    )
)]
async fn get_template(
    State(active): State<Arc<ActiveDocument>>,
    State(server): State<Arc<ServerInfo>>,
    caller: Caller,
    PathParam(glob): PathParam,
    NoQuery: NoQuery,
    headers: HeaderMap,
) -> Result<Response<Body>, ApiError> {
    authorize::template(&glob, caller.restrictions())?;
    check_has_templates(&server)?;
    let document = active.get();
    let Some(template) = document.template(&glob) else {
        return Err(edit::not_found("template", &glob));
    };
    let version = template.version();
    edit::check_if_match(&headers, &version)?;
    Ok(conditional::json(&headers, &version, || &**template))
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
    tag = "document",
    params(
        ("identifier_glob" = inline(String), Path, min_length = 1, max_length = 1024, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$", description = "The glob, percent-encoded: `tenant%2F*`, or `tenant/*`", example = "*"),
        ("dry_run" = inline(Option<bool>), Query, nullable = false, description = "Only describe the change"),
        ("If-Match" = inline(Option<String>), Header, nullable = false, description = "Fail with 412 unless the current version has this `ETag`"),
        ("If-None-Match" = inline(Option<String>), Header, nullable = false, description = "Fail with 412 if the current version has this `ETag`; `*`: if there is one")
    ),
    request_body(
        content = inline(PutTemplate),
        examples(
            ("all" = (
                summary = "Another capacity for everything",
                value = json!({"capacity": 500, "algorithm": {"kind": "FAIR_SHARE"}})
            ))
        )
    ),
    responses(
        (
            status = OK,
            description = "The replaced template, or the effect of the change",
            body = inline(TemplateOrDryRun),
            headers(("ETag" = String, description = "The version of the template")),
            example = json!({
                "identifier_glob": "*",
                "capacity": 500,
                "unit": "rate",
                "per": 1,
                "minimum_refresh_interval": 0,
                "algorithm": {"kind": "FAIR_SHARE", "lease_length": 60, "refresh_interval": 5},
                "warnings": ["replaced as a whole; lost with the fields that were left out: description: \"every resource without an entry of its own\"; PATCH changes single fields"]
            })
        ),
        (
            status = CREATED,
            description = "The new template",
            body = inline(ChangedTemplate),
            headers(("ETag" = String, description = "The version of the template"))
        ),
        ChangeErrors
    )
)]
async fn put_template(
    State(editor): State<Arc<DocumentEditor>>,
    State(quotas): State<Arc<Quotas>>,
    PathParam(glob): PathParam,
    PutRequest { edit, text }: PutRequest,
) -> Result<Response<Body>, ApiError> {
    authorize::template(&glob, edit.restrictions())?;
    let (old, new) = (glob.clone(), glob.clone());
    let restrictions = edit.restrictions().clone();
    edit::apply(
        &editor,
        quotas,
        edit,
        move |document| Ok(document.template(&old).map(|template| template.version())),
        move |document| Ok(document.with_template(&new, &text)?),
        |edit| saved(edit, &glob, &restrictions),
    )
    .await
}

/// Patch a template
///
/// Changes only the fields that the body names: a JSON merge patch (RFC 7396). `null` removes a
/// field, `algorithm` is merged, and `parameters` is replaced. With `dry_run=true` nothing changes,
/// and the response describes the change.
#[utoipa::path(
    patch,
    path = paths::TEMPLATE,
    tag = "document",
    params(
        ("identifier_glob" = inline(String), Path, min_length = 1, max_length = 1024, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$", description = "The glob, percent-encoded: `tenant%2F*`, or `tenant/*`", example = "*"),
        ("dry_run" = inline(Option<bool>), Query, nullable = false, description = "Only describe the change"),
        ("If-Match" = inline(Option<String>), Header, nullable = false, description = "Fail with 412 unless the current version has this `ETag`"),
        ("If-None-Match" = inline(Option<String>), Header, nullable = false, description = "Fail with 412 if the current version has this `ETag`")
    ),
    request_body(
        content(
            (
                inline(PatchTemplate) = "application/merge-patch+json",
                examples(
                    ("capacity" = (
                        summary = "Another capacity, and everything else as before",
                        value = json!({"capacity": 500})
                    ))
                )
            ),
            (inline(PatchTemplate) = "application/json")
        )
    ),
    responses(
        (
            status = OK,
            description = "The changed template, or the effect of the change",
            body = inline(TemplateOrDryRun),
            headers(("ETag" = String, description = "The version of the template")),
            example = json!({
                "identifier_glob": "*",
                "capacity": 500,
                "description": "every resource without an entry of its own",
                "unit": "rate",
                "per": 1,
                "minimum_refresh_interval": 0,
                "algorithm": {"kind": "FAIR_SHARE", "lease_length": 60, "refresh_interval": 5}
            })
        ),
        PatchErrors
    )
)]
async fn patch_template(
    State(editor): State<Arc<DocumentEditor>>,
    State(quotas): State<Arc<Quotas>>,
    PathParam(glob): PathParam,
    PatchRequest { edit, text }: PatchRequest,
) -> Result<Response<Body>, ApiError> {
    authorize::template(&glob, edit.restrictions())?;
    let (old, new) = (glob.clone(), glob.clone());
    let restrictions = edit.restrictions().clone();
    edit::apply(
        &editor,
        quotas,
        edit,
        move |document| match document.template(&old) {
            Some(template) => Ok(Some(template.version())),
            None => Err(edit::nothing_to_patch("template", &old)),
        },
        move |document| match document.with_patched_template(&new, &text) {
            Some(edited) => Ok(edited?.into()),
            None => Err(edit::nothing_to_patch("template", &new)),
        },
        |edit| saved(edit, &glob, &restrictions),
    )
    .await
}

fn saved(edit: &Edit, glob: &str, restrictions: &Restrictions) -> Response<Body> {
    match edit.after.template(glob) {
        Some(template) => {
            let body = WithWarnings::new(&**template, edit, restrictions);
            edit::saved(edit.before.template(glob), &template.version(), body)
        }
        None => edit::deleted(edit, restrictions),
    }
}

/// Delete a template
///
/// Its resources use the next template that matches. A template that others take their algorithm
/// from cannot be deleted. With `dry_run=true` nothing changes, and the response describes the
/// change.
#[utoipa::path(
    delete,
    path = paths::TEMPLATE,
    tag = "document",
    params(
        ("identifier_glob" = inline(String), Path, min_length = 1, max_length = 1024, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$", description = "The glob, percent-encoded: `tenant%2F*`, or `tenant/*`", example = "*"),
        ("dry_run" = inline(Option<bool>), Query, nullable = false, description = "Only describe the change"),
        ("If-Match" = inline(Option<String>), Header, nullable = false, description = "Fail with 412 unless the current version has this `ETag`")
    ),
    responses(
        (
            status = OK,
            description = "The template is deleted, and the document has warnings; or the effect of the change",
            body = inline(DeletedOrDryRun)
        ),
        (status = NO_CONTENT, description = "The template is deleted"),
        DeletionErrors
    )
)]
async fn delete_template(
    State(editor): State<Arc<DocumentEditor>>,
    State(quotas): State<Arc<Quotas>>,
    PathParam(glob): PathParam,
    edit: EditRequest,
) -> Result<Response<Body>, ApiError> {
    authorize::template(&glob, edit.restrictions())?;
    let old = glob.clone();
    let shown_to = edit.restrictions().clone();
    edit::apply(
        &editor,
        quotas,
        edit,
        move |document| match document.template(&old) {
            Some(template) => Ok(Some(template.version())),
            None => Err(edit::not_found("template", &old)),
        },
        move |document| match document.without_template(&glob) {
            Some(edited) => Ok(edited?.into()),
            None => Err(edit::not_found("template", &glob)),
        },
        |edit| edit::deleted(edit, &shown_to),
    )
    .await
}
