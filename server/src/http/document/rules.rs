//! `/v1/rules`: the rules that a service follows, and individual rules for operators.
//!
//! Every layer polls its rules every few seconds, so the list has an `ETag` per service, which only
//! changes with rules of that service. The ledger is not locked.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, Response, Uri},
};
use doorman_config::{Document, Restrictions};
use doorman_openapi::{ProblemType, Rule, RuleName, RulesResponse, paths};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::edit::{self, EditRequest, PatchRequest, PutRequest, WithWarnings};
use crate::{
    auth::Caller,
    document::{ActiveDocument, DocumentEditor, Edit},
    http::{
        authorize,
        error::ApiError,
        extract::{NoQuery, PathParam, query},
        openapi::{
            responses::{
                ChangeErrors, DeletionErrors, NotFoundError, PatchErrors, QueryErrors, ReadErrors,
                UnavailableError,
            },
            schemas::{ChangedRule, DeletedOrDryRun, PatchRule, PutRule, RuleOrDryRun},
        },
        response::conditional,
        state::{AppState, ServerInfo},
    },
    quota::Quotas,
};

const MAX_SERVICE_BYTES: usize = 256;

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list_rules))
        .routes(routes!(get_rule, put_rule, patch_rule, delete_rule))
}

/// List the rules of a service
///
/// In the order of the document, in which they apply. All rules that match a request apply
/// together; one that exempts a request ends the list for it. With the `ETag` of an earlier
/// response in `If-None-Match` the response is 304 while nothing has changed for this service.
///
/// Without `service` the list has all rules, for nodes that serve them to their own clients. That
/// needs the scope `server` or `templates:read`, and a token without restriction to services.
#[utoipa::path(
    get,
    path = paths::RULES,
    tag = "rules",
    params(
        ("service" = inline(Option<String>), Query, nullable = false, min_length = 1, max_length = 256, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$", description = "The name of the service: 1 to 256 bytes of UTF-8 without control characters. Default: all services", example = "orders"),
        ("If-None-Match" = inline(Option<String>), Header, nullable = false, description = "The `ETag` of an earlier response")
    ),
    responses(
        (
            status = OK,
            description = "The rules of the service, or all rules",
            body = RulesResponse,
            headers(
                ("ETag" = String, description = "The version of the rules"),
                ("Cache-Control" = String, description = "`no-cache`")
            ),
            example = json!({
                "version": "6c62272e07bb014262b821756295c58d",
                "rules": [{
                    "name": "per-tenant",
                    "service": "orders*",
                    "methods": ["GET", "POST"],
                    "path": "/v1/orders/{id}",
                    "resource": "tenant/{jwt:sub}",
                    "unit": "rate",
                    "cost": 1,
                    "burst": 1,
                    "on_limit": {"action": "delay", "max_delay": 0.5},
                    "on_missing_key": "shared",
                    "fallback": "safe",
                    "priority": 0
                }]
            })
        ),
        (status = NOT_MODIFIED, description = "The rules have the version of `If-None-Match`"),
        QueryErrors,
        UnavailableError
    )
)]
async fn list_rules(
    State(active): State<Arc<ActiveDocument>>,
    State(server): State<Arc<ServerInfo>>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response<Body>, ApiError> {
    let [service] = query::parse(&uri, ["service"])?;
    let Some(service) = service else {
        authorize::all_services(&caller)?;
        let document = active_rules(&active, &server)?;
        return Ok(conditional::json(
            &headers,
            &document.rules_version(),
            || document.all_rules(),
        ));
    };
    let is_name = (1..=MAX_SERVICE_BYTES).contains(&service.len());
    if !is_name || service.chars().any(char::is_control) {
        return Err(ApiError::malformed(
            "query parameter `service` must be 1 to 256 bytes of UTF-8 without control characters",
        ));
    }
    authorize::service(&service, caller.restrictions())?;
    let document = active_rules(&active, &server)?;
    let version = document.rules_version_for(&service);
    Ok(conditional::json(&headers, &version, || {
        document.rules_for(&service)
    }))
}

/// The document with the rules.
///
/// # Errors
/// 503 at a node that has no rules of its parent yet. A layer then keeps the rules that it has.
fn active_rules(active: &ActiveDocument, server: &ServerInfo) -> Result<Arc<Document>, ApiError> {
    match &server.parent {
        Some(parent) if !parent.has_rules() => Err(ApiError::new(
            ProblemType::Unavailable,
            "this node has no rules yet: its parent has not answered; retry later",
        )),
        _ => Ok(active.get()),
    }
}

/// Read a rule
///
/// The example works after that of `put_rule`.
#[utoipa::path(
    get,
    path = paths::RULE,
    tag = "document",
    params(
        ("name" = RuleName, Path, description = "The name, percent-encoded; a slash may stay as it is", example = "per-tenant"),
        ("If-None-Match" = inline(Option<String>), Header, nullable = false, description = "The `ETag` of an earlier response"),
        ("If-Match" = inline(Option<String>), Header, nullable = false, description = "Fail with 412 unless the current version has this `ETag`")
    ),
    responses(
        (
            status = OK,
            description = "The rule",
            body = Rule,
            headers(
                ("ETag" = String, description = "The version of the rule"),
                ("Cache-Control" = String, description = "`no-cache`")
            ),
            example = json!({
                "name": "per-tenant",
                "service": "orders*",
                "resource": "tenant/{jwt:sub}",
                "unit": "rate",
                "cost": 1,
                "burst": 1,
                "on_limit": {"action": "reject"},
                "on_missing_key": "shared",
                "fallback": "safe",
                "priority": 0
            })
        ),
        (status = NOT_MODIFIED, description = "The rule has the version of `If-None-Match`"),
        ReadErrors,
        NotFoundError,
        UnavailableError
    )
)]
async fn get_rule(
    State(active): State<Arc<ActiveDocument>>,
    State(server): State<Arc<ServerInfo>>,
    caller: Caller,
    PathParam(name): PathParam,
    NoQuery: NoQuery,
    headers: HeaderMap,
) -> Result<Response<Body>, ApiError> {
    let document = active_rules(&active, &server)?;
    authorize::rule(document.rule(&name), &name, caller.restrictions())?;
    let Some(rule) = document.rule(&name) else {
        return Err(edit::not_found("rule", &name));
    };
    let version = rule.version();
    edit::check_if_match(&headers, &version)?;
    Ok(conditional::json(&headers, &version, || rule))
}

