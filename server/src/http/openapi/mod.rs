//! The OpenAPI document. Handlers document themselves by attributes; `complete` adds what follows
//! from the kind of an operation, and this module what follows from its policy.

#![expect(
    clippy::indexing_slicing,
    reason = "a document is a JSON object: indexing it adds an absent member"
)]

pub(super) mod complete;
pub(super) mod pages;
pub(super) mod problems;

use axum::http::Method;
use doorman_openapi::{Deleted, DryRun, Problem, ProblemType, paths};
use serde_json::{Value, json};
use utoipa::openapi::OpenApi;

use super::policy::{self, RequestCost};

const BEARER: &str = "bearer";

/// The document without operations.
#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Doorman",
        // Short, so that the documentation page begins with the calls.
        description = "Leases of limited capacity: a holder uses its lease without further \
            requests, and renews it before it expires. Errors are `application/problem+json` with \
            one of the types of the schema `ProblemType`; `docs/CONTROL_PLANE.md` has the limits \
            of requests, responses and connections.",
        license(name = "Apache-2.0 OR MIT", identifier = "Apache-2.0 OR MIT")
    ),
    tags(
        (name = "leases", description = "Leases of clients"),
        (name = "server tree", description = "Leases of nodes, for their clients"),
        (name = "document", description = "Templates and rules: how much capacity each resource has, and which requests use it"),
        (name = "rules", description = "The rules that a service follows"),
        (name = "views", description = "The state of the server, for operators"),
        (name = "probes", description = "Liveness, readiness and metrics")
    ),
    components(schemas(Problem, Deleted, DryRun))
)]
pub(super) struct Base;

/// The document with what follows from its operations.
pub(super) fn complete(document: &OpenApi) -> Value {
    let mut document = complete::complete(document, describe);
    document["components"]["securitySchemes"][BEARER] = json!({
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "A token of a trusted issuer; not needed if the server has no issuers"
    });
    document
}

/// Adds the security requirements of an operation, and the problems that it may have.
fn describe(method: &Method, path: &str, operation: &mut Value) {
    use ProblemType::{
        Conflict, Forbidden, InsufficientStorage, InternalError, MalformedRequest, Misdirected,
        NotFound, NotMaster, TooManyRequests, Unauthorized, Unavailable,
    };

    let Some(policy) = policy::of(method, path) else {
        return;
    };
    let scopes = policy.access.scopes().unwrap_or_default().iter();
    operation["security"] = scopes.map(|it| json!({BEARER: [it.name()]})).collect();
    let is_change = complete::is_change(method);
    let reads_document = *method == Method::GET && path == paths::TEMPLATES;
    let names_entity = path.contains('{') && *method != Method::PUT;
    let is_probe = [paths::LIVEZ, paths::READYZ, paths::METRICS].contains(&path);
    let is_constant = path == paths::OPENAPI;
    let problems: [(bool, &[ProblemType]); 8] = [
        (policy.access.scopes().is_some(), &[Unauthorized, Forbidden]),
        (
            policy.cost != RequestCost::Free,
            &[Misdirected, TooManyRequests],
        ),
        (policy.needs_master, &[NotMaster]),
        (!is_constant, &[InternalError, Unavailable]),
        (!is_constant && !is_probe, &[MalformedRequest]),
        (operation.get("requestBody").is_some(), &problems::OF_BODIES),
        (is_change, &[Conflict, InsufficientStorage]),
        // A node below the root has no document.
        (names_entity || reads_document, &[NotFound]),
    ];
    for (_, problems) in problems.iter().filter(|(applies, _)| *applies) {
        problems::add(operation, problems);
    }
}
