//! Test issuers, and settings that trust them.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use jsonwebtoken::{
    Algorithm, EncodingKey, Header, crypto, encode, get_current_timestamp, jwk::Jwk,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Auth, AuthError, AuthSettings};

pub(crate) const SECRET: &str = "a secret of at least thirty-two bytes";
pub(crate) const ISSUER: &str = "https://issuer.example";
pub(crate) const RSA_PUBLIC: &str = include_str!("test_keys/rsa.pub.pem");
pub(crate) const EC_PUBLIC: &str = include_str!("test_keys/ec.pub.pem");
pub(crate) const ED_PUBLIC: &str = include_str!("test_keys/ed.pub.pem");

/// Signs tokens.
pub(crate) struct Issuer {
    pub(crate) algorithm: Algorithm,
    pub(crate) key: EncodingKey,
    pub(crate) kid: Option<String>,
}

impl Issuer {
    pub(crate) fn of_secret(secret: impl AsRef<[u8]>) -> Self {
        Self::new(Algorithm::HS256, EncodingKey::from_secret(secret.as_ref()))
    }

    pub(crate) fn rs256() -> Self {
        let pem = include_bytes!("test_keys/rsa.pem");
        Self::new(Algorithm::RS256, EncodingKey::from_rsa_pem(pem).unwrap())
    }

    pub(crate) fn es256() -> Self {
        let pem = include_bytes!("test_keys/ec.pem");
        Self::new(Algorithm::ES256, EncodingKey::from_ec_pem(pem).unwrap())
    }

    pub(crate) fn eddsa() -> Self {
        let pem = include_bytes!("test_keys/ed.pem");
        Self::new(Algorithm::EdDSA, EncodingKey::from_ed_pem(pem).unwrap())
    }

    fn new(algorithm: Algorithm, key: EncodingKey) -> Self {
        crypto::aws_lc::DEFAULT_PROVIDER.install_default().ok();
        Self {
            algorithm,
            key,
            kid: None,
        }
    }

    pub(crate) fn with_kid(self, kid: &str) -> Self {
        Self {
            kid: Some(kid.to_owned()),
            ..self
        }
    }

    pub(crate) fn header(&self) -> Header {
        let mut header = Header::new(self.algorithm);
        header.kid.clone_from(&self.kid);
        header
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        encode(&self.header(), claims, &self.key).unwrap()
    }

    pub(crate) fn jwk(&self) -> Value {
        let mut jwk = Jwk::from_encoding_key(&self.key, self.algorithm).unwrap();
        jwk.common.key_id.clone_from(&self.kid);
        serde_json::to_value(jwk).unwrap()
    }
}

/// Unix seconds.
pub(crate) fn now() -> i64 {
    i64::try_from(get_current_timestamp()).unwrap()
}

/// Valid claims of a token by a key, changed by `other`.
pub(crate) fn claims(other: &Value) -> Value {
    let mut claims = json!({
        "iss": ISSUER, "aud": "doorman", "sub": "alice", "exp": now() + 600, "scope": "capacity"
    });
    for (name, value) in other.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims
}

/// A temporary directory with keys and grants, and settings that name them.
pub(crate) struct Home {
    pub(crate) settings: AuthSettings,
    pub(crate) folder: TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self {
            settings: AuthSettings::default(),
            folder: TempDir::new().unwrap(),
        }
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn secret(mut self, secret: &str) -> Self {
        self.settings
            .secret_files
            .push(self.write("secret", secret));
        self
    }

    pub(crate) fn key(mut self, pem: &str) -> Self {
        let name = format!("{}.pem", self.settings.key_files.len());
        self.settings.key_files.push(self.write(&name, pem));
        self.settings.issuer = Some(ISSUER.to_owned());
        self
    }

    pub(crate) fn jwks(mut self, keys: &[Value]) -> Self {
        let path = self.write("jwks.json", &json!({"keys": keys}).to_string());
        self.settings.jwks = Some(super::JwksSource::File(path));
        self.settings.issuer = Some(ISSUER.to_owned());
        self
    }

    pub(crate) fn grants(mut self, grants: &str) -> Self {
        self.settings.grants = Some(self.write("grants.yaml", grants));
        self
    }

    pub(crate) fn load(&self) -> Result<Auth, AuthError> {
        Auth::load(self.settings.clone())
    }
}

/// Lets `auth` notice changed files. Time must be paused.
pub(crate) async fn follow_once(auth: &Arc<Auth>) {
    let follow = Arc::clone(auth).follow();
    let stopped = tokio::time::timeout(Duration::from_secs(1), follow).await;
    assert!(stopped.is_err());
}
