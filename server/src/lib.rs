//! The control plane of Doorman: leases a limited capacity to many processes, so that together they
//! stay within it.
//!
//! The machines of [`doorman_core`] decide on leases without IO. This package connects them to
//! HTTP, the document and the data directory. The binary `doorman` is a command line around
//! [`Server`].

mod agent;
mod auth;
mod document;
mod durability;
pub mod etcd;
mod http;
mod leasing;
mod mastership;
mod net;
pub mod observe;
mod quota;
mod server;
mod settings;
mod tasks;
mod upstream;
mod util;

pub use self::{
    agent::{Agent, AgentError, AgentSettings, AgentStopped, ListenAddress},
    auth::{
        AuthError, AuthSettings, DecodedToken, FailedCheck, InvalidJwksSource, JwksSource,
        KeyAlgorithm, SignError, Token, UnknownAlgorithm, Verdict, check_token,
    },
    document::{DocumentState, OpenDocumentError},
    durability::{DataDirError, EmptyDirectory},
    mastership::OtherNode,
    net::tls::TlsSettings,
    quota::CallerLimit,
    server::{Server, StartError, Stopped},
    settings::{ElectionSettings, Exposure, Settings},
    upstream::ParentSettings,
    util::small_file::FileError,
};

/// The OpenAPI document of all routes, as it is committed: pretty-printed JSON.
#[must_use]
pub fn openapi_json() -> String {
    format!("{:#}\n", http::openapi_document())
}

/// The OpenAPI document of the [`Agent`], as it is committed.
#[must_use]
pub fn agent_openapi_json() -> String {
    format!("{:#}\n", http::agent::agent_document())
}
