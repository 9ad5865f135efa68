//! The control plane of Doorman: leases parts of something with limited capacity to many processes, so that together they stay
//! within it.
//!
//! A pure [`ledger`] keeps the books and takes the decisions; around it lies a thin shell: HTTP, the data directory, the
//! listener. The binary `doorman` is a command line around [`Server`].

pub mod ledger;

mod auth;
mod document;
mod durability;
mod http;
mod leasing;
mod net;
pub mod observe;
mod quota;
mod server;
mod settings;
mod util;

pub use self::{
    auth::{
        AuthError, AuthSettings, InvalidJwksSource, InvalidToken, JwksSource, KeyAlgorithm, Token,
        UnknownAlgorithm,
    },
    durability::{DataDirError, EmptyDirectory},
    net::tls::{TlsError, TlsSettings},
    quota::CallerLimit,
    server::{Server, StartError, Stopped},
    settings::{BaseUrl, Exposure, InvalidBaseUrl, Settings},
    util::rounded::rounded,
};

/// The OpenAPI document of all routes, as it must be committed: pretty-printed JSON that ends with a line break.
#[must_use]
pub fn openapi_json() -> String {
    // The document is built of text and numbers alone: writing it cannot fail.
    let mut text = http::openapi_document()
        .to_pretty_json()
        .unwrap_or_default();
    text.push('\n');
    text
}
