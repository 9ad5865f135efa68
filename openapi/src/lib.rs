//! The contract of Doorman, the words that a control plane and its holders speak.
//!
//! Many processes share something of limited capacity. They lease parts of it from a control plane over plain HTTP and JSON, spend
//! them locally and renew them in the background. This crate holds what both sides must agree on and nothing else: identifiers and
//! quantities that cannot be invalid, the bodies of the calls, the problem types, the paths, and the committed `openapi.json`.
//! It does no IO.
//!
//! ```
//! use doorman_openapi::{CapacityRequest, CapacityResponse};
//!
//! let request: CapacityRequest =
//!     serde_json::from_str(r#"{"client_id":"shop-1","resources":[{"resource_id":"db","wants":50}]}"#)?;
//! assert_eq!(request.resources[0].wants.get(), 50.0);
//!
//! // What a quantity, an identifier or a sequence number may be is checked while it is read.
//! let refused = serde_json::from_str::<CapacityRequest>(
//!     r#"{"client_id":"shop-1","resources":[{"resource_id":"db","wants":-1}]}"#,
//! );
//! assert!(refused.unwrap_err().to_string().contains("must be a number from 0 to 1e15"));
//! # Ok::<(), serde_json::Error>(())
//! ```
//!
//! | feature | adds |
//! |---|---|
//! | `schema` | OpenAPI schemas (utoipa) of every wire type; off by default, the control plane turns it on |

mod algorithm;
mod capacity;
mod discovery;
mod document;
mod glob;
pub mod headers;
mod ident;
mod key_template;
mod lease;
mod number;
pub mod paths;
mod problem;
mod rule;
#[cfg(feature = "schema")]
mod schemas;
mod scope;
mod server_capacity;
mod time;
mod trace;
mod view;
mod whole;

pub use algorithm::{Algorithm, AlgorithmKind, Unit};
pub use capacity::{
    CapacityRequest, CapacityResponse, Reason, ReleaseRequest, ReleaseResponse, ResourceRequest,
    ResourceResponse,
};
pub use discovery::{Discovery, Mastership};
pub use document::{
    Document, DryRun, HistoryPage, Parameter, PastChange, ResourceEffect, Template,
    TemplateAlgorithm,
};
pub use glob::{Glob, GlobSet, InvalidGlob};
pub use ident::{ClientId, InvalidId, NodeId, ResourceId, RuleName, ServerId};
pub use key_template::{InvalidKeyTemplate, KeyTemplatePart, MAX_VALUE_BYTES, parse_key_template};
pub use lease::{CLOCK_DRIFT, HeldLease, Lease, SafeCapacity};
pub use number::{Balance, Capacity, ClientCount, Epoch, InvalidNumber, Probability, Seconds, Seq};
pub use problem::{FieldError, Problem, ProblemType};
pub use rule::{Fallback, OnLimit, OnMissingKey, Rule, RulesResponse};
pub use scope::{Scope, Scopes};
pub use server_capacity::{
    Band, ServerCapacityRequest, ServerCapacityResponse, ServerReleaseRequest,
    ServerResourceRequest, ServerResourceResponse,
};
pub use time::Moment;
pub use trace::{SpanId, TraceContext, TraceId};
pub use view::{HeldBackBy, HolderKind, HolderView, LeasePage, ResourcePage, ResourceView, Status};
pub use whole::deserialize_priority;

/// The OpenAPI 3.1 document of the control plane, as committed. A server that asks for tokens answers with it at `/openapi.json`; one that
/// does not leaves out what it says of tokens.
pub const OPENAPI_JSON: &str = include_str!("../openapi.json");

/// The most bytes a body of a request may have: 4 MiB.
pub const MAX_BODY_BYTES: usize = 4 * 1024 * 1024;

/// The most rules that a document may have: each request of a service walks through the rules for it.
pub const MAX_RULES: usize = 1_000;

/// The most resources that one request may carry.
pub const MAX_RESOURCES: usize = 10_000;
