//! The rules that services follow.
//!
//! Their layers ask every few seconds, so the answer has a version by which nearly all of them are told that nothing has changed. It is
//! per service: an edit that is for others changes nothing here. The books are not touched.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, Response, Uri},
};
use doorman_openapi::{RulesResponse, paths};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    conditional::Versioned,
    failures::{OfAQuery, Unavailable},
    permit,
    query::{self, Query},
    refusal::Refusal,
};
use crate::{auth::Caller, document::ActiveDocument, http::state::AppState};

/// The most bytes that the name of a service may have.
const MAX_SERVICE_BYTES: usize = 256;

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list_rules))
}

/// List the rules for a service
///
/// In the order of the document, in which they apply. Every rule that matches a request applies, all or nothing; a rule that exempts
/// spares what it matches the rules behind it. Who sends the `ETag` of an earlier answer back as `If-None-Match` is answered 304,
/// without a body, as long as nothing has changed for this service.
#[utoipa::path(
    get,
    path = paths::RULES,
    tag = "rules",
    params(
        ("service" = inline(String), Query, min_length = 1, max_length = 256, pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$", description = "The name that the service gives itself: 1 to 256 bytes of UTF-8 without control characters", example = "orders"),
        ("If-None-Match" = inline(Option<String>), Header, nullable = false, description = "The `ETag` of an earlier answer")
    ),
    responses(
        (
            status = OK,
            description = "The rules for the service",
            body = RulesResponse,
            headers(
                ("ETag" = String, description = "The version of these rules, in quotes; strong"),
                ("Cache-Control" = String, description = "`no-cache`: to be asked for again each time")
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
        (status = NOT_MODIFIED, description = "The rules are those of the `ETag` sent"),
        OfAQuery,
        Unavailable
    )
)]
async fn list_rules(
    State(active): State<Arc<ActiveDocument>>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response<Body>, Refusal> {
    let [service] = Query::read(&uri, ["service"])?.into_values();
    let service = service.ok_or_else(|| query::bad("`service` is missing in the query"))?;
    let is_name = (1..=MAX_SERVICE_BYTES).contains(&service.len());
    if !is_name || service.chars().any(char::is_control) {
        return Err(query::bad(
            "`service` in the query must be 1 to 256 bytes of UTF-8 without control characters",
        ));
    }
    permit::service(&service, caller.restrictions())?;
    let document = active.get();
    let versioned = Versioned {
        version: &document.rules_version_for(&service),
        answer: || document.rules_for(&service),
    };
    Ok(versioned.answer_to(&headers))
}
