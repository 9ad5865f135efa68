//! What an operator says of whom to believe.

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use axum::http::Uri;
use jsonwebtoken::Algorithm;
use reqwest::Url;

/// Whose tokens count. At least one of the sources of keys must be given.
#[derive(Debug, Clone)]
pub struct AuthSettings {
    /// Files with secrets for HS256, each of which counts, so that one can be replaced by another.
    pub secret_files: Vec<PathBuf>,
    /// The issuer of tokens that are signed with a secret.
    pub secret_issuer: String,
    /// Files with public keys in PEM: RSA for RS256, P-256 for ES256, Ed25519 for EdDSA.
    pub key_files: Vec<PathBuf>,
    /// Where an issuer publishes its keys.
    pub jwks: Option<JwksSource>,
    /// A file with certificates in PEM that the publisher of the keys is believed by, besides those of the system.
    pub jwks_ca: Option<PathBuf>,
    /// A file with the bearer token that the keys at an address are asked for with, read anew each time. Absent: without one.
    pub jwks_token_file: Option<PathBuf>,
    /// The issuer of tokens that are signed with a key; needed where there are keys.
    pub issuer: Option<String>,
    /// Whom tokens must be for.
    pub audience: String,
    /// The algorithms of keys; a key of another one does not count.
    pub algorithms: Vec<KeyAlgorithm>,
    /// How far the clocks of issuer and server may be apart, in whole seconds.
    pub leeway: Duration,
    /// A file that says what tokens let their bearers do. With it, a token that is signed with a key and that no grant speaks for lets its
    /// bearer do nothing; one that is signed with a secret goes on speaking for itself.
    pub grants: Option<PathBuf>,
}

impl AuthSettings {
    /// What `doorman token` writes as issuer and as audience, and what is expected when nothing is said.
    pub const NAME: &'static str = "doorman";
}

impl Default for AuthSettings {
    fn default() -> Self {
        Self {
            secret_files: Vec::new(),
            secret_issuer: Self::NAME.to_owned(),
            key_files: Vec::new(),
            jwks: None,
            jwks_ca: None,
            jwks_token_file: None,
            issuer: None,
            audience: Self::NAME.to_owned(),
            algorithms: KeyAlgorithm::ALL.to_vec(),
            leeway: Duration::from_secs(5),
            grants: None,
        }
    }
}

/// An algorithm of public keys. There is no other: neither `none`, nor one by which a public key could be taken for a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyAlgorithm {
    /// RSA (PKCS #1 v1.5) with SHA-256.
    Rs256,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// Ed25519.
    EdDsa,
}

impl KeyAlgorithm {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Rs256, Self::Es256, Self::EdDsa];

    /// The name in tokens.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
        }
    }

    pub(super) fn algorithm(self) -> Algorithm {
        match self {
            Self::Rs256 => Algorithm::RS256,
            Self::Es256 => Algorithm::ES256,
            Self::EdDsa => Algorithm::EdDSA,
        }
    }
}

/// A text names no algorithm of public keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be RS256, ES256 or EdDSA; HS256 comes with --auth-secret-file")]
pub struct UnknownAlgorithm;

impl FromStr for KeyAlgorithm {
    type Err = UnknownAlgorithm;

    fn from_str(text: &str) -> Result<Self, UnknownAlgorithm> {
        let named = Self::ALL.into_iter().find(|it| it.name() == text);
        named.ok_or(UnknownAlgorithm)
    }
}

/// Where an issuer publishes its keys (RFC 7517).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JwksSource {
    /// In a file, followed as it changes.
    File(PathBuf),
    /// At an address, asked again every ten minutes, and for keys that are not known. It is named in logs, so that it must not hold a
    /// user or a password.
    Url(String),
}

impl JwksSource {
    /// Whether it is an address with a user or a password, by the reading of the client that would send them.
    pub(super) fn holds_credentials(&self) -> bool {
        let Self::Url(url) = self else { return false };
        Url::parse(url).is_ok_and(|url| !url.username().is_empty() || url.password().is_some())
    }
}

/// Why a text does not say where keys are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be the path of a file or an https:// address; http:// only on this machine, since who can change the answer makes tokens"
)]
pub struct InvalidJwksSource;

impl FromStr for JwksSource {
    type Err = InvalidJwksSource;

    fn from_str(text: &str) -> Result<Self, InvalidJwksSource> {
        if let Some(path) = text.strip_prefix("file:") {
            return Ok(Self::File(path.into()));
        }
        if !text.contains("://") {
            let path = (!text.is_empty()).then(|| Self::File(text.into()));
            return path.ok_or(InvalidJwksSource);
        }
        let uri: Uri = text.parse().map_err(|_| InvalidJwksSource)?;
        let host = uri.host().unwrap_or_default();
        let nearby = ["localhost", "127.0.0.1", "[::1]"].contains(&host);
        match uri.scheme_str() {
            Some("https") if !host.is_empty() => Ok(Self::Url(text.to_owned())),
            Some("http") if nearby => Ok(Self::Url(text.to_owned())),
            _ => Err(InvalidJwksSource),
        }
    }
}

impl fmt::Display for JwksSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Url(url) => f.write_str(url),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_from_files_and_from_where_nobody_can_change_them() {
        let file = |path: &str| Ok(JwksSource::File(path.into()));
        assert_eq!("keys.json".parse(), file("keys.json"));
        assert_eq!("file:/etc/keys.json".parse(), file("/etc/keys.json"));
        for url in ["https://issuer.example/jwks", "http://127.0.0.1:8001/jwks"] {
            assert_eq!(url.parse(), Ok(JwksSource::Url(url.to_owned())));
        }
        for wrong in [
            "",
            "http://issuer.example/jwks",
            "ftp://a",
            "https://",
            "http://127.0.0.1.evil.example/",
        ] {
            assert_eq!(
                wrong.parse::<JwksSource>(),
                Err(InvalidJwksSource),
                "{wrong}"
            );
        }
    }
}
