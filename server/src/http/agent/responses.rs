//! Responses to refused requests in the OpenAPI document.

use std::collections::BTreeMap;

use doorman_openapi::Problem;
use serde_json::json;
use utoipa::{
    IntoResponses,
    openapi::{
        ArrayBuilder, ContentBuilder, HeaderBuilder, ObjectBuilder, RefOr, Response,
        ResponseBuilder, Type,
    },
};

use crate::http::openapi::responses::AgentErrors;

type Responses = BTreeMap<String, RefOr<Response>>;

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
        let malformed = described(
            "The proxy does not describe the request, its path has two readings, or it has no \
             key for a rule",
        );
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
    let policies = ArrayBuilder::new().items(text());
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