/// Put a rule
///
/// Replaces the rule with this name; to change single fields, patch it. A new one is inserted at
/// the end. `name` is optional in the body. `warnings` has the fields that the replacement drops.
/// Services that poll for hints follow the rule within a second, others within ten seconds. With
/// `dry_run=true` nothing changes, and the response describes the change.
#[utoipa::path(
    put,
    path = paths::RULE,
    tag = "document",
    params(
        ("name" = RuleName, Path, description = "The name, percent-encoded; a slash may stay as it is", example = "per-tenant"),
        ("dry_run" = inline(Option<bool>), Query, nullable = false, description = "Only describe the change"),
        ("If-Match" = inline(Option<String>), Header, nullable = false, description = "Fail with 412 unless the current version has this `ETag`"),
        ("If-None-Match" = inline(Option<String>), Header, nullable = false, description = "Fail with 412 if the current version has this `ETag`; `*`: if there is one")
    ),
    request_body(
        content = inline(PutRule),
        examples(
            ("tenant" = (
                summary = "A limit per tenant over all instances of a service",
                value = json!({"service": "orders*", "resource": "tenant/{jwt:sub}"})
            ))
        )
    ),
    responses(
        (
            status = OK,
            description = "The replaced rule, or the effect of the change",
            body = inline(RuleOrDryRun),
            headers(("ETag" = String, description = "The version of the rule"))
        ),
        (
            status = CREATED,
            description = "The new rule",
            body = inline(ChangedRule),
            headers(("ETag" = String, description = "The version of the rule")),
            example = json!({
                "name": "per-tenant",
                "service": "orders*",
                "resource": "tenant/{jwt:sub}",
                "unit": "rate",
                "cost": 1,
                "burst": 1,
                "on_limit": {"action": "reject"},
                "on_missing_key": "shared",
                "fallback": "safe",
                "priority": 0
            })
        ),
        ChangeErrors
    )
)]
async fn put_rule(
    State(editor): State<Arc<DocumentEditor>>,
    State(quotas): State<Arc<Quotas>>,
    PathParam(name): PathParam,
    PutRequest { edit, text }: PutRequest,
) -> Result<Response<Body>, ApiError> {
    let (old, new) = (name.clone(), name.clone());
    let restrictions = edit.restrictions().clone();
    let shown_to = restrictions.clone();
    edit::apply(
        &editor,
        quotas,
        edit,
        move |document| {
            let rule = document.rule(&old);
            if rule.is_some() {
                authorize::rule(rule, &old, &restrictions)?;
            }
            Ok(rule.map(doorman_config::Rule::version))
        },
        move |document| Ok(document.with_rule(&new, &text)?),
        |edit| saved(edit, &name, &shown_to),
    )
    .await
}

