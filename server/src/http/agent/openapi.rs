//! The OpenAPI document of the agent, apart from that of the control plane: each describes the
//! routes of the process that serves it.

#![expect(
    clippy::indexing_slicing,
    reason = "a document is a JSON object: indexing it adds an absent member"
)]

use std::sync::LazyLock;

use axum::{
    body::Body,
    http::{HeaderMap, Method, Response},
};
use doorman_openapi::{AGENT_OPENAPI_JSON, Problem, ProblemType, paths};
use serde_json::{Value, json};
use utoipa::OpenApi as _;

use super::{
    check::{self, UNKNOWN_PERMIT},
    forward_auth, metrics, probes,
};
use crate::http::{
    allowed_hosts::CROSS_ORIGIN,
    openapi::{
        complete::{NotModified, complete},
        pages::StaticText,
        problems,
    },
};

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Doorman agent",
        description = "The agent enforces the limits of a fleet for processes in any language on the same machine: `docs/AGENT.md`. It has no authentication, and listens on loopback or a Unix socket.",
        license(name = "Apache-2.0 OR MIT", identifier = "Apache-2.0 OR MIT")
    ),
    paths(
        check::check_resources,
        check::renew_permit,
        check::release_permits,
        check::report_outcomes,
        forward_auth::forward_auth,
        probes::check_agent_livez,
        probes::check_agent_readyz,
        metrics::get_agent_metrics,
        get_agent_openapi,
    ),
    components(schemas(Problem)),
    tags(
        (name = "agent", description = "Decisions for processes and proxies on this machine"),
        (name = "probes", description = "Liveness, readiness and metrics"),
        (name = "views", description = "This document")
    )
)]
struct AgentDocument;

/// The OpenAPI document of the agent, as it is committed.
pub(crate) fn agent_document() -> Value {
    let mut document = complete(&AgentDocument::openapi(), describe);
    let responses = &mut document["components"]["responses"];
    for (name, detail) in [("NotFound", UNKNOWN_PERMIT), ("Forbidden", CROSS_ORIGIN)] {
        responses[name]["content"][Problem::MEDIA_TYPE]["example"]["detail"] = detail.into();
    }
    document
}

/// Adds the refusals and problems that an operation may have.
fn describe(_: &Method, path: &str, operation: &mut Value) {
    use ProblemType::{
        Forbidden, InternalError, MalformedRequest, Misdirected, NotFound, Unavailable,
    };

    if [paths::CHECK, paths::FORWARD_AUTH].contains(&path) {
        let responses = &mut operation["responses"];
        responses["429"] = refusal("A limit is exceeded; `violated-policies` names it");
        responses["503"] = refusal(
            "There is no lease, because the control plane does not answer or learns; or too many \
             permits are held",
        );
        for status in ["429", "503"] {
            responses[status]["headers"]["Retry-After"] = problems::retry_after();
        }
    }
    match path {
        paths::FORWARD_AUTH => {
            let responses = &mut operation["responses"];
            responses["400"] = refusal(
                "The proxy does not describe the request, its path has two readings, or it has no \
                 key for a rule",
            );
            responses["401"] = refusal("The request has no valid token for a rule");
        }
        paths::OPENAPI => problems::add(operation, &[Misdirected]),
        paths::LIVEZ | paths::READYZ => problems::add(operation, &[InternalError, Unavailable]),
        paths::METRICS => problems::add(operation, &[Misdirected, InternalError, Unavailable]),
        _ => {
            problems::add(operation, &problems::OF_BODIES);
            let others = [
                MalformedRequest,
                Forbidden,
                Misdirected,
                InternalError,
                Unavailable,
            ];
            problems::add(operation, &others);
            if path == paths::CHECK_RENEW {
                problems::add(operation, &[NotFound]);
            }
        }
    }
}

/// A problem with a registered type, as a layer responds.
fn refusal(description: &str) -> Value {
    let text = json!({"type": "string"});
    json!({
        "description": description,
        "content": {Problem::MEDIA_TYPE: {
            "schema": {
                "type": "object",
                "properties": {
                    "type": text,
                    "title": text,
                    "status": {"type": "integer"},
                    "detail": text,
                    "violated-policies": {"type": "array", "items": text},
                    "reason": text
                }
            },
            "example": {
                "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
                "title": "Request cannot be satisfied as assigned quota has been exceeded",
                "status": 429,
                "detail": "limit `api` exceeded; retry in 1 s",
                "violated-policies": ["api"],
                "reason": "spent"
            }
        }}
    })
}

/// Read this document
///
/// The OpenAPI 3.1 document of the agent.
#[utoipa::path(
    get,
    path = paths::OPENAPI,
    responses((status = OK, description = "The document", body = Value), NotModified)
)]
pub(super) async fn get_agent_openapi(headers: HeaderMap) -> Response<Body> {
    static DOCUMENT: LazyLock<StaticText> = LazyLock::new(|| StaticText::new(AGENT_OPENAPI_JSON));

    DOCUMENT.respond(&headers)
}
