//! Verification of bearer tokens (JSON Web Tokens, RFC 7519) by the best practices of RFC 8725, for
//! the control plane and for the layer.
//!
//! [`TokenChecks`] verifies a token by [`Key`]s, each of which determines its only algorithm.
//! [`read_set`] reads the key set of an issuer, and `JwksClient` (feature `reqwest`) fetches it.
//! [`TokenCache`] remembers valid tokens. The callers follow key sets and choose the claims.

mod cache;
#[cfg(feature = "reqwest")]
mod client;
mod key;
mod verify;

#[cfg(feature = "reqwest")]
pub use self::client::{InvalidClient, JwksClient};
pub use self::{
    cache::TokenCache,
    key::{InvalidKey, InvalidSet, Key, checked_secret, read_set},
    verify::{FailedCheck, TokenChecks},
};

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
    time::Duration,
};

/// The longest token, in bytes.
pub const MAX_TOKEN: usize = 8 * 1024;

/// The largest key set or file, in bytes.
const MAX_SET: usize = 1024 * 1024;

/// The shortest time between two reads of a key set: tokens with invented key IDs must not become
/// load on the issuer.
pub const MIN_INTERVAL: Duration = Duration::from_secs(10);

/// A key set at a URL is fetched again after this time even if no key is missing.
pub const MAX_AGE: Duration = Duration::from_secs(600);

/// Reads a small file that an operator provides, such as a key set. Blocks on the file system.
///
/// # Errors
/// It cannot be read, or is larger than 1 MiB.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(MAX_SET as u64 + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() > MAX_SET {
        return Err(io::Error::other("file is larger than 1 MiB"));
    }
    Ok(bytes)
}

/// Sets the cryptographic provider of `jsonwebtoken`, which otherwise panics if a dependency of the
/// program enables its other one, too. A provider that the program has installed stays.
pub fn install_provider() {
    jsonwebtoken::crypto::aws_lc::DEFAULT_PROVIDER
        .install_default()
        .ok();
}
