//! Verification of bearer tokens (JSON Web Tokens), with a cache of verified ones.

mod jwks;
mod key_set;

#[cfg(test)]
mod tests;

use std::{cell::LazyCell, fmt, sync::Arc, time::Duration};

use doorman_openapi::Moment;
use foldhash::fast::RandomState;
use jsonwebtoken::{
    Algorithm, AlgorithmFamily, DecodingKey, Validation, crypto, decode, decode_header,
    errors::{Error, ErrorKind},
    get_current_timestamp,
};
use quick_cache::{
    Weighter,
    sync::{Cache, DefaultLifecycle},
};
use serde_json::{Map, Value};

pub use self::jwks::{InvalidJwks, Jwks};
use self::{
    jwks::RotatedKeys,
    key_set::{KeySet, VerificationKey},
};
use super::VerifiedClaims;
use crate::clock;

/// The longest token in bytes.
const MAX_TOKEN: usize = 8 * 1024;
const LEEWAY: Duration = Duration::from_secs(30);
/// The longest time in the cache: the wall clock may be set meanwhile.
const MAX_CACHED: Duration = Duration::from_secs(300);
/// Bytes of tokens in the cache. Their claims take a few times as much.
const CACHE_BYTES: u64 = 8 * 1024 * 1024;
/// The expected number of cached tokens, of half a kilobyte each.
const CACHE_TOKENS: usize = 16 * 1024;
/// HS256 needs a secret as long as its hash, RFC 7518 section 3.2.
const MIN_SECRET: usize = 32;

/// Verifies the bearer tokens (JSON Web Tokens, RFC 7519) of requests, for keys by
/// [claim](crate::Key::jwt). Cheap to clone.
///
/// A token is valid if one of the keys signed it with that key's algorithm, whatever algorithm the
/// token names; issuer and audience match; `exp` is present and not past; `nbf`, if present, is
/// past; no extension is critical (`crit`); and it has at most 8 KiB. This follows the best
/// practices of RFC 8725.
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
    keys: Keys,
    /// One for each algorithm.
    validations: Vec<(Algorithm, Validation)>,
    cache: Arc<TokenCache>,
}

#[derive(Clone)]
enum Keys {
    Fixed(KeySet),
    Rotated(Arc<RotatedKeys>),
}

/// The check that a token failed, in the order of the checks. The names are those of the control
/// plane's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FailedCheck {
    Malformed,
    Header,
    Algorithm,
    UnknownKey,
    Signature,
    Claims,
    Issuer,
    Audience,
    NotYetValid,
    Expired,
}

impl FailedCheck {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Header => "header",
            Self::Algorithm => "algorithm",
            Self::UnknownKey => "unknown key",
            Self::Signature => "signature",
            Self::Claims => "claims",
            Self::Issuer => "issuer",
            Self::Audience => "audience",
            Self::NotYetValid => "not yet valid",
            Self::Expired => "expired",
        }
    }
}

impl From<&Error> for FailedCheck {
    fn from(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::ExpiredSignature => Self::Expired,
            ErrorKind::ImmatureSignature => Self::NotYetValid,
            ErrorKind::InvalidAudience => Self::Audience,
            ErrorKind::InvalidIssuer => Self::Issuer,
            ErrorKind::MissingRequiredClaim(claim) if claim == "aud" => Self::Audience,
            ErrorKind::MissingRequiredClaim(claim) if claim == "iss" => Self::Issuer,
            ErrorKind::MissingRequiredClaim(_)
            | ErrorKind::InvalidClaimFormat(_)
            | ErrorKind::Json(_)
            | ErrorKind::Utf8(_) => Self::Claims,
            ErrorKind::InvalidToken | ErrorKind::Base64(_) => Self::Malformed,
            ErrorKind::InvalidAlgorithm => Self::Algorithm,
            _ => Self::Signature,
        }
    }
}

const ALGORITHMS: [Algorithm; 4] = [
    Algorithm::HS256,
    Algorithm::RS256,
    Algorithm::ES256,
    Algorithm::EdDSA,
];

/// A key that verifies signatures, and its one algorithm. Cheap to clone.
#[derive(Clone)]
pub struct JwtKey {
    algorithm: Algorithm,
    key: DecodingKey,
}

