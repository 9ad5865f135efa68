//! Sets of keys as issuers publish them: RFC 7517.

use jsonwebtoken::{
    Algorithm, DecodingKey,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse},
};
use serde::Deserialize;
use serde_json::Value;

use super::key::{Key, fits};

/// The most keys of a set: a token without a `kid` is tried with each of its kind.
const MOST_KEYS: usize = 64;

#[derive(Deserialize)]
struct Set {
    keys: Vec<Value>,
}

/// Why a text is not a set of keys, in words that fit behind its place.
#[derive(Debug, thiserror::Error)]
pub(super) enum InvalidSet {
    #[error("is no JSON Web Key Set (RFC 7517)")]
    NotASet,
    #[error("has no keys at all")]
    Empty,
    #[error("has {0} keys; 64 are the most")]
    TooMany(usize),
    #[error("has no public key for RS256, ES256 or EdDSA that --auth-algorithms allows")]
    NoKey,
}

/// The keys of a set that are for signatures by one of these algorithms. Others are passed over: issuers publish keys for other
/// purposes beside them. So are secrets, which have no place in what is public.
pub(super) fn read(text: &[u8], allowed: &[Algorithm]) -> Result<Vec<Key>, InvalidSet> {
    let set: Set = serde_json::from_slice(text).map_err(|_| InvalidSet::NotASet)?;
    if set.keys.is_empty() {
        return Err(InvalidSet::Empty);
    }
    if set.keys.len() > MOST_KEYS {
        return Err(InvalidSet::TooMany(set.keys.len()));
    }
    let keys: Vec<_> = set.keys.into_iter().filter_map(key).collect();
    let keys: Vec<_> = keys
        .into_iter()
        .filter(|key| allowed.contains(&key.algorithm))
        .collect();
    if keys.is_empty() {
        return Err(InvalidSet::NoKey);
    }
    Ok(keys)
}

fn key(value: Value) -> Option<Key> {
    let jwk: Jwk = serde_json::from_value(value).ok()?;
    let algorithm = algorithm(&jwk)?;
    let key = DecodingKey::from_jwk(&jwk).ok()?;
    fits(algorithm, &key).then_some(Key {
        id: jwk.common.key_id,
        algorithm,
        key,
    })
}

/// The one algorithm of a key: that which it names, if it is one of ours and of the key's kind, or that of its kind.
fn algorithm(jwk: &Jwk) -> Option<Algorithm> {
    let of_its_kind = match &jwk.algorithm {
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
    (is_for_signatures && named.is_none_or(|named| named == of_its_kind.0)).then_some(of_its_kind.1)
}
