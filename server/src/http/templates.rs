//! The document, whole and template by template.
//!
//! The whole document is the collection of the templates, since a template may take its algorithm from another, and the order counts. A
//! template is named by its glob, percent-encoded, as that is what an operator knows of it. Everything has a strong `ETag`, made of what it
//! says; who changes what somebody else has changed meanwhile can so be told. Preconditions are optional: one operator with curl needs none.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, Response},
};
use doorman_config::Document;
use doorman_openapi::{Document as Shape, DryRun, Template, paths};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    changing::{self, Asked, Before, EntryName, PutRequest},
    conditional::Versioned,
    extract::NoQuery,
    failures::{NotFound, OfAChange, OfADeletion, OfARead},
    permit,
    refusal::Refusal,
    shapes::{DocumentOrDryRun, PutTemplate, TemplateOrDryRun},
};
use crate::{
    auth::Caller,
    document::{ActiveDocument, DocumentEditor},
    http::state::AppState,
    quota::Quotas,
};

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(get_templates, replace_templates))
        .routes(routes!(get_template, put_template, delete_template))
}

/// Look at the document
///
/// All templates and rules, with every default written out, but for the algorithm of a template that takes it from the one for everything.
#[utoipa::path(
    get,
    path = paths::TEMPLATES,
    tag = "document",
    params(
        ("If-None-Match" = inline(Option<String>), Header, nullable = false, description = "The `ETag` of an earlier answer"),
        ("If-Match" = inline(Option<String>), Header, nullable = false, description = "Only if it is this one")
    ),
    responses(
        (
            status = OK,
            description = "The document",
            body = Shape,
            headers(
                ("ETag" = String, description = "The version of the document, in quotes; strong"),
                ("Cache-Control" = String, description = "`no-cache`: to be asked for again each time")
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
        (status = NOT_MODIFIED, description = "The document is that of the `ETag` sent"),
        OfARead
    )
)]
async fn get_templates(
    State(active): State<Arc<ActiveDocument>>,
    caller: Caller,
    NoQuery: NoQuery,
    headers: HeaderMap,
) -> Result<Response<Body>, Refusal> {
    permit::whole_document(caller.restrictions())?;
    let document = active.get();
    changing::check_read(&headers, document.version())?;
    let versioned = Versioned {
        version: document.version(),
        answer: || &*document,
    };
    Ok(versioned.answer_to(&headers))
}

