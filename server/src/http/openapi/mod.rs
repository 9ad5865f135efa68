//! Parts of the OpenAPI document that all operations share. Handlers document themselves; security
//! requirements and the errors of `guard` come from `policy`.

pub(super) mod pages;
pub(super) mod responses;
pub(super) mod schemas;

use axum::http::Method;
use doorman_openapi::Problem;
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

/// Short, so that the documentation page begins with the calls.
const DESCRIPTION: &str = "Leases of limited capacity: a holder uses its lease without further \
    requests, and renews it before it expires. Errors are `application/problem+json` with one of \
    the types of the schema `ProblemType`; `docs/CONTROL_PLANE.md` has the limits of requests, \
    responses and connections.";

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
    document.info.description = Some(DESCRIPTION.to_owned());
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
