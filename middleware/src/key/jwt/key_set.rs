//! Verification keys, and JSON Web Key Sets (RFC 7517) as an issuer publishes them.

use jsonwebtoken::{
    Algorithm, DecodingKey,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse},
};
use serde::Deserialize;
use serde_json::Value;

/// The most keys of a set: a token without a key id is tried with each of its algorithm.
const MAX_KEYS: usize = 64;
/// An uncompressed point on P-256 (RFC 5480, section 2.2), in bytes.
const P256_POINT: usize = 65;

/// A key, its only algorithm, and the id by which a token may name it.
#[derive(Clone)]
pub(super) struct VerificationKey {
    pub(super) id: Option<String>,
    pub(super) algorithm: Algorithm,
    pub(super) key: DecodingKey,
}

/// The keys that are valid at one time.
#[derive(Clone, Default)]
pub(super) struct KeySet {
    pub(super) keys: Vec<VerificationKey>,
    /// Another number after every change. A cached token is valid with its own set only.
    pub(super) generation: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidSet {
    #[error("must be a JSON Web Key Set (RFC 7517)")]
    NotASet,
    #[error("must have at most 64 keys, not {0}")]
    TooMany(usize),
    #[error("has no public key for RS256, ES256 or EdDSA")]
    NoKey,
}

/// Reads the signature keys of a set. Others are skipped, and secrets.
pub(super) fn read(text: &[u8]) -> Result<Vec<VerificationKey>, InvalidSet> {
    #[derive(Deserialize)]
    struct Set {
        keys: Vec<Value>,
    }

    let Set { keys } = serde_json::from_slice(text).map_err(|_| InvalidSet::NotASet)?;
    if keys.len() > MAX_KEYS {
        return Err(InvalidSet::TooMany(keys.len()));
    }
    let keys: Vec<_> = keys.into_iter().filter_map(read_key).collect();
    if keys.is_empty() {
        return Err(InvalidSet::NoKey);
    }
    Ok(keys)
}

fn read_key(value: Value) -> Option<VerificationKey> {
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
    if !is_usable {
        return None;
    }
    let key = DecodingKey::from_jwk(&jwk).ok()?;
    let is_point = || {
        let point = key.try_get_as_bytes();
        point.is_ok_and(|point| point.len() == P256_POINT)
    };
    if algorithm == Algorithm::ES256 && !is_point() {
        return None;
    }
    Some(VerificationKey {
        id: jwk.common.key_id,
        algorithm,
        key,
    })
}
