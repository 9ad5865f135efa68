//! The OpenAPI document of the agent, apart from that of the control plane: each describes the
//! routes of the process that serves it.

use axum::{
    body::Body,
    http::{HeaderValue, Response, header},
};
use doorman_openapi::{AGENT_OPENAPI_JSON, Problem, paths};
use utoipa::{
    OpenApi as _,
    openapi::{OpenApi, RefOr},
};

use super::{check, forward_auth, metrics, probes};
use crate::http::{openapi::responses, response::buffer::StaticBody};

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
