//! Verification of bearer tokens (JSON Web Tokens) by `doorman-jwt`, with fixed or followed keys.

mod jwks;

#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc, time::Duration};

pub(super) use doorman_jwt::FailedCheck;
use doorman_jwt::{Key, TokenCache, TokenChecks, install_provider};
use jsonwebtoken::Algorithm;
use serde_json::{Map, Value};

use self::jwks::CurrentKeys;
pub use self::jwks::{InvalidJwks, Jwks};
use super::VerifiedClaims;
use crate::clock;

const LEEWAY: Duration = Duration::from_secs(30);

/// Verifies the bearer tokens (JSON Web Tokens, RFC 7519) of requests, for keys by
/// [claim](crate::Key::jwt). Cheap to clone.
///
/// A token is valid if one of the keys signed it with that key's algorithm, whatever algorithm the
/// token names; issuer and audience match; `exp` is present and not past; `nbf`, if present, is
/// past; its type, if present, is `JWT` or `at+jwt`; no extension is critical (`crit`); and it has
/// at most 8 KiB. This follows the best practices of RFC 8725.
///
/// Valid tokens are cached for up to five minutes, so that each is verified once. Every invalid
/// token costs a signature check. Limit those by [address](crate::Key::client_ip) in an outer
/// layer: one layer makes all keys before any of its limits decides.
///
/// ```
/// use tower_doorman::{Callers, JwtKey, JwtVerifier};
///
/// let key = JwtKey::hs256("a secret of at least thirty-two bytes")?;
/// let verifier = JwtVerifier::new([key], "https://issuer.example", "orders")?;
/// let callers = Callers::new().jwt(verifier);
/// # Ok::<(), tower_doorman::InvalidJwtKey>(())
/// ```
#[derive(Clone)]
pub struct JwtVerifier(Arc<Verifier>);

#[derive(Clone)]
struct Verifier {
    keys: Arc<CurrentKeys>,
    checks: TokenChecks,
    cache: Arc<TokenCache<Box<str>, VerifiedClaims>>,
}

/// A key that verifies signatures, and its one algorithm. Cheap to clone.
#[derive(Debug, Clone)]
pub struct JwtKey(Key);

/// Why keys cannot be used.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum InvalidJwtKey {
    /// The text is no key for this algorithm.
    #[error("invalid key for {0}: {1}")]
    Key(&'static str, String),
    /// There are both secrets and public keys.
    #[error("keys of a verifier must be either all secrets or all public keys")]
    Mixed,
    /// There is no key.
    #[error("a verifier needs at least one key")]
    None,
}

crate::error::debug_as_text!(InvalidJwtKey);

impl JwtVerifier {
    /// Accepts tokens that one of these keys signed, with this issuer and audience. Several keys
    /// let the issuer rotate them.
    ///
    /// # Errors
    /// [`InvalidJwtKey`] if there is no key, or there are secrets and public keys: a caller could
    /// use a public key as a secret.
    pub fn new(
        keys: impl IntoIterator<Item = JwtKey>,
        issuer: &str,
        audience: &str,
    ) -> Result<Self, InvalidJwtKey> {
        let keys: Vec<_> = keys.into_iter().map(|JwtKey(key)| key).collect();
        let is_secret = |key: &&Key| key.algorithm == Algorithm::HS256;
        let secrets = keys.iter().filter(is_secret).count();
        if keys.is_empty() {
            return Err(InvalidJwtKey::None);
        }
        if secrets > 0 && secrets < keys.len() {
            return Err(InvalidJwtKey::Mixed);
        }
        Ok(Self::of(Arc::new(keys.into()), issuer, audience))
    }

