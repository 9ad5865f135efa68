//! Signing of tokens with a shared secret, for deployments without an issuer.

use std::{
    collections::BTreeMap,
    num::NonZeroU32,
    path::{Path, PathBuf},
    time::Duration,
};

use doorman_jwt::{checked_secret, install_provider};
use doorman_openapi::{Capacity, GlobSet, Scopes};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, get_current_timestamp};
use serde_json::json;

use crate::util::small_file;

/// Claims of a token to sign. It does not hold the secret.
#[derive(Debug, Clone)]
pub struct Token {
    /// The issuer.
    pub issuer: String,
    /// The audience.
    pub audience: String,
    /// The subject.
    pub subject: String,
    /// The scopes of the bearer.
    pub scopes: Scopes,
    /// Globs of the clients that the bearer may lease for; empty: all.
    pub clients: Vec<String>,
    /// Globs of the resources that the bearer may access; empty: all.
    pub resources: Vec<String>,
    /// Globs of the services whose rules the bearer may access; empty: all.
    pub services: Vec<String>,
    /// The highest priority that the bearer may use; absent: any.
    pub max_priority: Option<i32>,
    /// The highest capacity of templates that the bearer may set; absent: any.
    pub max_capacity: Option<Capacity>,
    /// The most clients that lease at once; absent: any number.
    pub max_clients: Option<NonZeroU32>,
    /// The time until the token expires.
    pub lifetime: Duration,
}

/// A token cannot be signed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignError {
    /// The secret cannot be read.
    #[error("--secret-file {}: cannot be read", path.display())]
    Unreadable {
        /// The file of the secret.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The secret is invalid.
    #[error("--secret-file: {0}")]
    Secret(String),
    /// A restriction is not a glob.
    #[error("{0}: {1}")]
    Glob(&'static str, doorman_openapi::InvalidGlob),
    /// The cryptographic library failed.
    #[error("cannot sign the token")]
    Signing(#[source] jsonwebtoken::errors::Error),
}

impl Token {
    /// Signs the token with the secret in a file. Blocks on the file system.
    ///
    /// # Errors
    /// The secret cannot be read or is too short, or a restriction is not a glob.
    pub fn sign(&self, secret_file: &Path) -> Result<String, SignError> {
        install_provider();
        let now = get_current_timestamp();
        let exp = now.saturating_add(self.lifetime.as_secs());
        let mut claims = BTreeMap::from([
            ("iss", json!(self.issuer)),
            ("aud", json!(self.audience)),
            ("sub", json!(self.subject)),
            ("iat", json!(now)),
            ("exp", json!(exp)),
            ("scope", json!(self.scopes.to_string())),
        ]);
        for (flag, name, globs) in [
            ("--client-id", "client_id", &self.clients),
            ("--resources", "resources", &self.resources),
            ("--services", "services", &self.services),
        ] {
            GlobSet::new(globs).map_err(|invalid| SignError::Glob(flag, invalid))?;
            if !globs.is_empty() {
                claims.insert(name, json!(globs));
            }
        }
        if let Some(priority) = self.max_priority {
            claims.insert("max_priority", json!(priority));
        }
        if let Some(capacity) = self.max_capacity {
            claims.insert("max_capacity", json!(capacity));
        }
        if let Some(clients) = self.max_clients {
            claims.insert("max_clients", json!(clients));
        }
        let bytes = small_file::read(secret_file).map_err(|source| SignError::Unreadable {
            path: secret_file.to_owned(),
            source,
        })?;
        let secret = checked_secret(bytes.trim_ascii())
            .map_err(|error| SignError::Secret(error.to_string()))?;
        let header = Header::new(Algorithm::HS256);
        encode(&header, &claims, &EncodingKey::from_secret(secret)).map_err(SignError::Signing)
    }
}
