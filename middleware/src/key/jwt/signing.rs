//! The keys that tokens are signed with.

use std::fmt;

use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, errors::Error};

/// HMAC with SHA-256 needs a key as long as its hash: RFC 7518 section 3.2.
const SHORTEST_SECRET: usize = 32;

/// A key that an issuer signs tokens with, and the one algorithm that it is used by. Cheap to clone; it does not show in debug output.
#[derive(Clone)]
pub struct JwtKey {
    pub(super) algorithm: Algorithm,
    pub(super) key: DecodingKey,
}

/// Why a key cannot be used, or not with others.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidJwtKey {
    /// What is given is no key of the kind in PEM.
    #[error("there is no public key for {0} in the PEM")]
    Pem(&'static str, #[source] Error),
    /// The secret can be guessed.
    #[error("a secret for HS256 must have 32 bytes at least, not {0}")]
    ShortSecret(usize),
    /// What is given as a secret is a key in PEM, which others may know.
    #[error("a key in PEM is no secret for HS256")]
    PemAsSecret,
    /// There are both secrets and public keys.
    #[error("a verifier takes either secrets or public keys")]
    Mixed,
    /// There is no key.
    #[error("a verifier needs a key")]
    None,
}

impl JwtKey {
    /// A secret that issuer and service share, for HS256.
    ///
    /// # Errors
    /// [`InvalidJwtKey`] when it is shorter than 32 bytes, or a key in PEM.
    pub fn hs256(secret: impl AsRef<[u8]>) -> Result<Self, InvalidJwtKey> {
        let secret = secret.as_ref();
        if secret.trim_ascii_start().starts_with(b"-----BEGIN ") {
            return Err(InvalidJwtKey::PemAsSecret);
        }
        if secret.len() < SHORTEST_SECRET {
            return Err(InvalidJwtKey::ShortSecret(secret.len()));
        }
        Ok(Self {
            algorithm: Algorithm::HS256,
            key: DecodingKey::from_secret(secret),
        })
    }

    /// A public key in PEM, for RS256.
    ///
    /// # Errors
    /// [`InvalidJwtKey`] when there is no RSA key in it.
    pub fn rs256_pem(pem: impl AsRef<[u8]>) -> Result<Self, InvalidJwtKey> {
        Self::from_pem(
            Algorithm::RS256,
            "RS256",
            DecodingKey::from_rsa_pem(pem.as_ref()),
        )
    }

    /// A public key in PEM, for ES256 (P-256).
    ///
    /// # Errors
    /// [`InvalidJwtKey`] when there is no elliptic curve's key in it.
    pub fn es256_pem(pem: impl AsRef<[u8]>) -> Result<Self, InvalidJwtKey> {
        Self::from_pem(
            Algorithm::ES256,
            "ES256",
            DecodingKey::from_ec_pem(pem.as_ref()),
        )
    }

    /// A public key in PEM, for EdDSA (Ed25519).
    ///
    /// # Errors
    /// [`InvalidJwtKey`] when there is no Ed25519 key in it.
    pub fn eddsa_pem(pem: impl AsRef<[u8]>) -> Result<Self, InvalidJwtKey> {
        Self::from_pem(
            Algorithm::EdDSA,
            "EdDSA",
            DecodingKey::from_ed_pem(pem.as_ref()),
        )
    }

    fn from_pem(
        algorithm: Algorithm,
        name: &'static str,
        key: Result<DecodingKey, Error>,
    ) -> Result<Self, InvalidJwtKey> {
        let key = key.map_err(|error| InvalidJwtKey::Pem(name, error))?;
        Ok(Self { algorithm, key })
    }

    fn is_secret(&self) -> bool {
        self.key.family() == AlgorithmFamily::Hmac
    }
}

/// Whether one verifier may have these keys.
pub(super) fn check_together(keys: &[JwtKey]) -> Result<(), InvalidJwtKey> {
    let secrets = keys.iter().filter(|key| key.is_secret()).count();
    match keys.len() {
        0 => Err(InvalidJwtKey::None),
        all if secrets == 0 || secrets == all => Ok(()),
        _ => Err(InvalidJwtKey::Mixed),
    }
}

impl fmt::Debug for JwtKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwtKey")
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}
