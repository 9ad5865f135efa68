//! Verification keys: secrets, PEM files and JSON Web Key Sets (RFC 7517).
//!
//! The key determines the algorithm. The claims of a token only select the keys to try.

use std::fmt;

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

/// Key limit of a set: a token without a `kid` is tried with each key of its algorithm.
const MAX_KEYS: usize = 64;

/// A key and its only algorithm. Debug output omits the key.
#[derive(Clone)]
pub(super) struct Key {
    /// The `kid` by which a token may name it.
    pub(super) id: Option<String>,
    pub(super) algorithm: Algorithm,
    pub(super) key: DecodingKey,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum InvalidKey {
    #[error("a secret must have at least 32 bytes, not counting surrounding white space, not {0}")]
    ShortSecret(usize),
    #[error("must be a secret, not a key in PEM: everybody who has the key could sign tokens")]
    PemAsSecret,
    #[error("must be a public key; a private key belongs only where tokens are signed")]
    Private,
    #[error("must be a public key in PEM for RS256, ES256 (P-256) or EdDSA (Ed25519)")]
    NoKey,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum InvalidSet {
    #[error("must be a JSON Web Key Set (RFC 7517)")]
    NotASet,
    #[error("has no keys")]
    Empty,
    #[error("must have at most 64 keys, not {0}")]
    TooMany(usize),
    #[error("has no public key for RS256, ES256 or EdDSA that --auth-algorithms allows")]
    NoKey,
}

impl Key {
    /// A shared secret, without surrounding white space.
    pub(super) fn from_secret(bytes: &[u8]) -> Result<Self, InvalidKey> {
        Ok(Self {
            id: None,
            algorithm: Algorithm::HS256,
            key: DecodingKey::from_secret(secret(bytes)?),
        })
    }

    pub(super) fn from_pem(pem: &[u8]) -> Result<Self, InvalidKey> {
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
        kinds
            .into_iter()
            .find_map(|(algorithm, parse)| Some((algorithm, parse(pem).ok()?)))
            .filter(|(algorithm, key)| has_expected_curve(*algorithm, key))
            .map(|(algorithm, key)| Self {
                id: None,
                algorithm,
                key,
            })
            .ok_or(InvalidKey::NoKey)
    }

    fn from_jwk(value: Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(value).ok()?;
        let algorithm = jwk_algorithm(&jwk)?;
        let key = DecodingKey::from_jwk(&jwk).ok()?;
        has_expected_curve(algorithm, &key).then_some(Self {
            id: jwk.common.key_id,
            algorithm,
            key,
        })
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key")
            .field("id", &self.id)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

pub(super) fn secret(bytes: &[u8]) -> Result<&[u8], InvalidKey> {
    let secret = bytes.trim_ascii();
    if secret.starts_with(b"-----BEGIN ") {
        return Err(InvalidKey::PemAsSecret);
    }
    if secret.len() < MIN_SECRET {
        return Err(InvalidKey::ShortSecret(secret.len()));
    }
    Ok(secret)
}

/// Reads the signature keys of a set that an allowed algorithm uses. Skips others, and secrets.
pub(super) fn read_set(text: &[u8], allowed: &[Algorithm]) -> Result<Vec<Key>, InvalidSet> {
    #[derive(Deserialize)]
    struct Set {
        keys: Vec<Value>,
    }

    let Set { keys } = serde_json::from_slice(text).map_err(|_| InvalidSet::NotASet)?;
    if keys.is_empty() {
        return Err(InvalidSet::Empty);
    }
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

/// The algorithm of the key's type, unless the key names another one or another use.
fn jwk_algorithm(jwk: &Jwk) -> Option<Algorithm> {
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
    let is_for_signatures = matches!(
        jwk.common.public_key_use,
        None | Some(PublicKeyUse::Signature)
    );
    let named = jwk.common.key_algorithm;
    (is_for_signatures && named.is_none_or(|named| named == name)).then_some(algorithm)
}

fn has_expected_curve(algorithm: Algorithm, key: &DecodingKey) -> bool {
    algorithm != Algorithm::ES256
        || key
            .try_get_as_bytes()
            .is_ok_and(|point| point.len() == P256_POINT)
}
