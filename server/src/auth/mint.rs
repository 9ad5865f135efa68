//! Tokens that are signed with a secret, for those who have no issuer.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use doorman_openapi::GlobSet;
use doorman_openapi::Scopes;
use jsonwebtoken::{Algorithm, EncodingKey, Header, crypto, encode, get_current_timestamp};
use serde::Serialize;

use super::key;
use crate::util::small_file;

/// What a token is to say. It does not show the secret, which it has not.
#[derive(Debug, Clone)]
pub struct Token {
    /// Who made it.
    pub issuer: String,
    /// Whom it is for.
    pub audience: String,
    /// Whom it speaks of.
    pub subject: String,
    /// What its bearer may do.
    pub scopes: Scopes,
    /// GlobSet of the clients in whose name it leases; none: of any.
    pub clients: Vec<String>,
    /// GlobSet of the resources that it may touch; none: any.
    pub resources: Vec<String>,
    /// GlobSet of the services whose rules it may touch; none: any.
    pub services: Vec<String>,
    /// The highest priority that it may ask with; absent: any.
    pub max_priority: Option<i32>,
    /// How long it counts.
    pub lifetime: Duration,
}

/// Why no token is made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidToken {
    /// The secret cannot be read.
    #[error("--secret-file {} cannot be read", path.display())]
    Unreadable {
        /// The file that should have it.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The secret is none.
    #[error("--secret-file: {0}")]
    Secret(String),
    /// A bound is no glob.
    #[error("{0}: {1}")]
    Bound(&'static str, doorman_openapi::InvalidGlob),
    /// It cannot be signed.
    #[error("the token cannot be signed")]
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
    /// Signs it with the secret in a file. Blocks on the file system.
    ///
    /// # Errors
    /// [`InvalidToken`] when the secret cannot be had or is too short, or a bound is no glob.
    pub fn sign(&self, secret_file: &Path) -> Result<String, InvalidToken> {
        crypto::aws_lc::DEFAULT_PROVIDER.install_default().ok();
        for (flag, globs) in [
            ("--client-id", &self.clients),
            ("--resources", &self.resources),
            ("--services", &self.services),
        ] {
            GlobSet::new(globs).map_err(|invalid| InvalidToken::Bound(flag, invalid))?;
        }
        let bytes = small_file::read(secret_file).map_err(|source| InvalidToken::Unreadable {
            path: secret_file.to_owned(),
            source,
        })?;
        let secret =
            key::secret(&bytes).map_err(|error| InvalidToken::Secret(error.to_string()))?;
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
        encode(&header, &claims, &EncodingKey::from_secret(secret)).map_err(InvalidToken::Signing)
    }
}