/// Why keys cannot be used.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum InvalidJwtKey {
    /// The text contains no PEM key of this kind.
    #[error("key for {0} must be a public key in PEM")]
    Pem(&'static str, #[source] Error),
    /// The secret is too short.
    #[error("secret for HS256 must have at least 32 bytes, not {0}")]
    ShortSecret(usize),
    /// A PEM key, possibly public, is used as a secret.
    #[error("secret for HS256 must not be a PEM key")]
    PemAsSecret,
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
        let keys: Vec<_> = keys.into_iter().collect();
        let is_secret = |key: &&JwtKey| key.key.family() == AlgorithmFamily::Hmac;
        let secrets = keys.iter().filter(is_secret).count();
        if keys.is_empty() {
            return Err(InvalidJwtKey::None);
        }
        if secrets > 0 && secrets < keys.len() {
            return Err(InvalidJwtKey::Mixed);
        }
        let keys = keys
            .into_iter()
            .map(|JwtKey { algorithm, key }| VerificationKey {
                id: None,
                algorithm,
                key,
            });
        let keys = KeySet {
            keys: keys.collect(),
            generation: 0,
        };
        Ok(Self::of(Keys::Fixed(keys), issuer, audience))
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
        let keys = Keys::Rotated(jwks.follow().await?);
        Ok(Self::of(keys, issuer, audience))
    }

    fn of(keys: Keys, issuer: &str, audience: &str) -> Self {
        // jsonwebtoken panics without a default provider if another crate enables its second one.
        // A provider that the program installed stays.
        crypto::aws_lc::DEFAULT_PROVIDER.install_default().ok();
        let validation = |algorithm| {
            let mut validation = Validation::new(algorithm);
            validation.set_issuer(&[issuer]);
            validation.set_audience(&[audience]);
            // By default missing claims pass and `nbf` is ignored.
            validation.set_required_spec_claims(&["exp", "iss", "aud"]);
            validation.validate_nbf = true;
            validation.leeway = LEEWAY.as_secs();
            (algorithm, validation)
        };
        Self(Arc::new(Verifier {
            keys,
            validations: ALGORITHMS.map(validation).into(),
            cache: Arc::new(TokenCache::new()),
        }))
    }

    /// The tolerated difference of clocks, in whole seconds; by default 30 seconds.
    #[must_use]
    pub fn leeway(self, leeway: Duration) -> Self {
        let mut verifier = Arc::unwrap_or_clone(self.0);
        for (_, validation) in &mut verifier.validations {
            validation.leeway = leeway.as_secs();
        }
        // Cached tokens were accepted with another leeway.
        verifier.cache = Arc::new(TokenCache::new());
        Self(Arc::new(verifier))
    }

    pub(super) fn verify(&self, token: &str) -> Result<VerifiedClaims, FailedCheck> {
        match &self.0.keys {
            Keys::Fixed(keys) => self.0.verify(token, keys, |_| true),
            Keys::Rotated(rotated) => {
                let keys = rotated.current();
                let id = LazyCell::new(|| decode_header(token).ok()?.kid);
                let claims = self.0.verify(token, &keys, |key| {
                    id.is_none() || key.id.is_none() || key.id == *id
                });
                if claims.is_err() && token.len() <= MAX_TOKEN {
                    let is_unknown = match &*id {
                        Some(_) => keys.keys.iter().all(|key| key.id != *id),
                        None => keys.keys.is_empty(),
                    };
                    if is_unknown {
                        rotated.request_refresh();
                    }
                }
                claims
            }
        }
    }
}

impl Verifier {
    /// The claims of a token that one of these keys signed, of those that it may be signed with.
    fn verify(
        &self,
        token: &str,
        set: &KeySet,
        may_sign: impl Fn(&VerificationKey) -> bool,
    ) -> Result<VerifiedClaims, FailedCheck> {
        let now = clock::now();
        if let Some(claims) = self.cache.get(token, set.generation, now) {
            return Ok(claims);
        }
        if token.len() > MAX_TOKEN {
            return Err(FailedCheck::Malformed);
        }
        let mut failed = None;
        for key in set.keys.iter().filter(|key| may_sign(key)) {
            match self.check(token, key, now) {
                Ok((claims, until)) => {
                    self.cache
                        .insert(token, set.generation, claims.clone(), until);
                    return Ok(claims);
                }
                Err(check) => failed = failed.max(Some(check)),
            }
        }
        Err(match decode_header(token) {
            Ok(_) => failed.unwrap_or(FailedCheck::UnknownKey),
            Err(_) => FailedCheck::Malformed,
        })
    }

    /// The claims of a token that this key signed, and the end of their validity.
    fn check(
        &self,
        token: &str,
        key: &VerificationKey,
        now: Moment,
    ) -> Result<(VerifiedClaims, Moment), FailedCheck> {
        let mut validations = self.validations.iter();
        let (_, validation) = validations
            .find(|(algorithm, _)| *algorithm == key.algorithm)
            .ok_or(FailedCheck::Algorithm)?;
        check(token, &key.key, validation, now)
    }
}

