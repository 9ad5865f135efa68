//! Tokens for servers that ask for them, and the settings of those servers.

use std::{error::Error, fs, path::Path};

use doorman_server::AuthSettings;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, get_current_timestamp};
use serde::Serialize;

/// How a token is signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signed {
    /// With a secret: HS256.
    Secret,
    /// With a key: ES256.
    Key,
}

const SECRET: &str = "thirty-two bytes and some more of them";
const ISSUER: &str = "https://issuer.example";
const PRIVATE: &[u8] = include_bytes!("../../../../server/src/auth/test_keys/ec.pem");
const PUBLIC: &str = include_str!("../../../../server/src/auth/test_keys/ec.pub.pem");

#[derive(Serialize)]
struct Claims {
    iss: &'static str,
    aud: &'static str,
    sub: &'static str,
    exp: u64,
    scope: &'static str,
}

/// What a server is started with that takes such tokens; its files lie in a folder.
pub(crate) fn settings(signed: Signed, folder: &Path) -> Result<AuthSettings, Box<dyn Error>> {
    let file = |name, text| -> Result<_, Box<dyn Error>> {
        let path = folder.join(name);
        fs::write(&path, text)?;
        Ok(path)
    };
    Ok(match signed {
        Signed::Secret => AuthSettings {
            secret_files: vec![file("secret", SECRET)?],
            ..AuthSettings::default()
        },
        Signed::Key => AuthSettings {
            key_files: vec![file("key.pem", PUBLIC)?],
            issuer: Some(ISSUER.to_owned()),
            ..AuthSettings::default()
        },
    })
}

/// The value of `authorization` with a token that is good for an hour.
pub(crate) fn bearer(signed: Signed) -> Result<String, Box<dyn Error>> {
    let (algorithm, key, iss) = match signed {
        Signed::Secret => {
            let key = EncodingKey::from_secret(SECRET.as_bytes());
            (Algorithm::HS256, key, AuthSettings::NAME)
        }
        Signed::Key => {
            let key = EncodingKey::from_ec_pem(PRIVATE)?;
            (Algorithm::ES256, key, ISSUER)
        }
    };
    let claims = Claims {
        iss,
        aud: AuthSettings::NAME,
        sub: "system:serviceaccount:shop:orders",
        exp: get_current_timestamp().saturating_add(3600),
        scope: "capacity",
    };
    Ok(format!(
        "Bearer {}",
        encode(&Header::new(algorithm), &claims, &key)?
    ))
}