/// Patch a rule
///
/// The example works after that of `put_rule`. Changes only the fields that the body names: a JSON
/// merge patch (RFC 7396). `null` removes a field, `methods` is replaced, and `on_limit` is merged:
/// another action than `delay` needs `"max_delay": null`. With `dry_run=true` nothing changes, and
/// the response describes the change.
#[utoipa::path(
    patch,
    path = paths::RULE,
    tag = "document",
    params(
        ("name" = RuleName, Path, description = "The name, percent-encoded; a slash may stay as it is", example = "per-tenant"),
        ("dry_run" = inline(Option<bool>), Query, nullable = false, description = "Only describe the change"),
        ("If-Match" = inline(Option<String>), Header, nullable = false, description = "Fail with 412 unless the current version has this `ETag`"),
        ("If-None-Match" = inline(Option<String>), Header, nullable = false, description = "Fail with 412 if the current version has this `ETag`")
    ),
    request_body(
        content(
            (
                inline(PatchRule) = "application/merge-patch+json",
                examples(
                    ("cost" = (
                        summary = "Another cost, and everything else as before",
                        value = json!({"cost": 2})
                    ))
                )
            ),
            (inline(PatchRule) = "application/json")
        )
    ),
    responses(
        (
            status = OK,
            description = "The changed rule, or the effect of the change",
            body = inline(RuleOrDryRun),
            headers(("ETag" = String, description = "The version of the rule")),
            example = json!({
                "name": "per-tenant",
                "service": "orders*",
                "resource": "tenant/{jwt:sub}",
                "unit": "rate",
                "cost": 2,
                "burst": 1,
                "on_limit": {"action": "reject"},
                "on_missing_key": "shared",
                "fallback": "safe",
                "priority": 0
            })
        ),
        PatchErrors
    )
)]
async fn patch_rule(
    State(editor): State<Arc<DocumentEditor>>,
    State(quotas): State<Arc<Quotas>>,
    PathParam(name): PathParam,
    PatchRequest { edit, text }: PatchRequest,
) -> Result<Response<Body>, ApiError> {
    let (old, new) = (name.clone(), name.clone());
    let restrictions = edit.restrictions().clone();
    let shown_to = restrictions.clone();
    edit::apply(
        &editor,
        quotas,
        edit,
        move |document| {
            let rule = document.rule(&old);
            authorize::rule(rule, &old, &restrictions)?;
            match rule {
                Some(rule) => Ok(Some(rule.version())),
                None => Err(edit::nothing_to_patch("rule", &old)),
            }
        },
        move |document| match document.with_patched_rule(&new, &text) {
            Some(edited) => Ok(edited?.into()),
            None => Err(edit::nothing_to_patch("rule", &new)),
        },
        |edit| saved(edit, &name, &shown_to),
    )
    .await
}

fn saved(edit: &Edit, name: &str, restrictions: &Restrictions) -> Response<Body> {
    match edit.after.rule(name) {
        Some(rule) => {
            let body = WithWarnings::new(rule, edit, restrictions);
            edit::saved(edit.before.rule(name), &rule.version(), body)
        }
        None => edit::deleted(edit, restrictions),
    }
}

/// Delete a rule
///
/// The example works after that of `put_rule`. With `dry_run=true` nothing changes, and the
/// response describes the change.
#[utoipa::path(
    delete,
    path = paths::RULE,
    tag = "document",
    params(
        ("name" = RuleName, Path, description = "The name, percent-encoded; a slash may stay as it is", example = "per-tenant"),
        ("dry_run" = inline(Option<bool>), Query, nullable = false, description = "Only describe the change"),
        ("If-Match" = inline(Option<String>), Header, nullable = false, description = "Fail with 412 unless the current version has this `ETag`")
    ),
    responses(
        (
            status = OK,
            description = "The rule is deleted, and the document has warnings; or the effect of the change",
            body = inline(DeletedOrDryRun)
        ),
        (status = NO_CONTENT, description = "The rule is deleted"),
        DeletionErrors
    )
)]
async fn delete_rule(
    State(editor): State<Arc<DocumentEditor>>,
    State(quotas): State<Arc<Quotas>>,
    PathParam(name): PathParam,
    edit: EditRequest,
) -> Result<Response<Body>, ApiError> {
    let old = name.clone();
    let restrictions = edit.restrictions().clone();
    let shown_to = restrictions.clone();
    edit::apply(
        &editor,
        quotas,
        edit,
        move |document| {
            let rule = document.rule(&old);
            authorize::rule(rule, &old, &restrictions)?;
            match rule {
                Some(rule) => Ok(Some(rule.version())),
                None => Err(edit::not_found("rule", &old)),
            }
        },
        move |document| match document.without_rule(&name) {
            Some(edited) => Ok(edited?.into()),
            None => Err(edit::not_found("rule", &name)),
        },
        |edit| edit::deleted(edit, &shown_to),
    )
    .await
}
