//! How a process tells its callers apart.

use std::{fmt, net::IpAddr, sync::Arc};

use super::{
    Absent, RequestHead, VerifiedClaims, api_key, forwarded::TrustedProxies, presented::Presented,
};
#[cfg(feature = "jwt")]
use super::{JwtVerifier, presented};

/// What a process needs to know to tell its callers apart: which proxies it trusts, how it verifies tokens and by what secret it
/// hashes API keys. Cheap to clone.
///
/// It holds for every layer that a handle makes, so that it is said once, and also counts for limits that are not written in the
/// program. Every instance of a fleet must say the same, or one caller has a key at each.
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
/// let layer = doorman.layer([Limit::rate(Key::client_ip())]);
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
    /// Trusts nobody.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            proxies: TrustedProxies::none(),
            api_key_secret: None,
            #[cfg(feature = "jwt")]
            verifier: None,
        }
    }

    /// Which proxies may say whose request it is, for [`Key::client_ip`](crate::Key::client_ip).
    #[must_use]
    pub fn trusted_proxies(mut self, proxies: TrustedProxies) -> Self {
        self.proxies = proxies;
        self
    }

    /// A secret by which API keys are hashed, so that who sees ids of resources, but does not know the secret, cannot try out which
    /// key is behind one. Needed where keys can be guessed; the same on every instance.
    #[must_use]
    pub fn api_key_secret(mut self, secret: impl AsRef<[u8]>) -> Self {
        self.api_key_secret = Some(secret.as_ref().into());
        self
    }

    /// How the bearer tokens of requests are verified, for [`Key::jwt`](crate::Key::jwt).
    #[cfg(feature = "jwt")]
    #[must_use]
    pub fn jwt(mut self, verifier: JwtVerifier) -> Self {
        self.verifier = Some(verifier);
        self
    }

    pub(super) fn client_ip(&self, head: &RequestHead<'_>) -> Option<IpAddr> {
        self.proxies.client(head.peer(), head.headers())
    }

    pub(super) fn hash_api_key(&self, key: &Presented<'_>) -> api_key::Hashed {
        api_key::hash(key, self.api_key_secret.as_deref())
    }

    /// Whether tokens are verified here.
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

    /// The claims of the request's token, if it counts.
    #[cfg(feature = "jwt")]
    pub(super) fn verify(&self, head: &RequestHead<'_>) -> Result<VerifiedClaims, Absent> {
        let verifier = self.verifier.as_ref().ok_or(Absent::Token)?;
        let header = &http::header::AUTHORIZATION;
        let token = presented::find(head.headers(), header)
            .filter(|presented| presented.scheme.eq_ignore_ascii_case(b"bearer"))
            .ok_or(Absent::Token)?;
        let token = std::str::from_utf8(token.secret).ok();
        token
            .and_then(|token| verifier.verify(token))
            .ok_or(Absent::GoodToken)
    }

    /// Nobody verifies tokens here.
    #[cfg(not(feature = "jwt"))]
    pub(super) fn verify(&self, _: &RequestHead<'_>) -> Result<VerifiedClaims, Absent> {
        Err(Absent::Token)
    }
}

impl fmt::Debug for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callers")
            .field("proxies", &self.proxies)
            .finish_non_exhaustive()
    }
}
