//! How calls fail, for their documentation: groups of the problems that handlers of one kind may answer with.
//!
//! A group only refers to the responses; [`responses`] describes each of them once.

use std::collections::BTreeMap;

use doorman_openapi::{FieldError, Problem, ProblemType};
use utoipa::{
    IntoResponses,
    openapi::{
        ContentBuilder, HeaderBuilder, ObjectBuilder, Ref, RefOr, Response, ResponseBuilder, Type,
    },
};

use super::refusal::{RETRY_AFTER_SECONDS, Refusal};

macro_rules! groups {
    ($($(#[$doc:meta])* $name:ident = [$($kind:ident),+];)+) => {$(
        $(#[$doc])*
        pub(super) struct $name;

        impl IntoResponses for $name {
            fn responses() -> BTreeMap<String, RefOr<Response>> {
                [$(ProblemType::$kind),+].into_iter().map(refer).collect()
            }
        }
    )+};
}

groups! {
    /// Of a call with a body that reaches the books.
    OfALease = [
        MalformedRequest, RequestTimeout, PayloadTooLarge, UnsupportedMediaType, InvalidRequest, InternalError, Unavailable
    ];
    /// Of a call that changes the document by what it is sent.
    OfAChange = [
        MalformedRequest, RequestTimeout, Conflict, PreconditionFailed, PayloadTooLarge, UnsupportedMediaType, InvalidRequest,
        InternalError, Unavailable, InsufficientStorage
    ];
    /// Of a call that takes something out of the document.
    OfADeletion = [
        MalformedRequest, NotFound, Conflict, PreconditionFailed, InternalError, Unavailable, InsufficientStorage
    ];
    /// Of a call that reads something that has a version.
    OfARead = [MalformedRequest, PreconditionFailed, InternalError];
    /// Of a call without a body.
    OfAQuery = [MalformedRequest, InternalError];
    /// Of a call that minds its `host` and its caller's limit: of all but the probes.
    OfAGuarded = [Misdirected, TooManyRequests];
    /// Of a call that asks who calls.
    OfACaller = [Unauthorized, Forbidden];
    /// Of a call for one thing.
    NotFound = [NotFound];
    /// Of a call that reaches the books, or asks whether it could.
    Unavailable = [Unavailable, InternalError];
}

/// The name under which a response stands in the document.
fn name(kind: ProblemType) -> String {
    format!("{kind:?}")
}

fn refer(kind: ProblemType) -> (String, RefOr<Response>) {
    let reference = Ref::from_response_name(name(kind));
    (kind.status().to_string(), RefOr::Ref(reference))
}

/// All responses that tell of a problem, by name.
pub(super) fn responses() -> impl Iterator<Item = (String, Response)> {
    ProblemType::ALL
        .iter()
        .map(|kind| (name(*kind), response(*kind)))
}

fn response(kind: ProblemType) -> Response {
    let example = example(kind);
    let content = ContentBuilder::new()
        .schema(Some(Ref::from_schema_name("Problem")))
        .example(serde_json::to_value(&example).ok())
        .build();
    let response = ResponseBuilder::new()
        .description(format!("{}: `{}`", kind.title(), kind.name()))
        .content(Problem::MEDIA_TYPE, content);
    match kind {
        ProblemType::Unavailable | ProblemType::TooManyRequests => response.header(
            "Retry-After",
            HeaderBuilder::new()
                .description(Some("Whole seconds to wait before coming again"))
                .schema(Some(
                    ObjectBuilder::new()
                        .schema_type(Type::Integer)
                        .minimum(Some(1))
                        .examples([RETRY_AFTER_SECONDS]),
                ))
                .build(),
        ),
        ProblemType::PreconditionFailed => response.header(
            "ETag",
            HeaderBuilder::new()
                .description(Some(
                    "The version that is there now, in quotes; absent when nothing is",
                ))
                .build(),
        ),
        ProblemType::Unauthorized | ProblemType::Forbidden => response.header(
            "WWW-Authenticate",
            HeaderBuilder::new()
                .description(Some(
                    "`Bearer`, and what is wrong with the token, if there was one: RFC 6750, section 3",
                ))
                .build(),
        ),
        ProblemType::MethodNotAllowed => response.header(
            "Allow",
            HeaderBuilder::new()
                .description(Some("The methods that the path takes"))
                .build(),
        ),
        _ => response,
    }
    .build()
}

/// A problem of this kind, as it might come.
fn example(kind: ProblemType) -> Problem {
    let detail = match kind {
        ProblemType::MalformedRequest => {
            "the body is not JSON: EOF while parsing a value at line 1 column 15"
        }
        ProblemType::Unauthorized => "the token has expired",
        ProblemType::Forbidden => "the token needs the scope status:read",
        ProblemType::NotFound => "nobody holds `db` or waits for it",
        ProblemType::MethodNotAllowed => {
            "/v1/capacity does not take GET; `allow` says what it takes"
        }
        ProblemType::RequestTimeout => "the body must arrive within 10 s",
        ProblemType::Conflict => {
            "the rest of the document would be wrong: resources[0] \"db\": algorithm: is missing; must be here or in the template for \"*\""
        }
        ProblemType::PreconditionFailed => "`if-match` does not hold: it was changed meanwhile",
        ProblemType::InsufficientStorage => "nothing was changed: the disk is full",
        ProblemType::PayloadTooLarge => "a body may have at most 4194304 bytes",
        ProblemType::UnsupportedMediaType => {
            "the body must come with `content-type: application/json`"
        }
        ProblemType::InvalidRequest => {
            return Refusal::of_faults(vec![FieldError {
                pointer: "/resources/0/wants".to_owned(),
                detail: "must be a number from 0 to 1e15".to_owned(),
            }])
            .into_problem();
        }
        ProblemType::Misdirected => {
            "the server does not go by the name shop.example: without authentication it answers on loopback only to 127.0.0.1, localhost and the like, and to the host of --advertise"
        }
        ProblemType::TooManyRequests => {
            "the caller asks for new leases faster than the server decides for one; what is leased is renewed"
        }
        ProblemType::Unavailable => "the server is shutting down",
        _ => "the server failed; its log says why",
    };
    Problem::new(kind, detail)
}
