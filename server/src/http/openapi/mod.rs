//! Parts of the OpenAPI document that all operations share. Handlers document themselves; security
//! requirements and the errors of `guard` come from `policy`.

pub(super) mod pages;
pub(super) mod responses;
pub(super) mod schemas;

use axum::http::Method;
use doorman_openapi::{Problem, ProblemType};
use utoipa::{
    IntoResponses, OpenApi as _,
    openapi::{
        OpenApi, RefOr,
        path::Operation,
        security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
        tag::TagBuilder,
    },
};

use super::policy::{self, Access, RequestCost};

const BEARER: &str = "bearer";

const TAGS: [(&str, &str); 6] = [
    ("leases", "Leases of clients"),
    ("server tree", "Leases of nodes, for their clients"),
    (
        "document",
        "Templates and rules: how much capacity each resource has, and which requests use it",
    ),
    ("rules", "The rules that a service follows"),
    ("views", "The state of the server, for operators"),
    ("probes", "Liveness, readiness and metrics"),
];

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Doorman",
        license(name = "Apache-2.0 OR MIT", identifier = "Apache-2.0 OR MIT")
    ),
    components(schemas(Problem))
)]
struct Base;

/// The document without operations.
pub(super) fn base() -> OpenApi {
    let mut document = Base::openapi();
    document.info.version = env!("CARGO_PKG_VERSION").to_owned();
    document.info.description = Some(description());
    let tag = |(name, description)| {
        TagBuilder::new()
            .name(name)
            .description(Some(description))
            .build()
    };
    document.tags = Some(TAGS.map(tag).to_vec());
    let components = document.components.get_or_insert_default();
    for (name, response) in responses::components() {
        components.responses.insert(name, RefOr::T(response));
    }
    let scheme = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .bearer_format("JWT")
        .description(Some(
            "A token of a trusted issuer; not needed if the server has no issuers",
        ))
        .build();
    components.add_security_scheme(BEARER, SecurityScheme::Http(scheme));
    document
}

/// Adds the security requirements and errors of the policy to each operation.
pub(super) fn with_policies(mut document: OpenApi) -> OpenApi {
    for (path, item) in &mut document.paths.paths {
        let operations = [
            (Method::GET, &mut item.get),
            (Method::POST, &mut item.post),
            (Method::PUT, &mut item.put),
            (Method::PATCH, &mut item.patch),
            (Method::DELETE, &mut item.delete),
        ];
        for (method, operation) in operations {
            let Some(operation) = operation else { continue };
            let Some(policy) = policy::of(&method, path) else {
                continue;
            };
            secure(operation, policy.access);
            if policy.cost != RequestCost::Free {
                let errors = responses::GuardErrors::responses();
                operation.responses.responses.extend(errors);
            }
        }
    }
    document
}

fn secure(operation: &mut Operation, access: Access) {
    let requirement =
        |scope: &doorman_openapi::Scope| SecurityRequirement::new(BEARER, [scope.name()]);
    let scopes = access.scopes();
    if scopes.is_some() {
        let errors = responses::AuthErrors::responses();
        operation.responses.responses.extend(errors);
    }
    let requirements = scopes.unwrap_or_default().iter().map(requirement);
    operation.security = Some(requirements.collect());
}

fn description() -> String {
    let mut text = "Doorman divides a limited capacity among many processes by leases, so that together \
        they stay within it. A holder uses its lease without further requests, and renews it before it \
        expires.\n\n\
        Numbers are finite; durations are in seconds and may be fractional. Unknown fields are ignored in \
        lease calls and rejected in documents. An invalid request has no effect at all.\n\n\
        Connections: the head of a request has at most 64 KiB and must arrive within 5 s. An idle \
        connection is closed after 75 s. When all connections are taken (10,000 unless configured \
        otherwise), the server closes those that have been idle longest. If too few are idle, it closes \
        those on which a body has been arriving, or a response has been unread, for more than 2 s, unless \
        another complete request is being processed on them. What is not HTTP gets a bare 400, a head \
        that is too large a bare 431.\n\n\
        Requests: a body has at most 4 MiB and must arrive within 10 s. All bodies that are still arriving \
        share 32 MiB; if that is full, the response is 503 with `Retry-After`. A body that arrives in one \
        piece, as small ones do, needs none of it.\n\n\
        Responses: a response must be read within 10 s, or the connection is closed. All unread responses \
        share 32 MiB; if that is full, the response is 503 with `Retry-After`, although the request may \
        have taken effect. A response of at most 4 KiB is always sent.\n\n\
        Rate limit: each caller has 400,000 decisions per second unless configured otherwise. A request \
        costs 8 and each of its resources 1. Beyond that the response is 429 with `Retry-After`. Renewals \
        may use twice the burst of new leases; a request is a renewal if the server knows a lease of the \
        holder on each of its resources. Requests of operators have a quota of their own, `/livez` and \
        `/readyz` no limit.\n\n\
        Every response has `X-Request-Id`: that of the request if it is visible ASCII of at most 128 \
        bytes, else a generated one. The server's log has it, and the trace of a `traceparent`.\n\n\
        Every error is `application/problem+json` (RFC 9457). Its `type` is one of:\n\n\
        | type | status | |\n|---|---|---|\n"
        .to_owned();
    for kind in ProblemType::ALL {
        let (name, status, title) = (kind.name(), kind.status(), kind.title());
        text += &format!("| `{name}` | {status} | {title} |\n");
    }
    text
}
