//! `/v1/rules`: the rules that a service follows, and individual rules for operators.
//!
//! Every layer polls its rules every few seconds, so the list has an `ETag` per service, which only
//! changes with rules of that service. The ledger is not locked.

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, Response, Uri},
};
use doorman_config as config;
use doorman_openapi::{Rule, RuleName, RulesResponse, paths};

use super::{
    edit::{EditBody, EditRequest},
    entity::{self, Change, Entity, ReadRequest},
};
use crate::{
    auth::Caller,
    http::{
        authorize,
        error::ApiError,
        extract::{PathParam, query},
        openapi::complete::NotModified,
        response::conditional,
        state::AppState,
    },
};

const MAX_SERVICE_BYTES: usize = 256;

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
    params(
        ("service" = inline(Option<String>), Query, min_length = 1, max_length = 256, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$", description = "The name of the service: 1 to 256 bytes of UTF-8 without control characters. Default: all services", example = "orders")
    ),
    responses(
        (status = OK, description = "The rules of the service, or all rules", body = RulesResponse),
        NotModified
    )
)]
pub(in crate::http) async fn list_rules(
    State(app): State<AppState>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response<Body>, ApiError> {
    let [service] = query::parse(&uri, ["service"])?;
    let service = service.as_deref();
    match service {
        None => authorize::all_services(&caller)?,
        Some(service) => {
            let is_name = (1..=MAX_SERVICE_BYTES).contains(&service.len());
            if !is_name || service.chars().any(char::is_control) {
                return Err(ApiError::malformed(
                    "query parameter `service` must be 1 to 256 bytes of UTF-8 without control \
                     characters",
                ));
            }
            authorize::service(service, caller.restrictions())?;
        }
    }
    let document = config::Rule::document(&app)?;
    let version = document.rules_version_for(service);
    Ok(conditional::json(&headers, &version, || {
        document.rules_for(service)
    }))
}

/// Read a rule
///
/// The example works after that of `put_rule`.
#[utoipa::path(
    get,
    path = paths::RULE,
    params(("name" = RuleName, Path, description = "The name, percent-encoded; a slash may stay as it is", example = "per-tenant")),
    responses((status = OK, description = "The rule", body = Rule), NotModified)
)]
pub(in crate::http) async fn get_rule(
    PathParam(name): PathParam,
    request: ReadRequest,
) -> Result<Response<Body>, ApiError> {
    request.entity::<config::Rule>(&name).await
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
    params(("name" = RuleName, Path, description = "The name, percent-encoded; a slash may stay as it is", example = "per-tenant")),
    request_body = Rule,
    responses(
        (status = OK, description = "The replaced rule, or the effect of the change"),
        (status = CREATED, description = "The new rule")
    )
)]
pub(in crate::http) async fn put_rule(
    PathParam(name): PathParam,
    EditBody { edit, text }: EditBody,
) -> Result<Response<Body>, ApiError> {
    entity::change::<config::Rule>(edit, name, Change::Put(text)).await
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
    params(("name" = RuleName, Path, description = "The name, percent-encoded; a slash may stay as it is", example = "per-tenant")),
    request_body = Rule,
    responses((status = OK, description = "The changed rule, or the effect of the change"))
)]
pub(in crate::http) async fn patch_rule(
    PathParam(name): PathParam,
    EditBody { edit, text }: EditBody,
) -> Result<Response<Body>, ApiError> {
    entity::change::<config::Rule>(edit, name, Change::Patch(text)).await
}

/// Delete a rule
///
/// The example works after that of `put_rule`. With `dry_run=true` nothing changes, and the
/// response describes the change.
#[utoipa::path(
    delete,
    path = paths::RULE,
    params(("name" = RuleName, Path, description = "The name, percent-encoded; a slash may stay as it is", example = "per-tenant")),
    responses(
        (status = OK, description = "The rule is deleted, and the document has warnings; or the effect of the change"),
        (status = NO_CONTENT, description = "The rule is deleted")
    )
)]
pub(in crate::http) async fn delete_rule(
    PathParam(name): PathParam,
    edit: EditRequest,
) -> Result<Response<Body>, ApiError> {
    entity::change::<config::Rule>(edit, name, Change::Delete).await
}