fn check(
    token: &str,
    key: &DecodingKey,
    validation: &Validation,
    now: Moment,
) -> Result<(VerifiedClaims, Moment), FailedCheck> {
    let data = decode::<Map<String, Value>>(token, key, validation)
        .map_err(|error| FailedCheck::from(&error))?;
    // No extension is supported, RFC 7515 section 4.1.11.
    if data.header.crit.is_some() {
        return Err(FailedCheck::Header);
    }
    // The wall clock is read once. The cache uses the monotonic clock.
    let end = data.claims.get("exp").and_then(Value::as_f64);
    let end = end.ok_or(FailedCheck::Claims)? + validation.leeway as f64;
    let left = (end - get_current_timestamp() as f64).clamp(0.0, MAX_CACHED.as_secs_f64());
    let left = Duration::try_from_secs_f64(left).map_err(|_| FailedCheck::Claims)?;
    Ok((data.claims.into(), now.after(left)))
}

impl fmt::Debug for JwtVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = match &self.0.keys {
            Keys::Fixed(keys) => keys.keys.len(),
            Keys::Rotated(rotated) => rotated.current().keys.len(),
        };
        f.debug_struct("JwtVerifier")
            .field("keys", &keys)
            .finish_non_exhaustive()
    }
}

impl JwtKey {
    /// A secret that issuer and service share, for HS256.
    ///
    /// # Errors
    /// [`InvalidJwtKey`] if it is shorter than 32 bytes, or a PEM key.
    pub fn hs256(secret: impl AsRef<[u8]>) -> Result<Self, InvalidJwtKey> {
        let secret = secret.as_ref();
        if secret.trim_ascii_start().starts_with(b"-----BEGIN ") {
            return Err(InvalidJwtKey::PemAsSecret);
        }
        if secret.len() < MIN_SECRET {
            return Err(InvalidJwtKey::ShortSecret(secret.len()));
        }
        Ok(Self {
            algorithm: Algorithm::HS256,
            key: DecodingKey::from_secret(secret),
        })
    }

    /// A public RSA key in PEM, for RS256.
    ///
    /// # Errors
    /// [`InvalidJwtKey`] if the text contains none.
    pub fn rs256_pem(pem: impl AsRef<[u8]>) -> Result<Self, InvalidJwtKey> {
        let key = DecodingKey::from_rsa_pem(pem.as_ref());
        Self::from_pem(Algorithm::RS256, "RS256", key)
    }

    /// A public P-256 key in PEM, for ES256.
    ///
    /// # Errors
    /// [`InvalidJwtKey`] if the text contains no elliptic curve key.
    pub fn es256_pem(pem: impl AsRef<[u8]>) -> Result<Self, InvalidJwtKey> {
        let key = DecodingKey::from_ec_pem(pem.as_ref());
        Self::from_pem(Algorithm::ES256, "ES256", key)
    }

    /// A public Ed25519 key in PEM, for EdDSA.
    ///
    /// # Errors
    /// [`InvalidJwtKey`] if the text contains none.
    pub fn eddsa_pem(pem: impl AsRef<[u8]>) -> Result<Self, InvalidJwtKey> {
        let key = DecodingKey::from_ed_pem(pem.as_ref());
        Self::from_pem(Algorithm::EdDSA, "EdDSA", key)
    }

    fn from_pem(
        algorithm: Algorithm,
        name: &'static str,
        key: Result<DecodingKey, Error>,
    ) -> Result<Self, InvalidJwtKey> {
        let key = key.map_err(|error| InvalidJwtKey::Pem(name, error))?;
        Ok(Self { algorithm, key })
    }
}

impl fmt::Debug for JwtKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwtKey")
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

/// Verified tokens only: callers without a valid token cannot evict those of others.
struct TokenCache(Cache<Box<str>, CachedToken, TokenBytes, RandomState>);

#[derive(Clone)]
struct CachedToken {
    claims: VerifiedClaims,
    until: Moment,
    /// Of the keys that verified it.
    generation: u64,
}

#[derive(Clone)]
struct TokenBytes;

impl TokenCache {
    fn new() -> Self {
        let lifecycle = DefaultLifecycle::default();
        let hasher = RandomState::default();
        Self(Cache::with(
            CACHE_TOKENS,
            CACHE_BYTES,
            TokenBytes,
            hasher,
            lifecycle,
        ))
    }

    /// Tokens are compared byte by byte, not only by hash.
    fn get(&self, token: &str, generation: u64, now: Moment) -> Option<VerifiedClaims> {
        let cached = self.0.get(token)?;
        (now < cached.until && cached.generation == generation).then_some(cached.claims)
    }

    fn insert(&self, token: &str, generation: u64, claims: VerifiedClaims, until: Moment) {
        let cached = CachedToken {
            claims,
            until,
            generation,
        };
        self.0.insert(token.into(), cached);
    }
}

impl Weighter<Box<str>, CachedToken> for TokenBytes {
    fn weight(&self, token: &Box<str>, _: &CachedToken) -> u64 {
        u64::try_from(token.len()).unwrap_or(u64::MAX).max(1)
    }
}
