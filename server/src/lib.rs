//! The control plane of Doorman: leases a limited capacity to many processes, so that together they
//! stay within it.
//!
//! The [`ledger`] decides on leases without IO. The other modules connect it to HTTP, the document
//! and the data directory. The binary `doorman` is a command line around [`Server`].

pub mod election;
pub mod etcd;
pub mod ledger;

mod agent;
mod auth;
mod document;
mod durability;
mod http;
mod leasing;
mod mastership;
mod net;
pub mod observe;
mod quota;
pub mod reign;
mod server;
mod settings;
pub mod simulation;
mod tasks;
pub mod upstream;
mod util;

pub use self::{
    agent::{Agent, AgentError, AgentSettings, AgentStopped, ListenAddress},
    auth::{
        AuthError, AuthSettings, DecodedToken, FailedCheck, InvalidJwksSource, JwksSource,
        KeyAlgorithm, SignError, Token, UnknownAlgorithm, Verdict, check_token,
    },
    document::DocumentState,
    durability::{DataDirError, EmptyDirectory},
    mastership::{OtherNode, PeersError},
    net::tls::{TlsError, TlsSettings},
    quota::CallerLimit,
    server::{Server, StartError, Stopped},
    settings::{ElectionSettings, Exposure, Settings},
    upstream::ParentSettings,
    util::rounded::rounded,
};

/// The OpenAPI document of all routes, as it is committed: pretty-printed JSON.
#[must_use]
pub fn openapi_json() -> String {
    // It holds text and numbers alone, so serializing it cannot fail.
    let mut text = http::openapi_document()
        .to_pretty_json()
        .unwrap_or_default();
    text.push('\n');
    text
}

/// The OpenAPI document of the [`Agent`], as it is committed.
#[must_use]
pub fn agent_openapi_json() -> String {
    let mut text = http::agent::agent_document()
        .to_pretty_json()
        .unwrap_or_default();
    text.push('\n');
    text
}
