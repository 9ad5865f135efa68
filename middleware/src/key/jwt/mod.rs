//! Tokens that the layer verifies itself.

mod known;
mod signing;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc, time::Duration};

use doorman_openapi::Moment;
use jsonwebtoken::{DecodingKey, Validation, crypto, decode, get_current_timestamp};
use serde_json::{Map, Value};

use self::known::Known;
pub use self::signing::{InvalidJwtKey, JwtKey};
use super::VerifiedClaims;
use crate::clock;

/// No token is longer, in bytes.
const LONGEST_TOKEN: usize = 8 * 1024;
/// How far the clocks of issuer and service may be apart unless it is said.
const LEEWAY: Duration = Duration::from_secs(30);
/// A token is verified again after so long, in case the wall clock was set meanwhile.
const VERIFIED_FOR: Duration = Duration::from_secs(300);

/// Verifies the bearer tokens (JSON Web Tokens, RFC 7519) of requests, for keys by [claim](crate::Key::jwt). Cheap to clone.
///
/// A token counts when one of the keys has signed it by that key's own algorithm, whatever the token says of itself; it names the
/// issuer and the audience; `exp` is there and not past; `nbf`, if there, has come; it asks for no extension (`crit`); and it is 8 KiB
/// long at most. In all else it is as none. Following the best practices of RFC 8725.
///
/// A token that was found good is remembered, at most until its end, so that each is verified once; a bad one costs the check of a
/// signature every time. A layer by [address](crate::Key::client_ip) further out keeps that within bounds; within one layer every key
/// is made before any limit decides.
///
/// ```
/// use tower_doorman::{Callers, JwtKey, JwtVerifier};
///
/// let key = JwtKey::hs256("a secret of at least thirty-two bytes")?;
/// let verifier = JwtVerifier::new([key], "https://issuer.example", "orders")?;
/// let callers = Callers::new().jwt(verifier);
/// # Ok::<(), tower_doorman::InvalidJwtKey>(())
/// ```
#[derive(Clone)]
pub struct JwtVerifier(Arc<Verifier>);

#[derive(Clone)]
struct Verifier {
    keys: Vec<(DecodingKey, Validation)>,
    known: Arc<Known>,
}

impl JwtVerifier {
    /// Accepts the tokens that one of these keys has signed, for this audience in the name of this issuer. Several keys, so that an
    /// issuer can change to another.
    ///
    /// # Errors
    /// [`InvalidJwtKey`] when there is no key, or there are secrets together with public keys: who knows a public key could pass it
    /// off as a secret.
    pub fn new(
        keys: impl IntoIterator<Item = JwtKey>,
        issuer: &str,
        audience: &str,
    ) -> Result<Self, InvalidJwtKey> {
        // Without it, a build in which somebody else has switched on jsonwebtoken's other provider would panic at the first token. If
        // the program has chosen one already, that stays.
        crypto::aws_lc::DEFAULT_PROVIDER.install_default().ok();
        let keys: Vec<_> = keys.into_iter().collect();
        signing::check_together(&keys)?;
        let with_validation = |key: JwtKey| {
            let mut validation = Validation::new(key.algorithm);
            validation.set_issuer(&[issuer]);
            validation.set_audience(&[audience]);
            // Claims that are absent would pass, and `nbf` is not looked at, unless it is said.
            validation.set_required_spec_claims(&["exp", "iss", "aud"]);
            validation.validate_nbf = true;
            validation.leeway = LEEWAY.as_secs();
            (key.key, validation)
        };
        Ok(Self(Arc::new(Verifier {
            keys: keys.into_iter().map(with_validation).collect(),
            known: Arc::new(Known::new()),
        })))
    }

    /// How far the clocks of issuer and service may be apart, in whole seconds: half a minute unless it is said.
    #[must_use]
    pub fn leeway(self, leeway: Duration) -> Self {
        let mut verifier = Arc::unwrap_or_clone(self.0);
        for (_, validation) in &mut verifier.keys {
            validation.leeway = leeway.as_secs();
        }
        // What is known was found good by another measure.
        verifier.known = Arc::new(Known::new());
        Self(Arc::new(verifier))
    }

    /// The claims of a token, if it counts.
    pub(super) fn verify(&self, token: &str) -> Option<VerifiedClaims> {
        let now = clock::now();
        if let Some(claims) = self.0.known.get(token, now) {
            return Some(claims);
        }
        if token.len() > LONGEST_TOKEN {
            return None;
        }
        let (claims, until) = self.0.keys.iter().find_map(|key| check(token, key, now))?;
        self.0.known.insert(token, claims.clone(), until);
        Some(claims)
    }
}

/// Checks a token by one key; its claims, and until when they count.
fn check(
    token: &str,
    (key, validation): &(DecodingKey, Validation),
    now: Moment,
) -> Option<(VerifiedClaims, Moment)> {
    let data = decode::<Map<String, Value>>(token, key, validation).ok()?;
    // Extensions that must be understood, RFC 7515 section 4.1.11: there is none that is.
    if data.header.crit.is_some() {
        return None;
    }
    // The wall clock is asked once; from here on it is the clock that nobody sets.
    let end = data.claims.get("exp")?.as_f64()? + validation.leeway as f64;
    let left = (end - get_current_timestamp() as f64).clamp(0.0, VERIFIED_FOR.as_secs_f64());
    let left = Duration::try_from_secs_f64(left).ok()?;
    Some((data.claims.into(), now.after(left)))
}

impl fmt::Debug for JwtVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwtVerifier")
            .field("keys", &self.0.keys.len())
            .finish_non_exhaustive()
    }
}