/// Replace the document
///
/// It counts from then on: what is leased stands until its holder's next refresh. A wrong document changes nothing, and every fault of it
/// is named. With `dry_run=true` nothing is changed, and the answer says what would.
#[utoipa::path(
    put,
    path = paths::TEMPLATES,
    tag = "document",
    params(
        ("dry_run" = inline(Option<bool>), Query, nullable = false, description = "Only say what would change, for which live resources"),
        ("If-Match" = inline(Option<String>), Header, nullable = false, description = "Only if the document is still the one of this `ETag`"),
        ("If-None-Match" = inline(Option<String>), Header, nullable = false, description = "Only if it is not the one of this `ETag`")
    ),
    request_body(
        content = Shape,
        examples(
            ("two" = (
                summary = "A limit of its own for one resource, and one for each other",
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
            description = "The document as it is now, or what would change",
            body = inline(DocumentOrDryRun),
            headers(("ETag" = String, description = "The version of the document, in quotes; strong")),
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
        OfAChange
    )
)]
async fn replace_templates(
    State(editor): State<Arc<DocumentEditor>>,
    State(limits): State<Arc<Quotas>>,
    PutRequest { asked, text }: PutRequest,
) -> Result<Response<Body>, Refusal> {
    permit::whole_document(asked.restrictions())?;
    changing::change(
        &editor,
        limits,
        asked,
        |document| Ok(Some(document.version().to_owned())),
        move |_| Ok(Document::parse_json(&text)?),
        |made| changing::shown(Before::There, made.after.version(), &*made.after),
    )
    .await
}

/// Look at a template
#[utoipa::path(
    get,
    path = paths::TEMPLATE,
    tag = "document",
    description = "As the document has it.",
    params(
        ("identifier_glob" = inline(String), Path, min_length = 1, max_length = 1024, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$", description = "Its glob, percent-encoded, slashes too: `tenant%2F*`", example = "*"),
        ("If-None-Match" = inline(Option<String>), Header, nullable = false, description = "The `ETag` of an earlier answer"),
        ("If-Match" = inline(Option<String>), Header, nullable = false, description = "Only if it is this one")
    ),
    responses(
        (
            status = OK,
            description = "The template",
            body = Template,
            headers(
                ("ETag" = String, description = "The version of the template, in quotes; strong"),
                ("Cache-Control" = String, description = "`no-cache`: to be asked for again each time")
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
        (status = NOT_MODIFIED, description = "The template is that of the `ETag` sent"),
        OfARead,
        NotFound
    )
)]
async fn get_template(
    State(active): State<Arc<ActiveDocument>>,
    caller: Caller,
    EntryName(glob): EntryName,
    NoQuery: NoQuery,
    headers: HeaderMap,
) -> Result<Response<Body>, Refusal> {
    permit::template(&glob, caller.restrictions())?;
    let document = active.get();
    let Some(template) = document.template(&glob) else {
        return Err(changing::not_there("template", &glob));
    };
    let version = template.version();
    changing::check_read(&headers, &version)?;
    let versioned = Versioned {
        version: &version,
        answer: || &**template,
    };
    Ok(versioned.answer_to(&headers))
}

/// Put a template
///
/// In the place of the one with this glob; a new one stands before the one for everything, else last. `identifier_glob` may be left out, as
/// the path has it. With `dry_run=true` nothing is changed, and the answer says what would.
#[utoipa::path(
    put,
    path = paths::TEMPLATE,
    tag = "document",
    params(
        ("identifier_glob" = inline(String), Path, min_length = 1, max_length = 1024, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$", description = "Its glob, percent-encoded, slashes too: `tenant%2F*`", example = "*"),
        ("dry_run" = inline(Option<bool>), Query, nullable = false, description = "Only say what would change, for which live resources"),
        ("If-Match" = inline(Option<String>), Header, nullable = false, description = "Only if the template is still the one of this `ETag`; `*`: only if there is one"),
        ("If-None-Match" = inline(Option<String>), Header, nullable = false, description = "`*`: only if there is none yet")
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
            description = "The template that is there now in the place of another, or what would change",
            body = inline(TemplateOrDryRun),
            headers(("ETag" = String, description = "The version of the template, in quotes; strong")),
            example = json!({
                "identifier_glob": "*",
                "capacity": 500,
                "unit": "rate",
                "per": 1,
                "minimum_refresh_interval": 0,
                "algorithm": {"kind": "FAIR_SHARE", "lease_length": 60, "refresh_interval": 5}
            })
        ),
        (
            status = CREATED,
            description = "The new template",
            body = Template,
            headers(("ETag" = String, description = "The version of the template, in quotes; strong"))
        ),
        OfAChange
    )
)]
async fn put_template(
    State(editor): State<Arc<DocumentEditor>>,
    State(limits): State<Arc<Quotas>>,
    EntryName(glob): EntryName,
    PutRequest { asked, text }: PutRequest,
) -> Result<Response<Body>, Refusal> {
    permit::template(&glob, asked.restrictions())?;
    let (known, put) = (glob.clone(), glob.clone());
    changing::change(
        &editor,
        limits,
        asked,
        move |document| Ok(document.template(&known).map(|template| template.version())),
        move |document| Ok(document.with_template(&put, &text)?),
        |made| {
            let before = changing::before(made.before.template(&glob));
            match made.after.template(&glob) {
                Some(template) => changing::shown(before, &template.version(), &**template),
                None => changing::gone(made),
            }
        },
    )
    .await
}

/// Delete a template
///
/// Its resources fall under the next that matches. One from which others take their algorithm stays. With `dry_run=true` nothing is
/// changed, and the answer says what would.
#[utoipa::path(
    delete,
    path = paths::TEMPLATE,
    tag = "document",
    params(
        ("identifier_glob" = inline(String), Path, min_length = 1, max_length = 1024, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$", description = "Its glob, percent-encoded, slashes too: `tenant%2F*`", example = "*"),
        ("dry_run" = inline(Option<bool>), Query, nullable = false, description = "Only say what would change, for which live resources"),
        ("If-Match" = inline(Option<String>), Header, nullable = false, description = "Only if the template is still the one of this `ETag`")
    ),
    responses(
        (status = OK, description = "What would change", body = DryRun),
        (status = NO_CONTENT, description = "It is gone"),
        OfADeletion
    )
)]
async fn delete_template(
    State(editor): State<Arc<DocumentEditor>>,
    State(limits): State<Arc<Quotas>>,
    EntryName(glob): EntryName,
    asked: Asked,
) -> Result<Response<Body>, Refusal> {
    permit::template(&glob, asked.restrictions())?;
    let known = glob.clone();
    changing::change(
        &editor,
        limits,
        asked,
        move |document| match document.template(&known) {
            Some(template) => Ok(Some(template.version())),
            None => Err(changing::not_there("template", &known)),
        },
        move |document| match document.without_template(&glob) {
            Some(edited) => Ok(edited?),
            None => Err(changing::not_there("template", &glob)),
        },
        changing::gone,
    )
    .await
}
