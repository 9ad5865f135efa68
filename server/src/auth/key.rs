//! Keys that tokens are signed with. The key decides the algorithm: what a token says of itself only tells which keys to try.

use std::fmt;

use jsonwebtoken::{Algorithm, DecodingKey, errors::Error};

/// HMAC with SHA-256 needs a key as long as its hash: RFC 7518, section 3.2.
const SHORTEST_SECRET: usize = 32;

/// An uncompressed point on P-256: RFC 5480, section 2.2.
const P256_POINT: usize = 65;

/// A key, with the one algorithm that it is used by. It does not show in debug output.
#[derive(Clone)]
pub(super) struct Key {
    /// By which a token may name it.
    pub(super) id: Option<String>,
    pub(super) algorithm: Algorithm,
    pub(super) key: DecodingKey,
}

/// Why a text is not a key, in words that fit behind its place.
#[derive(Debug, thiserror::Error)]
pub(super) enum InvalidKey {
    #[error("a secret must have 32 bytes at least, without white space around it, not {0}")]
    ShortSecret(usize),
    #[error("a key in PEM is no secret: whoever has it could make tokens")]
    PemAsSecret,
    #[error("a private key must stay where tokens are signed: give its public key")]
    Private,
    #[error("is no public key in PEM for RS256, ES256 (P-256) or EdDSA (Ed25519)")]
    NoKey,
}

impl Key {
    /// A secret that signs and verifies; white space around it is none of it.
    pub(super) fn of_secret(bytes: &[u8]) -> Result<Self, InvalidKey> {
        Ok(Self {
            id: None,
            algorithm: Algorithm::HS256,
            key: DecodingKey::from_secret(secret(bytes)?),
        })
    }

    /// A public key in PEM.
    pub(super) fn of_pem(pem: &[u8]) -> Result<Self, InvalidKey> {
        if pem.windows(11).any(|it| it == b"PRIVATE KEY") {
            return Err(InvalidKey::Private);
        }
        type Read = fn(&[u8]) -> Result<DecodingKey, Error>;
        let kinds: [(Algorithm, Read); 3] = [
            (Algorithm::ES256, DecodingKey::from_ec_pem),
            (Algorithm::EdDSA, DecodingKey::from_ed_pem),
            // The last, since it takes any key in PKCS #8 for one of its own.
            (Algorithm::RS256, DecodingKey::from_rsa_pem),
        ];
        let key = kinds
            .into_iter()
            .find_map(|(algorithm, read)| Some((algorithm, read(pem).ok()?)));
        match key {
            Some((algorithm, key)) if fits(algorithm, &key) => Ok(Self {
                id: None,
                algorithm,
                key,
            }),
            _ => Err(InvalidKey::NoKey),
        }
    }
}

/// The secret in a file.
pub(super) fn secret(bytes: &[u8]) -> Result<&[u8], InvalidKey> {
    let secret = bytes.trim_ascii();
    if secret.starts_with(b"-----BEGIN ") {
        return Err(InvalidKey::PemAsSecret);
    }
    if secret.len() < SHORTEST_SECRET {
        return Err(InvalidKey::ShortSecret(secret.len()));
    }
    Ok(secret)
}

/// Whether a key is of the curve that the algorithm means.
pub(super) fn fits(algorithm: Algorithm, key: &DecodingKey) -> bool {
    algorithm != Algorithm::ES256
        || key
            .try_get_as_bytes()
            .is_ok_and(|point| point.len() == P256_POINT)
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key")
            .field("id", &self.id)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}
