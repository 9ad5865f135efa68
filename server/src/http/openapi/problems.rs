//! Problems in an OpenAPI document: components that operations refer to.

use doorman_openapi::{Problem, ProblemType};
use serde_json::{Value, json};

use crate::http::error::{ApiError, RETRY_AFTER_SECONDS};

/// Of operations with a body.
pub(in crate::http) const OF_BODIES: [ProblemType; 4] = [
    ProblemType::RequestTimeout,
    ProblemType::PayloadTooLarge,
    ProblemType::UnsupportedMediaType,
    ProblemType::InvalidRequest,
];

/// Adds problems to the responses of an operation, unless it describes them itself.
pub(in crate::http) fn add(operation: &mut Value, problems: &[ProblemType]) {
    for problem in problems {
        let response = &mut operation["responses"][problem.status().to_string()];
        if response.is_null() {
            *response = json!({"$ref": format!("#/components/responses/{problem:?}")});
        }
    }
}

/// The schema of `ProblemType`.
pub(super) fn types() -> Value {
    let all = ProblemType::ALL.iter();
    let names: Vec<_> = all.clone().map(|kind| kind.name()).collect();
    let rows = all.map(|kind| {
        let (name, status, title) = (kind.name(), kind.status(), kind.title());
        format!("| `{name}` | {status} | {title} |\n")
    });
    let rows: String = rows.collect();
    json!({
        "type": "string",
        "description": format!("The problem types.\n\n| type | status | |\n|---|---|---|\n{rows}"),
        "enum": names
    })
}

pub(super) fn components() -> Value {
    let all = ProblemType::ALL.iter();
    all.map(|kind| (format!("{kind:?}"), response(*kind)))
        .collect()
}

fn response(kind: ProblemType) -> Value {
    let mut response = json!({
        "description": format!("{}: `{}`", kind.title(), kind.name()),
        "content": {Problem::MEDIA_TYPE: {
            "schema": {"$ref": "#/components/schemas/Problem"},
            "example": example(kind)
        }}
    });
    let (name, description) = match kind {
        ProblemType::Unavailable | ProblemType::TooManyRequests => {
            response["headers"]["Retry-After"] = retry_after();
            return response;
        }
        ProblemType::NotMaster => ("Location", "The same path and query at the master"),
        ProblemType::PreconditionFailed => (
            "ETag",
            "The current version; absent if the entity does not exist",
        ),
        ProblemType::Unauthorized | ProblemType::Forbidden => (
            "WWW-Authenticate",
            "`Bearer` challenge: RFC 6750, section 3",
        ),
        ProblemType::UnsupportedMediaType => (
            "Accept-Patch",
            "The media types of a PATCH; absent otherwise",
        ),
        ProblemType::MethodNotAllowed => ("Allow", "The methods of the path"),
        _ => return response,
    };
    response["headers"][name] = header(description);
    response
}

pub(in crate::http) fn retry_after() -> Value {
    json!({
        "schema": {"type": "integer", "minimum": 1, "examples": [RETRY_AFTER_SECONDS]},
        "description": "Seconds to wait before a retry"
    })
}

fn example(kind: ProblemType) -> Problem {
    let detail = match kind {
        ProblemType::NotMaster => {
            let master = "http://doorman-1.example:7300";
            return ApiError::not_master(Some(master), "/v1/capacity").into_problem();
        }
        ProblemType::MalformedRequest => {
            "invalid JSON: EOF while parsing a value at line 1 column 15"
        }
        ProblemType::Unauthorized => "token expired",
        ProblemType::Forbidden => "missing scope: status:read",
        ProblemType::NotFound => "resource `db` is not live",
        ProblemType::MethodNotAllowed => "POST is not allowed on /metrics; see `allow`",
        ProblemType::RequestTimeout => "body must arrive within 10 s",
        ProblemType::Conflict => {
            "the change makes the rest of the document invalid: resources[0] \"db\": algorithm: is missing"
        }
        ProblemType::PreconditionFailed => "`if-match` failed: the entity has changed",
        ProblemType::InsufficientStorage => "nothing was changed: the disk is full",
        ProblemType::PayloadTooLarge => "body must be at most 4194304 bytes",
        ProblemType::UnsupportedMediaType => "missing `content-type`: must be application/json",
        ProblemType::InvalidRequest => {
            let detail = "must be a number from 0 to 1e15";
            return ApiError::invalid_field("/resources/0/wants", detail).into_problem();
        }
        ProblemType::Misdirected => "unknown host `shop.example`",
        ProblemType::TooManyRequests => "caller rate limit exceeded",
        ProblemType::Unavailable => "the server is shutting down",
        _ => "internal error; see the server log",
    };
    Problem::new(kind, detail)
}

/// The description of a response header.
pub(super) fn header(description: &str) -> Value {
    json!({"schema": {"type": "string"}, "description": description})
}
