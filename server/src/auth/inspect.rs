//! Content of a token, and whether a server accepts it, for `doorman token inspect`.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Map, Value};

use super::{Auth, AuthError, AuthSettings, Unauthenticated, verify::FailedCheck};

/// The parts of a token that people read. Nothing is verified.
#[derive(Debug, Clone, PartialEq)]
pub struct DecodedToken {
    /// The header: algorithm, type and key.
    pub header: Map<String, Value>,
    /// The claims.
    pub claims: Map<String, Value>,
}

impl DecodedToken {
    /// Decodes a token; `None` if it is no signed JWT.
    #[must_use]
    pub fn parse(token: &str) -> Option<Self> {
        let mut parts = token.split('.');
        let mut object = || {
            let bytes = URL_SAFE_NO_PAD.decode(parts.next()?).ok()?;
            serde_json::from_slice(&bytes).ok()
        };
        let decoded = Self {
            header: object()?,
            claims: object()?,
        };
        (parts.count() == 1).then_some(decoded)
    }
}

/// Whether a server accepts a token.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It is valid, and gives these scopes, separated by spaces.
    Accepted {
        /// The scopes; empty: the bearer may do nothing.
        scopes: String,
    },
    /// It is not valid.
    Rejected(FailedCheck),
    /// The key set of its issuer cannot be fetched.
    KeysUnavailable,
}

/// Checks a token as a server with these settings does. Blocks on the file system, and fetches a
/// key set that is at a URL.
///
/// # Errors
/// The settings or their files are invalid.
pub async fn check_token(token: &str, settings: AuthSettings) -> Result<Verdict, AuthError> {
    let auth = Auth::load(settings)?;
    Ok(match auth.verify(token).await {
        Ok(caller) => {
            let scopes = caller.identity().map(|it| it.scopes.to_string());
            Verdict::Accepted {
                scopes: scopes.unwrap_or_default(),
            }
        }
        Err(Unauthenticated::Invalid(check)) => Verdict::Rejected(check),
        Err(Unauthenticated::KeysUnavailable) => Verdict::KeysUnavailable,
        Err(Unauthenticated::NoToken | Unauthenticated::Malformed) => {
            Verdict::Rejected(FailedCheck::Malformed)
        }
    })
}
