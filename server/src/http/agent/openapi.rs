//! The OpenAPI document of the agent, apart from that of the control plane: each describes the
//! routes of the process that serves it.

use std::collections::BTreeMap;

use axum::{
    body::Body,
    http::{HeaderValue, Response, header},
};
use doorman_openapi::{AGENT_OPENAPI_JSON, Problem, paths};
use serde_json::json;
use utoipa::{
    IntoResponses, OpenApi as _,
    openapi::{
        self as spec, ContentBuilder, HeaderBuilder, ObjectBuilder, OpenApi, RefOr,
        ResponseBuilder, Type,
    },
};

use super::{check, forward_auth, metrics, probes};
use crate::http::{
    openapi::responses::{self, AgentErrors},
    response::buffer::StaticBody,
};

const DESCRIPTION: &str = "The agent enforces the limits of a fleet for processes in any language \
    on the same machine: `docs/AGENT.md`. It has no authentication, and listens on loopback or a \
    Unix socket.";

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Doorman agent",
        license(name = "Apache-2.0 OR MIT", identifier = "Apache-2.0 OR MIT")
    ),
    paths(
        check::check_resources,
        check::release_permits,
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
pub(crate) fn agent_document() -> OpenApi {
    let mut document = AgentDocument::openapi();
    document.info.version = env!("CARGO_PKG_VERSION").to_owned();
    document.info.description = Some(DESCRIPTION.to_owned());
    let components = document.components.get_or_insert_default();
    for (name, response) in responses::components() {
        components.responses.insert(name, RefOr::T(response));
    }
    document
}

/// Read this document
///
/// The OpenAPI 3.1 document of the agent.
#[utoipa::path(
    get,
    path = paths::OPENAPI,
    tag = "views",
    responses(
        (status = OK, description = "The document", body = serde_json::Value, content_type = "application/json")
    )
)]
pub(super) async fn get_agent_openapi() -> Response<Body> {
    let mut response = Response::new(Body::from(AGENT_OPENAPI_JSON));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response.extensions_mut().insert(StaticBody);
    response
}

type Responses = BTreeMap<String, RefOr<spec::Response>>;

/// Of a check: a refusal, or an error.
pub(super) struct CheckErrors;

impl IntoResponses for CheckErrors {
    fn responses() -> Responses {
        let mut all = AgentErrors::responses();
        all.extend(refusals());
        all
    }
}

/// Of a forwarded request: a refusal as that of a layer, or an error.
pub(super) struct ForwardErrors;

impl IntoResponses for ForwardErrors {
    fn responses() -> Responses {
        let mut all = refusals();
        let described = |text: &str| RefOr::T(refusal(text).build());
        let malformed =
            described("The proxy does not describe the request, or it has no key for a rule");
        all.insert("400".to_owned(), malformed);
        let unauthorized = described("The request has no valid token for a rule");
        all.insert("401".to_owned(), unauthorized);
        all
    }
}

fn refusals() -> Responses {
    let exceeded = refusal("A limit is exceeded; `violated-policies` names it");
    let no_lease = refusal(
        "There is no lease, because the control plane does not answer or learns; or too many \
         permits are held",
    );
    let with_retry = |response: ResponseBuilder| {
        let seconds = ObjectBuilder::new()
            .schema_type(Type::Integer)
            .minimum(Some(1));
        let header = HeaderBuilder::new()
            .description(Some("Seconds to wait before a retry"))
            .schema(Some(seconds));
        RefOr::T(response.header("Retry-After", header.build()).build())
    };
    [("429", exceeded), ("503", no_lease)]
        .map(|(status, response)| (status.to_owned(), with_retry(response)))
        .into()
}

/// A problem with a registered type.
fn refusal(description: &str) -> ResponseBuilder {
    let text = || ObjectBuilder::new().schema_type(Type::String);
    let policies = spec::ArrayBuilder::new().items(text());
    let problem = ObjectBuilder::new()
        .property("type", text())
        .property("title", text())
        .property("status", ObjectBuilder::new().schema_type(Type::Integer))
        .property("detail", text())
        .property("violated-policies", policies)
        .property("reason", text());
    let content = ContentBuilder::new()
        .schema(Some(problem))
        .example(Some(json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Request cannot be satisfied as assigned quota has been exceeded",
            "status": 429,
            "detail": "limit `api` exceeded; retry in 1 s",
            "violated-policies": ["api"],
            "reason": "spent"
        })))
        .build();
    ResponseBuilder::new()
        .description(description)
        .content(Problem::MEDIA_TYPE, content)
}
