//! Signing of tokens with a shared secret, for deployments without an issuer.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use doorman_openapi::GlobSet;
use doorman_openapi::Scopes;
use jsonwebtoken::{Algorithm, EncodingKey, Header, crypto, encode, get_current_timestamp};
use serde::Serialize;

use super::keys;
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

#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    aud: &'a str,
    sub: &'a str,
    iat: u64,
    exp: u64,
    scope: String,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    client_id: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    resources: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    services: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    max_priority: Option<i32>,
}

impl Token {
    /// Signs the token with the secret in a file. Blocks on the file system.
    ///
    /// # Errors
    /// The secret cannot be read or is too short, or a restriction is not a glob.
    pub fn sign(&self, secret_file: &Path) -> Result<String, SignError> {
        crypto::aws_lc::DEFAULT_PROVIDER.install_default().ok();
        for (flag, globs) in [
            ("--client-id", &self.clients),
            ("--resources", &self.resources),
            ("--services", &self.services),
        ] {
            GlobSet::new(globs).map_err(|invalid| SignError::Glob(flag, invalid))?;
        }
        let bytes = small_file::read(secret_file).map_err(|source| SignError::Unreadable {
            path: secret_file.to_owned(),
            source,
        })?;
        let secret = keys::secret(&bytes).map_err(|error| SignError::Secret(error.to_string()))?;
        let now = get_current_timestamp();
        let claims = Claims {
            iss: &self.issuer,
            aud: &self.audience,
            sub: &self.subject,
            iat: now,
            exp: now.saturating_add(self.lifetime.as_secs()),
            scope: self.scopes.to_string(),
            client_id: &self.clients,
            resources: &self.resources,
            services: &self.services,
            max_priority: self.max_priority,
        };
        let header = Header::new(Algorithm::HS256);
        encode(&header, &claims, &EncodingKey::from_secret(secret)).map_err(SignError::Signing)
    }
}
