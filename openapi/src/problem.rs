//! The one envelope of every failure: `application/problem+json` (RFC 9457).

use serde::{Deserialize, Serialize};

use crate::Mastership;

/// What went wrong, as a client may read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Problem {
    /// A stable name of the kind of problem, such as `/problems/invalid-request`; see [`ProblemType`].
    #[serde(rename = "type")]
    #[cfg_attr(feature = "schema", schema(value_type = ProblemType))]
    pub kind: String,
    /// The kind in words.
    pub title: String,
    /// The status of the response.
    pub status: u16,
    /// What went wrong this time, and what would be right.
    pub detail: String,
    /// Every fault of the request's body, not only the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// Where the master is, when the server that answers is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(nullable = false))]
    pub mastership: Option<Mastership>,
    /// The limits that refused a request, as the RateLimit fields draft names the member.
    #[serde(
        rename = "violated-policies",
        default,
        skip_serializing_if = "Vec::is_empty"
    )]
    pub violated_policies: Vec<String>,
}

/// One fault of a body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FieldError {
    /// Where it is, as a JSON Pointer (RFC 6901); empty for the whole body.
    pub pointer: String,
    /// What would be right.
    pub detail: String,
}

impl Problem {
    /// The media type of the envelope.
    pub const MEDIA_TYPE: &'static str = "application/problem+json";

    /// A problem of this kind.
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
        }
    }
}

macro_rules! problem_types {
    ($($(#[$doc:meta])* $variant:ident = $status:literal, $name:literal, $title:literal;)+) => {
        /// The kinds of problem: a stable name, a status and a title each.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ProblemType {
            $($(#[$doc])* $variant,)+
        }

        impl ProblemType {
            /// Every kind there is.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The stable name, the `type` of the envelope.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// The status that goes with it.
            #[must_use]
            pub fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)+ }
            }

            /// The kind in words.
            #[must_use]
            pub fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)+ }
            }
        }
    };
}

problem_types! {
    /// The body or the query is outside the grammar.
    MalformedRequest = 400, "/problems/malformed-request", "Malformed request";
    /// There is no token that counts; see `WWW-Authenticate`.
    Unauthorized = 401, "/problems/unauthorized", "Unauthorized";
    /// The token counts, but not for this.
    Forbidden = 403, "/problems/forbidden", "Forbidden";
    /// Nothing is there.
    NotFound = 404, "/problems/not-found", "Not found";
    /// The path exists, but not with this method; see `Allow`.
    MethodNotAllowed = 405, "/problems/method-not-allowed", "Method not allowed";
    /// The request took too long to arrive.
    RequestTimeout = 408, "/problems/request-timeout", "Request timeout";
    /// The change cannot be made, because of the rest of the document, or of where that comes from.
    Conflict = 409, "/problems/conflict", "Conflict";
    /// What `If-Match` or `If-None-Match` asks for does not hold; see `ETag`.
    PreconditionFailed = 412, "/problems/precondition-failed", "Precondition failed";
    /// The body is larger than the server reads.
    PayloadTooLarge = 413, "/problems/payload-too-large", "Payload too large";
    /// The body is not said to be JSON.
    UnsupportedMediaType = 415, "/problems/unsupported-media-type", "Unsupported media type";
    /// The request is addressed to a name that this server does not go by.
    Misdirected = 421, "/problems/misdirected-request", "Misdirected request";
    /// The body is JSON, but not what the call takes; every fault is in `errors`.
    InvalidRequest = 422, "/problems/invalid-request", "Invalid request";
    /// The caller, or all together, ask for more than the server does; see `Retry-After`.
    TooManyRequests = 429, "/problems/too-many-requests", "Too many requests";
    /// The server failed; the fault is in its log.
    InternalError = 500, "/problems/internal-error", "Internal error";
    /// The server cannot answer now; see `Retry-After`.
    Unavailable = 503, "/problems/unavailable", "Unavailable";
    /// The change finds no room on the server's disk; nothing was changed.
    InsufficientStorage = 507, "/problems/insufficient-storage", "Insufficient storage";
}
