//! The HTTP API of Doorman: wire types, problem types, paths, and the committed `openapi.json`.
//!
//! Shared by the control plane and its clients. It does no I/O.
//!
//! ```
//! use doorman_openapi::{CapacityRequest, CapacityResponse};
//!
//! let request: CapacityRequest =
//!     serde_json::from_str(r#"{"client_id":"shop-1","resources":[{"resource_id":"db","wants":50}]}"#)?;
//! assert_eq!(request.resources[0].wants.get(), 50.0);
//!
//! // Numbers and identifiers are validated during deserialization.
//! let invalid = serde_json::from_str::<CapacityRequest>(
//!     r#"{"client_id":"shop-1","resources":[{"resource_id":"db","wants":-1}]}"#,
//! );
//! assert!(invalid.unwrap_err().to_string().contains("must be a number from 0 to 1e15"));
//! # Ok::<(), serde_json::Error>(())
//! ```
//!
//! | feature | adds |
//! |---|---|
//! | `schema` | OpenAPI schemas (utoipa) of the wire types, for the control plane |

#![cfg_attr(docsrs, feature(doc_cfg))]

mod algorithm;
mod capacity;
mod check;
mod discovery;
mod document;
mod glob;
pub mod headers;
mod hidden;
mod hints;
mod ident;
mod key_template;
mod lease;
mod number;
mod outcomes;
pub mod paths;
mod problem;
mod request_path;
mod rule;
mod scope;
mod server_capacity;
mod server_url;
mod target_headers;
mod time;
mod trace;
mod view;

pub use algorithm::{Algorithm, AlgorithmKind, Unit};
pub use capacity::{
    Bucket, CapacityRequest, CapacityResponse, ClientBand, Reason, ReleaseRequest, ReleaseResponse,
    ResourceRequest, ResourceResponse,
};
pub use check::{
    CheckOutcome, CheckOutcomeRequest, CheckPermit, CheckReleaseRequest, CheckReleaseResponse,
    CheckRenewRequest, CheckRenewResponse, CheckRequest, CheckResponse, EndedPermit, MAX_CHECKED,
    MAX_RELEASED, PermitRelease, ResourceCheck, ResourceOutcome,
};
pub use discovery::{Discovery, Mastership};
pub use document::{
    Deleted, Document, DryRun, Feedback, FeedbackMode, HistoryPage, Parameter, PastChange,
    ResourceEffect, Template, TemplateAlgorithm,
};
pub use glob::{Glob, GlobSet, InvalidGlob};
pub use hidden::{escape, escape_hidden, escape_hidden_in_lines, is_hidden};
pub use hints::{DEFAULT_HINT_WAIT, Hint, HintsResponse, MAX_HINT_WAIT, MAX_HINTS};
pub use ident::{ClientId, InvalidId, NodeId, ResourceId, RuleName, ServerId};
pub use key_template::{
    InvalidKeyTemplate, KeyTemplatePart, MAX_VALUE_BYTES, PrefixLengths, parse_key_template,
};
pub use lease::{CLOCK_DRIFT, HeldLease, LONG_BURST, Lease, SafeCapacity};
pub use number::{
    Balance, Capacity, ClientCount, Epoch, Fraction, InvalidNumber, Probability, RequestCount, Run,
    Seconds, Seq, deserialize_priority,
};
pub use outcomes::{MAX_PAUSE, Outcomes, Seen};
pub use problem::{FieldError, Problem, ProblemType};
pub use request_path::{PathSpellings, canonical_path};
pub use rule::{Fallback, OnLimit, OnMissingKey, Rule, RuleOutcomes, RulesResponse};
pub use scope::{Scope, Scopes};
pub use server_capacity::{
    Band, FillLevel, MAX_ENTRIES_PER_PRIORITY, ServerAlgorithm, ServerCapacityRequest,
    ServerCapacityResponse, ServerReleaseRequest, ServerResourceRequest, ServerResourceResponse,
};
pub use server_url::{InvalidServerUrl, ServerUrl};
pub use target_headers::TargetHeaders;
pub use time::Moment;
pub use trace::{SpanId, TraceContext, TraceId};
pub use view::{
    ClientLease, ClientLeasePage, FeedbackState, FeedbackView, HeldBackBy, HolderKind, HolderView,
    LeasePage, OutcomeRates, ParentLease, ParentStatus, ResourceOutcomes, ResourcePage,
    ResourceView, SortBy, Status,
};

/// The OpenAPI 3.1 document. A server without authentication serves it without security schemes.
pub const OPENAPI_JSON: &str = include_str!("../openapi.json");

/// The OpenAPI 3.1 document of the agent.
pub const AGENT_OPENAPI_JSON: &str = include_str!("../agent.json");

/// The most bytes of a request body: 4 MiB.
pub const MAX_BODY_BYTES: usize = 4 * 1024 * 1024;

/// The most rules of a document: a layer checks each request against all rules of its service.
pub const MAX_RULES: usize = 1_000;

/// The most resources of a request.
pub const MAX_RESOURCES: usize = 10_000;

/// The most bands of a client's request for one resource, and of a resource. The lowest priorities
/// beyond it share one band.
pub const MAX_BANDS: usize = 32;
