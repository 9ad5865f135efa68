//! What all operations of the OpenAPI document share.

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

use super::{
    access::{Access, access},
    failures,
    toll::{self, Toll},
};

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Doorman",
        license(name = "Apache-2.0 OR MIT", identifier = "Apache-2.0 OR MIT")
    ),
    components(schemas(Problem))
)]
struct Base;

/// The document before any operation.
pub(super) fn base() -> OpenApi {
    let mut document = Base::openapi();
    document.info.version = env!("CARGO_PKG_VERSION").to_owned();
    document.info.description = Some(description());
    document.tags = Some(
        [
            ("leases", "Clients lease capacity, and give it back"),
            ("server tree", "Nodes lease on behalf of their clients"),
            ("document", "How much there is of what, and which requests spend it; for operators to look at, and to change"),
            ("rules", "Services learn what limits they wear"),
            ("views", "What operators look at"),
            ("probes", "Whether the server lives and takes requests"),
        ]
        .map(|(name, description)| {
            TagBuilder::new()
                .name(name)
                .description(Some(description))
                .build()
        })
        .to_vec(),
    );
    let components = document.components.get_or_insert_default();
    for (name, response) in failures::responses() {
        components.responses.insert(name, RefOr::T(response));
    }
    document
}

/// The document with who may call what, as the door holds to it.
pub(super) fn secured(mut document: OpenApi) -> OpenApi {
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
            if let Some(access) = access(&method, path) {
                secure(operation, access);
            }
            if toll::of(&method, Some(path)) != Toll::Free {
                let refused = failures::OfAGuarded::responses();
                operation.responses.responses.extend(refused);
            }
        }
    }
    let components = document.components.get_or_insert_default();
    let scheme = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .bearer_format("JWT")
        .description(Some(
            "A token of an issuer that the server trusts; not asked for where the server was not told of any",
        ))
        .build();
    components.add_security_scheme(BEARER, SecurityScheme::Http(scheme));
    document
}

/// The same document, in which no call needs a token, nor is refused for want of one.
pub(super) fn without_tokens(mut document: OpenApi) -> OpenApi {
    let unauthorized = ProblemType::Unauthorized.status().to_string();
    for item in document.paths.paths.values_mut() {
        let operations = [
            &mut item.get,
            &mut item.post,
            &mut item.put,
            &mut item.patch,
            &mut item.delete,
        ];
        for operation in operations.into_iter().flatten() {
            operation.security = None;
            operation.responses.responses.remove(&unauthorized);
        }
    }
    if let Some(components) = &mut document.components {
        components.security_schemes.clear();
    }
    document
}

const BEARER: &str = "bearer";

fn secure(operation: &mut Operation, access: Access) {
    let any_of = match access {
        Access::Open => return operation.security = Some(Vec::new()),
        Access::AnyOf(scopes) => scopes,
    };
    let needs = any_of.iter();
    let needs = needs.map(|scope| SecurityRequirement::new(BEARER, [scope.name()]));
    operation.security = Some(needs.collect());
    let responses = &mut operation.responses.responses;
    responses.extend(failures::OfACaller::responses());
}

fn description() -> String {
    let mut text = "Doorman leases parts of something with limited capacity to many processes, so that together they stay within it. \
        A holder spends its lease without asking, and renews it before it ends.\n\n\
        Numbers are finite; durations are seconds and may be fractional. Unknown fields are ignored in lease calls, and refused in \
        documents. A malformed request is refused whole: nothing of it takes effect.\n\n\
        The head of a request has at most 64 KiB and arrives within 5 s, and a connection stays open for 75 s between requests; \
        otherwise it is closed without an answer. When all connections are taken (10,000, unless the server was told otherwise), \
        those that have waited longest for their clients are closed, and when too few wait, also those on which a body has been arriving, \
        or an answer has not been taken, for more than 2 s; but none on which another request is under way that is whole. What is not HTTP is answered with a bare 400, and a head that is too large with a bare 431.\n\n\
        A body has at most 4 MiB and arrives within 10 s. Of all bodies that are still arriving the server keeps at most 32 MiB; one \
        that finds no room is refused with 503 and `Retry-After`. Bodies that arrive in one piece, as small ones do, always find room.\n\n\
        An answer is taken within 10 s, or its connection is closed. Of all answers that clients have yet to take the server keeps at most \
        32 MiB; a request whose answer finds no room is answered 503 with `Retry-After`, though what it asked for may be done. Answers \
        of at most 4 KiB always find room.\n\n\
        Who asks for more than the server does for one caller is refused with 429 and `Retry-After`: 400,000 decisions a second, unless the \
        server was told otherwise, of which a request counts as 8 and each of its resources as 1. Renewals go twice as deep as new leases: a \
        request for leases is one when the server knows a lease on every resource in it. Calls of operators have a budget of their own, and \
        `/livez` and `/readyz` none.\n\n\
        Every answer names its request in `X-Request-Id`: as the request does itself, if that is visible ASCII of at most 128 bytes, else by \
        a name of the server's own. The server's log has it, and the trace of a `traceparent`.\n\n\
        Every failure is `application/problem+json` (RFC 9457). What `type` may be:\n\n| type | status | |\n|---|---|---|\n"
        .to_owned();
    for kind in ProblemType::ALL {
        let (name, status, title) = (kind.name(), kind.status(), kind.title());
        text += &format!("| `{name}` | {status} | {title} |\n");
    }
    text
}
