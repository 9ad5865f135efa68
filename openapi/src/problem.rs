//! Error responses: `application/problem+json` (RFC 9457).

use serde::{Deserialize, Serialize};

use crate::Mastership;

/// An error response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Problem {
    /// The problem type, such as `/problems/invalid-request`.
    #[serde(rename = "type")]
    #[cfg_attr(feature = "schema", schema(value_type = ProblemType))]
    pub kind: String,
    /// The title of the problem type.
    pub title: String,
    /// The status of the response.
    pub status: u16,
    /// The problem, and what would be right.
    pub detail: String,
    /// All errors of the request body.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// The master, if this server is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mastership: Option<Mastership>,
    /// The limits that were exceeded, as in the RateLimit header draft.
    #[serde(
        rename = "violated-policies",
        default,
        skip_serializing_if = "Vec::is_empty"
    )]
    pub violated_policies: Vec<String>,
    /// Why a limit of a layer rejected the request, such as `spent` or `growing`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// An error of a request body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FieldError {
    /// The location, as a JSON Pointer (RFC 6901); empty for the whole body.
    pub pointer: String,
    /// The problem, and what would be right.
    pub detail: String,
}

impl FieldError {
    /// An error at a place of the body.
    #[must_use]
    pub fn new(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            pointer: pointer.into(),
            detail: detail.into(),
        }
    }
}

impl Problem {
    /// The media type.
    pub const MEDIA_TYPE: &'static str = "application/problem+json";

    /// A problem of a type.
    #[must_use]
    pub fn new(kind: ProblemType, detail: impl Into<String>) -> Self {
        Self {
            kind: kind.name().to_owned(),
            title: kind.title().to_owned(),
            status: kind.status(),
            detail: detail.into(),
            errors: Vec::new(),
            mastership: None,
            violated_policies: Vec::new(),
            reason: None,
        }
    }
}

macro_rules! problem_types {
    ($($(#[$doc:meta])* $variant:ident = $status:literal, $name:literal, $title:literal;)+) => {
        /// The problem types, each with a stable name, a status and a title.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        #[non_exhaustive]
        pub enum ProblemType {
            $($(#[$doc])* $variant,)+
        }

        impl ProblemType {
            /// All types.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The `type` of a problem.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// The HTTP status.
            #[must_use]
            pub fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)+ }
            }

            /// The title of the problem type.
            #[must_use]
            pub fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)+ }
            }
        }
    };
}

problem_types! {
    /// Another server of the node is master; see `Location`.
    NotMaster = 307, "/problems/not-master", "Not the master";
    /// The body is not JSON, or the query is malformed.
    MalformedRequest = 400, "/problems/malformed-request", "Malformed request";
    /// No token, or an invalid one; see `WWW-Authenticate`.
    Unauthorized = 401, "/problems/unauthorized", "Unauthorized";
    /// The token does not allow this.
    Forbidden = 403, "/problems/forbidden", "Forbidden";
    /// No such path or entry.
    NotFound = 404, "/problems/not-found", "Not found";
    /// The path does not support the method; see `Allow`.
    MethodNotAllowed = 405, "/problems/method-not-allowed", "Method not allowed";
    /// The request did not arrive in time.
    RequestTimeout = 408, "/problems/request-timeout", "Request timeout";
    /// The change conflicts with the rest of the document, or the document is read-only.
    Conflict = 409, "/problems/conflict", "Conflict";
    /// `If-Match` or `If-None-Match` does not hold; see `ETag`.
    PreconditionFailed = 412, "/problems/precondition-failed", "Precondition failed";
    /// The body is too large.
    PayloadTooLarge = 413, "/problems/payload-too-large", "Payload too large";
    /// The body is not `application/json`.
    UnsupportedMediaType = 415, "/problems/unsupported-media-type", "Unsupported media type";
    /// The host name is not one of this server.
    Misdirected = 421, "/problems/misdirected-request", "Misdirected request";
    /// The body is JSON, but invalid; `errors` lists all errors.
    InvalidRequest = 422, "/problems/invalid-request", "Invalid request";
    /// Rate limit exceeded; see `Retry-After`.
    TooManyRequests = 429, "/problems/too-many-requests", "Too many requests";
    /// Server error; see its log.
    InternalError = 500, "/problems/internal-error", "Internal error";
    /// Temporarily unavailable; see `Retry-After`.
    Unavailable = 503, "/problems/unavailable", "Unavailable";
    /// The disk of the server is full; nothing was changed.
    InsufficientStorage = 507, "/problems/insufficient-storage", "Insufficient storage";
}
