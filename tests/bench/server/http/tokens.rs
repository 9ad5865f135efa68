//! Tokens of the load, and the settings of a server that accepts them.

use std::{error::Error, fs, path::Path};

use doorman_server::AuthSettings;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, get_current_timestamp};
use serde::Serialize;

/// The signature algorithm of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signature {
    Hs256,
    Es256,
}

const SECRET: &str = "thirty-two bytes and some more of them";
const ISSUER: &str = "https://issuer.example";
const PRIVATE_KEY: &[u8] = include_bytes!("../../../../server/src/auth/test_keys/ec.pem");
const PUBLIC_KEY: &str = include_str!("../../../../server/src/auth/test_keys/ec.pub.pem");

#[derive(Serialize)]
struct Claims {
    iss: &'static str,
    aud: &'static str,
    sub: &'static str,
    exp: u64,
    scope: &'static str,
}

/// Settings that accept such tokens. The key file is written to `folder`.
pub(crate) fn auth_settings(
    signature: Signature,
    folder: &Path,
) -> Result<AuthSettings, Box<dyn Error>> {
    let write = |name, text| -> Result<_, Box<dyn Error>> {
        let path = folder.join(name);
        fs::write(&path, text)?;
        Ok(path)
    };
    Ok(match signature {
        Signature::Hs256 => AuthSettings {
            secret_files: vec![write("secret", SECRET)?],
            ..AuthSettings::default()
        },
        Signature::Es256 => AuthSettings {
            key_files: vec![write("key.pem", PUBLIC_KEY)?],
            issuer: Some(ISSUER.to_owned()),
            ..AuthSettings::default()
        },
    })
}

/// An `authorization` value with a token that is valid for an hour.
pub(crate) fn authorization(signature: Signature) -> Result<String, Box<dyn Error>> {
    let (algorithm, key, iss) = match signature {
        Signature::Hs256 => {
            let key = EncodingKey::from_secret(SECRET.as_bytes());
            (Algorithm::HS256, key, AuthSettings::NAME)
        }
        Signature::Es256 => {
            let key = EncodingKey::from_ec_pem(PRIVATE_KEY)?;
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
    let token = encode(&Header::new(algorithm), &claims, &key)?;
    Ok(format!("Bearer {token}"))
}
