//! Settings of authentication.

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use axum::http::Uri;
use doorman_jwt::Key;
use jsonwebtoken::Algorithm;

const MAX_LEEWAY: Duration = Duration::from_secs(300);

/// Settings of authentication. At least one source of keys is required.
#[derive(Debug, Clone)]
pub struct AuthSettings {
    /// Files with secrets for HS256. Each is valid, so that one can replace another.
    pub secret_files: Vec<PathBuf>,
    /// The issuer of tokens signed with a secret.
    pub secret_issuer: String,
    /// Files with public keys in PEM: RSA for RS256, P-256 for ES256, Ed25519 for EdDSA.
    pub key_files: Vec<PathBuf>,
    /// The key set of an issuer.
    pub jwks: Option<JwksSource>,
    /// A file with certificate authorities in PEM for the key set's URL, in addition to those of
    /// the system.
    pub jwks_ca: Option<PathBuf>,
    /// A file with the bearer token for the key set's URL, read before each request.
    pub jwks_token_file: Option<PathBuf>,
    /// The proxy for the key set's URL. `None`: that of the usual environment variables, if any.
    /// It may hold a user and a password.
    pub jwks_proxy: Option<String>,
    /// The issuer of tokens signed with a key; required if there are keys.
    pub issuer: Option<String>,
    /// The audience that tokens must name.
    pub audience: String,
    /// Algorithms of valid keys.
    pub algorithms: Vec<KeyAlgorithm>,
    /// Accepted clock skew between issuer and server, in whole seconds.
    pub leeway: Duration,
    /// A file with the permissions of tokens. With it, tokens signed with a key have no permission
    /// without a grant. Those signed with a secret keep what they claim.
    pub grants: Option<PathBuf>,
}

impl AuthSettings {
    /// The default issuer and audience of `doorman token` and of the server.
    pub const NAME: &'static str = "doorman";

    /// Checks what does not depend on any file.
    pub(super) fn validate(&self) -> Result<(), AuthError> {
        let has_keys = !self.key_files.is_empty() || self.jwks.is_some();
        let invalid = |flag, reason: &str| Err(AuthError::new(flag, None, reason));
        if self.secret_files.is_empty() && !has_keys {
            return invalid(
                "--auth-secret-file, --auth-key-file or --auth-jwks",
                "one of them is required",
            );
        }
        if self.audience.is_empty() {
            return invalid("--auth-audience", "must not be empty");
        }
        if self.leeway > MAX_LEEWAY {
            return invalid("--auth-leeway", "must be at most 300 seconds");
        }
        for (flag, is_given) in [
            ("--auth-jwks-token-file", self.jwks_token_file.is_some()),
            ("--auth-jwks-proxy", self.jwks_proxy.is_some()),
        ] {
            if is_given && !matches!(self.jwks, Some(JwksSource::Url(_))) {
                return invalid(flag, "requires an --auth-jwks that is an address");
            }
        }
        if self.jwks_proxy.is_some()
            && let Some(JwksSource::Url(url)) = &self.jwks
            && !url.starts_with("https://")
        {
            return invalid("--auth-jwks-proxy", "requires an --auth-jwks with https://");
        }
        match &self.issuer {
            Some(issuer) if issuer.is_empty() => invalid("--auth-issuer", "must not be empty"),
            None if has_keys => invalid(
                "--auth-issuer",
                "is missing; must be the `iss` of tokens signed with a key",
            ),
            Some(_) if !has_keys => invalid(
                "--auth-issuer",
                "requires --auth-key-file or --auth-jwks; for secrets use --auth-secret-issuer",
            ),
            // A key of one issuer is not valid for another, so their names must differ.
            Some(issuer) if !self.secret_files.is_empty() && *issuer == self.secret_issuer => {
                invalid("--auth-issuer", "must not be that of --auth-secret-issuer")
            }
            Some(_) | None => Ok(()),
        }
    }
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
            jwks_proxy: None,
            issuer: None,
            audience: Self::NAME.to_owned(),
            algorithms: Key::PUBLIC.map(KeyAlgorithm).to_vec(),
            leeway: Duration::from_secs(5),
            grants: None,
        }
    }
}

/// Settings, keys or grants are invalid. A line that names the flag.
#[derive(Debug)]
pub struct AuthError {
    flag: &'static str,
    source: Option<String>,
    reason: String,
}

impl AuthError {
    pub(super) fn new(
        flag: &'static str,
        source: Option<String>,
        reason: impl Into<String>,
    ) -> Self {
        Self {
            flag,
            source,
            reason: reason.into(),
        }
    }
}

impl fmt::Display for AuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.flag)?;
        if let Some(source) = &self.source {
            write!(f, " {source}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl std::error::Error for AuthError {}

/// A signature algorithm of public keys: RS256, ES256 or EdDSA. `none` is impossible, and so is a
/// public key as a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyAlgorithm(pub(super) Algorithm);

/// A text is not the name of an algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be RS256, ES256 or EdDSA; HS256 comes with --auth-secret-file")]
pub struct UnknownAlgorithm;

impl FromStr for KeyAlgorithm {
    type Err = UnknownAlgorithm;

    fn from_str(text: &str) -> Result<Self, UnknownAlgorithm> {
        let algorithm = text.parse().ok().filter(|it| Key::PUBLIC.contains(it));
        algorithm.map(Self).ok_or(UnknownAlgorithm)
    }
}

/// Location of an issuer's key set (RFC 7517).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JwksSource {
    /// A file whose changes are followed.
    File(PathBuf),
    /// A URL, fetched every ten minutes and when a token has an unknown key. It appears in logs,
    /// so it must not hold a user or a password.
    Url(String),
}

/// A text is not the location of a key set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be the path of a file or an https:// address; http:// is allowed only on this machine"
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
    fn jwks_source_is_a_file_or_a_secure_url() {
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