    /// Accepts tokens that a key of the issuer's key set signed, with this issuer and audience. A
    /// task on the current tokio runtime follows the set until the verifier is dropped; requests
    /// never wait for it. If the set cannot be read or is invalid, the last valid keys stay in use.
    /// A URL that answers with a set without usable keys revokes all.
    ///
    /// The first read ends before this returns, after five seconds at most. A file must be valid
    /// then. A URL may fail: tokens are invalid until it answers.
    ///
    /// ```no_run
    /// # #[cfg(feature = "reqwest")]
    /// # async fn callers() -> Result<tower_doorman::Callers, tower_doorman::InvalidJwks> {
    /// use tower_doorman::{Callers, Jwks, JwtVerifier};
    ///
    /// let jwks = Jwks::url("https://issuer.example/.well-known/jwks.json");
    /// let verifier = JwtVerifier::jwks(jwks, "https://issuer.example", "orders").await?;
    /// # Ok(
    /// Callers::new().jwt(verifier)
    /// # )
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidJwks`] if the file is missing or invalid, the URL or its certificate authority is
    /// invalid, or there is no tokio runtime.
    ///
    /// # Cancel safety
    /// Safe: it starts nothing before it is done.
    pub async fn jwks(jwks: Jwks, issuer: &str, audience: &str) -> Result<Self, InvalidJwks> {
        Ok(Self::of(jwks.follow().await?, issuer, audience))
    }

    fn of(keys: Arc<CurrentKeys>, issuer: &str, audience: &str) -> Self {
        install_provider();
        Self(Arc::new(Verifier {
            keys,
            checks: TokenChecks::new(issuer, audience, LEEWAY),
            cache: Arc::default(),
        }))
    }

    /// The tolerated difference of clocks, in whole seconds; by default 30 seconds.
    #[must_use]
    pub fn leeway(self, leeway: Duration) -> Self {
        let verifier = Arc::unwrap_or_clone(self.0);
        Self(Arc::new(Verifier {
            checks: verifier.checks.with_leeway(leeway),
            // Cached tokens were accepted with another leeway.
            cache: Arc::default(),
            keys: verifier.keys,
        }))
    }

    pub(super) fn verify(&self, token: &str) -> Result<VerifiedClaims, FailedCheck> {
        let Verifier {
            keys,
            checks,
            cache,
        } = &*self.0;
        let now = clock::now();
        let set = keys.get();
        // Tokens are compared byte by byte, not only by hash.
        if let Some(claims) = cache.get(token, set.generation, now) {
            return Ok(claims);
        }
        let claims = checks.verify::<Map<String, Value>>(token, &set.keys);
        let claims = claims.inspect_err(|check| {
            // A key without an id may have been replaced, too.
            if matches!(check, FailedCheck::UnknownKey | FailedCheck::Signature)
                || set.keys.is_empty()
            {
                keys.request_refresh();
            }
        })?;
        let exp = claims.get("exp").and_then(Value::as_f64);
        let until = now.after(checks.cache_time(exp.ok_or(FailedCheck::Claims)?));
        let claims = VerifiedClaims::from(claims);
        cache.insert(
            token.into(),
            token.len(),
            claims.clone(),
            set.generation,
            until,
        );
        Ok(claims)
    }
}

impl fmt::Debug for JwtVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwtVerifier")
            .field("keys", &self.0.keys.get().keys.len())
            .finish_non_exhaustive()
    }
}

impl JwtKey {
    /// A secret that issuer and service share, for HS256.
    ///
    /// # Errors
    /// [`InvalidJwtKey`] if it is shorter than 32 bytes, or a PEM key.
    pub fn hs256(secret: impl AsRef<[u8]>) -> Result<Self, InvalidJwtKey> {
        let key = Key::from_secret(secret.as_ref());
        key.map(Self)
            .map_err(|invalid| InvalidJwtKey::Key("HS256", invalid.to_string()))
    }

    /// A public RSA key in PEM, for RS256.
    ///
    /// # Errors
    /// [`InvalidJwtKey`] if the text contains none.
    pub fn rs256_pem(pem: impl AsRef<[u8]>) -> Result<Self, InvalidJwtKey> {
        Self::from_pem(Algorithm::RS256, "RS256", pem.as_ref())
    }

    /// A public P-256 key in PEM, for ES256.
    ///
    /// # Errors
    /// [`InvalidJwtKey`] if the text contains none.
    pub fn es256_pem(pem: impl AsRef<[u8]>) -> Result<Self, InvalidJwtKey> {
        Self::from_pem(Algorithm::ES256, "ES256", pem.as_ref())
    }

    /// A public Ed25519 key in PEM, for EdDSA.
    ///
    /// # Errors
    /// [`InvalidJwtKey`] if the text contains none.
    pub fn eddsa_pem(pem: impl AsRef<[u8]>) -> Result<Self, InvalidJwtKey> {
        Self::from_pem(Algorithm::EdDSA, "EdDSA", pem.as_ref())
    }

    fn from_pem(
        algorithm: Algorithm,
        name: &'static str,
        pem: &[u8],
    ) -> Result<Self, InvalidJwtKey> {
        match Key::from_pem(pem) {
            Ok(key) if key.algorithm == algorithm => Ok(Self(key)),
            Ok(other) => {
                let message = format!("must be a public key for {name}, not {:?}", other.algorithm);
                Err(InvalidJwtKey::Key(name, message))
            }
            Err(invalid) => Err(InvalidJwtKey::Key(name, invalid.to_string())),
        }
    }
}
