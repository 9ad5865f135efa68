//! Error responses in the OpenAPI document, grouped by kind of operation.
//!
//! Operations refer to shared components, which [`components`] describes.

use std::collections::BTreeMap;

use doorman_openapi::{FieldError, Problem, ProblemType};
use utoipa::{
    IntoResponses,
    openapi::{
        ContentBuilder, HeaderBuilder, ObjectBuilder, Ref, RefOr, Response, ResponseBuilder, Type,
    },
};

use crate::http::error::{ApiError, RETRY_AFTER_SECONDS};

macro_rules! groups {
    ($($(#[$doc:meta])* $name:ident = [$($kind:ident),+];)+) => {$(
        $(#[$doc])*
        pub(in crate::http) struct $name;

        impl IntoResponses for $name {
            fn responses() -> BTreeMap<String, RefOr<Response>> {
                [$(ProblemType::$kind),+].into_iter().map(refer).collect()
            }
        }
    )+};
}

groups! {
    /// Of lease calls.
    LeaseErrors = [
        NotMaster, MalformedRequest, RequestTimeout, PayloadTooLarge, UnsupportedMediaType, InvalidRequest, InternalError, Unavailable
    ];
    /// Of operations that put something into the document.
    ChangeErrors = [
        MalformedRequest, RequestTimeout, Conflict, PreconditionFailed, PayloadTooLarge, UnsupportedMediaType, InvalidRequest,
        InternalError, Unavailable, InsufficientStorage
    ];
    /// Of operations that change fields of something in the document.
    PatchErrors = [
        MalformedRequest, NotFound, RequestTimeout, Conflict, PreconditionFailed, PayloadTooLarge, UnsupportedMediaType,
        InvalidRequest, InternalError, Unavailable, InsufficientStorage
    ];
    /// Of operations that delete something from the document.
    DeletionErrors = [
        MalformedRequest, NotFound, Conflict, PreconditionFailed, InternalError, Unavailable, InsufficientStorage
    ];
    /// Of operations that read something with a version.
    ReadErrors = [MalformedRequest, PreconditionFailed, InternalError];
    /// Of operations without a body.
    QueryErrors = [MalformedRequest, InternalError];
    /// Of operations of the agent with a body.
    AgentErrors = [
        MalformedRequest, Forbidden, RequestTimeout, PayloadTooLarge, UnsupportedMediaType, Misdirected,
        InvalidRequest, InternalError, Unavailable
    ];
    /// Of all operations but the probes.
    GuardErrors = [Misdirected, TooManyRequests];
    /// Of operations that need a token.
    AuthErrors = [Unauthorized, Forbidden];
    /// Of operations on one entity.
    NotFoundError = [NotFound];
    /// Of operations that may fail for a while.
    UnavailableError = [Unavailable, InternalError];
    /// Of operations that read the ledger.
    LedgerErrors = [NotMaster, Unavailable, InternalError];
}

fn name(kind: ProblemType) -> String {
    format!("{kind:?}")
}

fn refer(kind: ProblemType) -> (String, RefOr<Response>) {
    let reference = Ref::from_response_name(name(kind));
    (kind.status().to_string(), RefOr::Ref(reference))
}

pub(in crate::http) fn components() -> impl Iterator<Item = (String, Response)> {
    ProblemType::ALL
        .iter()
        .map(|kind| (name(*kind), response(*kind)))
}

fn response(kind: ProblemType) -> Response {
    let content = ContentBuilder::new()
        .schema(Some(Ref::from_schema_name("Problem")))
        .example(serde_json::to_value(example(kind)).ok())
        .build();
    let response = ResponseBuilder::new()
        .description(format!("{}: `{}`", kind.title(), kind.name()))
        .content(Problem::MEDIA_TYPE, content);
    let header = HeaderBuilder::new();
    match kind {
        ProblemType::Unavailable | ProblemType::TooManyRequests => response.header(
            "Retry-After",
            header
                .description(Some("Seconds to wait before a retry"))
                .schema(Some(
                    ObjectBuilder::new()
                        .schema_type(Type::Integer)
                        .minimum(Some(1))
                        .examples([RETRY_AFTER_SECONDS]),
                ))
                .build(),
        ),
        ProblemType::NotMaster => response.header(
            "Location",
            header
                .description(Some("The same path and query at the master"))
                .build(),
        ),
        ProblemType::PreconditionFailed => response.header(
            "ETag",
            header
                .description(Some(
                    "The current version; absent if the entity does not exist",
                ))
                .build(),
        ),
        ProblemType::Unauthorized | ProblemType::Forbidden => response.header(
            "WWW-Authenticate",
            header
                .description(Some("`Bearer` challenge: RFC 6750, section 3"))
                .build(),
        ),
        ProblemType::UnsupportedMediaType => response.header(
            "Accept-Patch",
            header
                .description(Some("The media types of a PATCH; absent otherwise"))
                .build(),
        ),
        ProblemType::MethodNotAllowed => response.header(
            "Allow",
            header.description(Some("The methods of the path")).build(),
        ),
        _ => response,
    }
    .build()
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
        ProblemType::MethodNotAllowed => "GET is not allowed on /v1/capacity; see `allow`",
        ProblemType::RequestTimeout => "body must arrive within 10 s",
        ProblemType::Conflict => {
            "the change makes the rest of the document invalid: resources[0] \"db\": algorithm: is missing"
        }
        ProblemType::PreconditionFailed => "`if-match` failed: the entity has changed",
        ProblemType::InsufficientStorage => "nothing was changed: the disk is full",
        ProblemType::PayloadTooLarge => "body must be at most 4194304 bytes",
        ProblemType::UnsupportedMediaType => "missing `content-type`: must be application/json",
        ProblemType::InvalidRequest => {
            return ApiError::invalid(vec![FieldError {
                pointer: "/resources/0/wants".to_owned(),
                detail: "must be a number from 0 to 1e15".to_owned(),
            }])
            .into_problem();
        }
        ProblemType::Misdirected => "unknown host `shop.example`",
        ProblemType::TooManyRequests => "caller rate limit exceeded",
        ProblemType::Unavailable => "the server is shutting down",
        _ => "internal error; see the server log",
    };
    Problem::new(kind, detail)
}
