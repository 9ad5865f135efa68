//! One rule of the document, for operators. Services are told theirs by `rules`.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, Response},
};
use doorman_openapi::{DryRun, Rule, RuleName, paths};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    changing::{self, Asked, EntryName, PutRequest},
    conditional::Versioned,
    extract::NoQuery,
    failures::{NotFound, OfAChange, OfADeletion, OfARead},
    permit,
    refusal::Refusal,
    shapes::{PutRule, RuleOrDryRun},
};
use crate::{
    auth::Caller,
    document::{ActiveDocument, DocumentEditor},
    http::state::AppState,
    quota::Quotas,
};

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(get_rule, put_rule, delete_rule))
}

/// Look at a rule
///
/// The example answers after that of `put_rule` has been sent.
#[utoipa::path(
    get,
    path = paths::RULE,
    tag = "document",
    params(
        ("name" = RuleName, Path, description = "Its name, percent-encoded", example = "per-tenant"),
        ("If-None-Match" = inline(Option<String>), Header, nullable = false, description = "The `ETag` of an earlier answer"),
        ("If-Match" = inline(Option<String>), Header, nullable = false, description = "Only if it is this one")
    ),
    responses(
        (
            status = OK,
            description = "The rule",
            body = Rule,
            headers(
                ("ETag" = String, description = "The version of the rule, in quotes; strong"),
                ("Cache-Control" = String, description = "`no-cache`: to be asked for again each time")
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
        (status = NOT_MODIFIED, description = "The rule is that of the `ETag` sent"),
        OfARead,
        NotFound
    )
)]
async fn get_rule(
    State(active): State<Arc<ActiveDocument>>,
    caller: Caller,
    EntryName(name): EntryName,
    NoQuery: NoQuery,
    headers: HeaderMap,
) -> Result<Response<Body>, Refusal> {
    let document = active.get();
    permit::rule(document.rule(&name), &name, caller.restrictions())?;
    let Some(rule) = document.rule(&name) else {
        return Err(changing::not_there("rule", &name));
    };
    let version = rule.version();
    changing::check_read(&headers, &version)?;
    let versioned = Versioned {
        version: &version,
        answer: || rule,
    };
    Ok(versioned.answer_to(&headers))
}

/// Put a rule
///
/// In the place of the one with this name; a new one stands behind all others. `name` may be left out, as the path has it. Services follow
/// it when they next ask, within some ten seconds. With `dry_run=true` nothing is changed, and the answer says what would.
#[utoipa::path(
    put,
    path = paths::RULE,
    tag = "document",
    params(
        ("name" = RuleName, Path, description = "Its name, percent-encoded", example = "per-tenant"),
        ("dry_run" = inline(Option<bool>), Query, nullable = false, description = "Only say what would change"),
        ("If-Match" = inline(Option<String>), Header, nullable = false, description = "Only if the rule is still the one of this `ETag`; `*`: only if there is one"),
        ("If-None-Match" = inline(Option<String>), Header, nullable = false, description = "`*`: only if there is none yet")
    ),
    request_body(
        content = inline(PutRule),
        examples(
            ("tenant" = (
                summary = "Each tenant by itself, over all instances of a service",
                value = json!({"service": "orders*", "resource": "tenant/{jwt:sub}"})
            ))
        )
    ),
    responses(
        (
            status = OK,
            description = "The rule that is there now in the place of another, or what would change",
            body = inline(RuleOrDryRun),
            headers(("ETag" = String, description = "The version of the rule, in quotes; strong"))
        ),
        (
            status = CREATED,
            description = "The new rule",
            body = Rule,
            headers(("ETag" = String, description = "The version of the rule, in quotes; strong")),
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
        OfAChange
    )
)]
async fn put_rule(
    State(editor): State<Arc<DocumentEditor>>,
    State(limits): State<Arc<Quotas>>,
    EntryName(name): EntryName,
    PutRequest { asked, text }: PutRequest,
) -> Result<Response<Body>, Refusal> {
    let (known, put) = (name.clone(), name.clone());
    let restrictions = asked.restrictions().clone();
    changing::change(
        &editor,
        limits,
        asked,
        move |document| {
            let rule = document.rule(&known);
            if rule.is_some() {
                permit::rule(rule, &known, &restrictions)?;
            }
            Ok(rule.map(doorman_config::Rule::version))
        },
        move |document| Ok(document.with_rule(&put, &text)?),
        |made| {
            let before = changing::before(made.before.rule(&name));
            match made.after.rule(&name) {
                Some(rule) => changing::shown(before, &rule.version(), rule),
                None => changing::gone(made),
            }
        },
    )
    .await
}

/// Delete a rule
///
/// The example works after that of `put_rule` has been sent. With `dry_run=true` nothing is changed, and the answer says what would.
#[utoipa::path(
    delete,
    path = paths::RULE,
    tag = "document",
    params(
        ("name" = RuleName, Path, description = "Its name, percent-encoded", example = "per-tenant"),
        ("dry_run" = inline(Option<bool>), Query, nullable = false, description = "Only say what would change"),
        ("If-Match" = inline(Option<String>), Header, nullable = false, description = "Only if the rule is still the one of this `ETag`")
    ),
    responses(
        (status = OK, description = "What would change", body = DryRun),
        (status = NO_CONTENT, description = "It is gone"),
        OfADeletion
    )
)]
async fn delete_rule(
    State(editor): State<Arc<DocumentEditor>>,
    State(limits): State<Arc<Quotas>>,
    EntryName(name): EntryName,
    asked: Asked,
) -> Result<Response<Body>, Refusal> {
    let known = name.clone();
    let restrictions = asked.restrictions().clone();
    changing::change(
        &editor,
        limits,
        asked,
        move |document| {
            let rule = document.rule(&known);
            permit::rule(rule, &known, &restrictions)?;
            match rule {
                Some(rule) => Ok(Some(rule.version())),
                None => Err(changing::not_there("rule", &known)),
            }
        },
        move |document| match document.without_rule(&name) {
            Some(edited) => Ok(edited?),
            None => Err(changing::not_there("rule", &name)),
        },
        changing::gone,
    )
    .await
}
