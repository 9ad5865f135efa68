//! Verification keys: secrets, PEM texts and JSON Web Key Sets (RFC 7517).

use jsonwebtoken::{
    Algorithm, DecodingKey,
    errors::Error,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse},
};
use serde::Deserialize;
use serde_json::Value;

/// HMAC with SHA-256 needs a key as long as its hash (RFC 7518, section 3.2), in bytes.
const MIN_SECRET: usize = 32;

/// An uncompressed point on P-256 (RFC 5480, section 2.2), in bytes.
const P256_POINT: usize = 65;

/// The most keys of a set: a token without a `kid` is tried with each key of its algorithm.
const MAX_KEYS: usize = 64;

/// A key that verifies signatures, and its only algorithm. Debug output hides the key.
#[derive(Debug, Clone)]
pub struct Key {
    /// The `kid` by which a token may name it.
    pub id: Option<String>,
    /// Its algorithm.
    pub algorithm: Algorithm,
    pub(crate) key: DecodingKey,
}

/// Why a text is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidKey {
    /// The secret is too short.
    #[error("a secret must have at least 32 bytes, not {0}")]
    ShortSecret(usize),
    /// A key in PEM, possibly public, is used as a secret.
    #[error("must be a secret and must not be a PEM key: everybody who has it could sign tokens")]
    PemAsSecret,
    /// The key is a private one.
    #[error("must be a public key; a private key belongs only where tokens are signed")]
    Private,
    /// There is no key of a supported kind.
    #[error("must be a public key in PEM for RS256, ES256 (P-256) or EdDSA (Ed25519)")]
    NoKey,
}

/// Why a text is no key set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSet {
    /// It has another format.
    #[error("must be a JSON Web Key Set (RFC 7517)")]
    NotASet,
    /// It has too many keys.
    #[error("must have at most 64 keys, not {0}")]
    TooMany(usize),
    /// It has no usable key. An issuer that had some has revoked them all.
    #[error("has no public key for RS256, ES256 or EdDSA")]
    NoKey,
}

impl Key {
    /// The algorithms of public keys.
    pub const PUBLIC: [Algorithm; 3] = [Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA];

    /// A shared secret, for HS256.
    ///
    /// # Errors
    /// It is too short, or a key in PEM.
    pub fn from_secret(secret: &[u8]) -> Result<Self, InvalidKey> {
        Ok(Self {
            id: None,
            algorithm: Algorithm::HS256,
            key: DecodingKey::from_secret(checked_secret(secret)?),
        })
    }

    /// A public key in PEM: RSA for RS256, P-256 for ES256, Ed25519 for EdDSA.
    ///
    /// # Errors
    /// It is a private key, or of another kind.
    pub fn from_pem(pem: &[u8]) -> Result<Self, InvalidKey> {
        type Parse = fn(&[u8]) -> Result<DecodingKey, Error>;

        if pem.windows(11).any(|it| it == b"PRIVATE KEY") {
            return Err(InvalidKey::Private);
        }
        let kinds: [(Algorithm, Parse); 3] = [
            (Algorithm::ES256, DecodingKey::from_ec_pem),
            (Algorithm::EdDSA, DecodingKey::from_ed_pem),
            // Last: it accepts any PKCS #8 key.
            (Algorithm::RS256, DecodingKey::from_rsa_pem),
        ];
        let (algorithm, key) = kinds
            .into_iter()
            .find_map(|(algorithm, parse)| Some((algorithm, parse(pem).ok()?)))
            .ok_or(InvalidKey::NoKey)?;
        Self::new(None, algorithm, key).ok_or(InvalidKey::NoKey)
    }

    /// A key of a set, unless it names another use, or another algorithm than that of its type.
    fn from_jwk(value: Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(value).ok()?;
        let (name, algorithm) = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => (KeyAlgorithm::RS256, Algorithm::RS256),
            AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
                (KeyAlgorithm::ES256, Algorithm::ES256)
            }
            AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
                (KeyAlgorithm::EdDSA, Algorithm::EdDSA)
            }
            _ => return None,
        };
        let common = &jwk.common;
        let is_usable = matches!(common.public_key_use, None | Some(PublicKeyUse::Signature))
            && common.key_algorithm.is_none_or(|named| named == name);
        let key = DecodingKey::from_jwk(&jwk).ok().filter(|_| is_usable)?;
        Self::new(jwk.common.key_id, algorithm, key)
    }

    /// `None` for a key of ES256 that is no point on P-256.
    fn new(id: Option<String>, algorithm: Algorithm, key: DecodingKey) -> Option<Self> {
        let is_point = |key: &DecodingKey| {
            let point = key.try_get_as_bytes();
            point.is_ok_and(|point| point.len() == P256_POINT)
        };
        let has_curve = algorithm != Algorithm::ES256 || is_point(&key);
        has_curve.then_some(Self { id, algorithm, key })
    }
}

/// A secret that is long enough for HS256.
///
/// # Errors
/// It is too short, or a key in PEM.
pub fn checked_secret(secret: &[u8]) -> Result<&[u8], InvalidKey> {
    if secret.trim_ascii_start().starts_with(b"-----BEGIN ") {
        return Err(InvalidKey::PemAsSecret);
    }
    if secret.len() < MIN_SECRET {
        return Err(InvalidKey::ShortSecret(secret.len()));
    }
    Ok(secret)
}

/// Reads the signature keys of a set that an allowed algorithm uses. Skips others, and secrets.
///
/// # Errors
/// It is no set, is too large, or has no such key.
pub fn read_set(text: &[u8], allowed: &[Algorithm]) -> Result<Vec<Key>, InvalidSet> {
    #[derive(Deserialize)]
    struct Set {
        keys: Vec<Value>,
    }

    let Set { keys } = serde_json::from_slice(text).map_err(|_| InvalidSet::NotASet)?;
    if keys.len() > MAX_KEYS {
        return Err(InvalidSet::TooMany(keys.len()));
    }
    let keys: Vec<_> = keys
        .into_iter()
        .filter_map(Key::from_jwk)
        .filter(|key| allowed.contains(&key.algorithm))
        .collect();
    if keys.is_empty() {
        return Err(InvalidSet::NoKey);
    }
    Ok(keys)
}
