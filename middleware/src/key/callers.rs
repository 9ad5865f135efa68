//! Identification of callers: trusted proxies, bearer tokens and API keys.

use std::{fmt, net::IpAddr, sync::Arc};

use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderName, header::AUTHORIZATION};
use sha2::Sha256;

#[cfg(feature = "jwt")]
use super::{JwtVerifier, jwt::FailedCheck};
use super::{TrustedProxies, VerifiedClaims};
use crate::refusal::RefusalReason;

/// The HMAC key of API keys without a secret. It separates these hashes from all others.
const NO_SECRET: &[u8] = b"doorman api key";

/// How a process identifies its callers: trusted proxies, verification of tokens, and the secret
/// that hashes API keys. Cheap to clone. It applies to all layers of a handle. Configure every
/// instance of a fleet alike, or they make different keys of one caller.
///
/// ```no_run
/// # #[cfg(feature = "reqwest")]
/// # fn build() -> Result<(), Box<dyn std::error::Error>> {
/// use tower_doorman::{Callers, Doorman, ForwardedHeader, Key, Limit, TrustedProxies};
///
/// let behind_a_balancer = TrustedProxies::hops(1, ForwardedHeader::XForwardedFor);
/// let doorman = Doorman::builder("http://127.0.0.1:7300")
///     .callers(Callers::new().trusted_proxies(behind_a_balancer))
///     .spawn()?;
/// let layer = doorman.layer(Limit::rate(Key::client_ip()))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Callers {
    proxies: TrustedProxies,
    api_key_secret: Option<Arc<[u8]>>,
    #[cfg(feature = "jwt")]
    verifier: Option<JwtVerifier>,
}

impl Callers {
    /// Trusts no proxies and verifies no tokens.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            proxies: TrustedProxies::none(),
            api_key_secret: None,
            #[cfg(feature = "jwt")]
            verifier: None,
        }
    }

    /// The trusted proxies, for [`Key::client_ip`](crate::Key::client_ip).
    #[must_use]
    pub fn trusted_proxies(mut self, proxies: TrustedProxies) -> Self {
        self.proxies = proxies;
        self
    }

    /// The secret that hashes API keys, the same on every instance. Needed if API keys can be
    /// guessed: without it, a reader of resource ids can test guesses.
    #[must_use]
    pub fn api_key_secret(mut self, secret: impl AsRef<[u8]>) -> Self {
        self.api_key_secret = Some(secret.as_ref().into());
        self
    }

    /// The verifier of bearer tokens, for [`Key::jwt`](crate::Key::jwt).
    #[cfg(feature = "jwt")]
    #[must_use]
    pub fn jwt(mut self, verifier: JwtVerifier) -> Self {
        self.verifier = Some(verifier);
        self
    }

    pub(super) fn client_ip(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Option<IpAddr> {
        self.proxies.client_ip(peer, headers)
    }

    pub(super) fn hash_api_key(&self, key: &HeaderCredential<'_>) -> [u8; 32] {
        let secret = self.api_key_secret.as_deref().unwrap_or(NO_SECRET);
        let mut mac =
            Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
        if !key.scheme.is_empty() {
            // Schemes are case-insensitive, RFC 9110 section 11.1.
            for byte in key.scheme {
                mac.update(&[byte.to_ascii_lowercase()]);
            }
            mac.update(b" ");
        }
        mac.update(key.secret);
        mac.finalize().into_bytes().into()
    }

    pub(crate) fn verifies_tokens(&self) -> bool {
        #[cfg(feature = "jwt")]
        {
            self.verifier.is_some()
        }
        #[cfg(not(feature = "jwt"))]
        {
            false
        }
    }

    #[cfg(feature = "jwt")]
    pub(super) fn verify(&self, headers: &HeaderMap) -> Result<VerifiedClaims, RefusalReason> {
        let verifier = self.verifier.as_ref().ok_or(RefusalReason::MissingToken)?;
        let token = header_credential(headers, &AUTHORIZATION)
            .filter(|credential| credential.scheme.eq_ignore_ascii_case(b"bearer"))
            .ok_or(RefusalReason::MissingToken)?;
        std::str::from_utf8(token.secret)
            .map_err(|_| FailedCheck::Malformed)
            .and_then(|token| verifier.verify(token))
            .map_err(|failed| {
                // At debug level, as callers can send any number of invalid tokens.
                tracing::debug!(failed_check = failed.name(), "invalid bearer token");
                RefusalReason::InvalidToken
            })
    }

    #[cfg(not(feature = "jwt"))]
    pub(super) fn verify(&self, _: &HeaderMap) -> Result<VerifiedClaims, RefusalReason> {
        Err(RefusalReason::MissingToken)
    }
}

impl fmt::Debug for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callers")
            .field("proxies", &self.proxies)
            .finish_non_exhaustive()
    }
}

/// A token or API key in a header.
pub(super) struct HeaderCredential<'a> {
    /// The authentication scheme in `Authorization`; empty in other headers.
    scheme: &'a [u8],
    secret: &'a [u8],
}

/// `None` if the header is missing, empty or repeated. Of two values, the service could use the one
/// that the limit ignores.
pub(super) fn header_credential<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Option<HeaderCredential<'a>> {
    let mut values = headers.get_all(name).into_iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let value = value.as_bytes().trim_ascii();
    let (scheme, secret) = if *name == AUTHORIZATION {
        // A scheme and one or more spaces, RFC 9110 section 11.4.
        let end = value.iter().position(|&byte| byte == b' ')?;
        let (scheme, secret) = value.split_at_checked(end)?;
        (scheme, secret.trim_ascii_start())
    } else {
        (&[][..], value)
    };
    (!secret.is_empty()).then_some(HeaderCredential { scheme, secret })
}
