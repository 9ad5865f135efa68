//! The control plane of Doorman: leases parts of something with limited capacity to many processes, so that together they stay
//! within it.
//!
//! A pure [`core`] keeps the books and takes the decisions; around it lies a thin shell: HTTP, the data directory, the
//! listener. The binary `doorman` is a command line around [`Server`].

pub mod core;

mod app;
mod auth;
mod change;
mod clock;
mod held;
mod http;
mod identity;
mod kept;
mod limits;
mod listen;
pub mod log;
mod metrics;
mod notices;
mod reload;
mod restart;
mod rounded;
mod server;
mod settings;
mod small_file;
mod sweeper;
mod tls;
mod trail;
mod watch;

pub use self::{
    auth::{
        AuthError, AuthSettings, InvalidJwksSource, InvalidToken, JwksSource, KeyAlgorithm, Token,
        UnknownAlgorithm,
    },
    identity::IdentityError,
    rounded::rounded,
    server::{Server, StartError, Stopped},
    settings::{BaseUrl, CallerLimit, EmptyDirectory, Exposure, InvalidBaseUrl, Settings},
    tls::{TlsError, TlsSettings},
};

/// The OpenAPI document of all routes, as it must be committed: pretty-printed JSON that ends with a line break.
#[must_use]
pub fn openapi_json() -> String {
    // The document is built of text and numbers alone: writing it cannot fail.
    let mut text = http::openapi().to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}
