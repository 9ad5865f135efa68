//! What a key may be made of.

use std::{cell::OnceCell, fmt, net::IpAddr};

use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};

use super::{Absent, Callers, VerifiedClaims, peer};

/// Of a head that no layer looks at.
static NOBODY: Callers = Callers::new();

/// A request without its body: what keys and costs are made of.
#[derive(Clone)]
pub struct RequestHead<'a> {
    method: &'a Method,
    uri: &'a Uri,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
    callers: &'a Callers,
    /// Found when they are first asked for, so that a bad token is verified once a request.
    claims: OnceCell<Result<VerifiedClaims, Absent>>,
}

impl<'a> RequestHead<'a> {
    /// The head of a request.
    #[must_use]
    pub fn of<B>(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
            callers: &NOBODY,
            claims: OnceCell::new(),
        }
    }

    /// The same head for those who tell callers apart in this way.
    pub(crate) fn with_callers<'b>(&'b self, callers: &'b Callers) -> RequestHead<'b> {
        RequestHead {
            callers,
            claims: OnceCell::new(),
            ..*self
        }
    }

    pub(super) fn callers(&self) -> &'a Callers {
        self.callers
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> &'a Method {
        self.method
    }

    /// The target.
    #[must_use]
    pub fn uri(&self) -> &'a Uri {
        self.uri
    }

    /// All headers.
    #[must_use]
    pub fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// The first value of a header. What a header says is a claim of whoever sent the request, not a fact.
    #[must_use]
    pub fn header(&self, name: &HeaderName) -> Option<&'a HeaderValue> {
        self.headers.get(name)
    }

    /// The path of the target as it was sent, also where a router has cut off the part that it was nested by.
    pub(crate) fn full_path(&self) -> &'a str {
        #[cfg(feature = "axum")]
        if let Some(axum::extract::OriginalUri(uri)) = self.extensions.get() {
            return uri.path();
        }
        self.uri.path()
    }

    /// What layers further out have attached to the request.
    #[must_use]
    pub fn extensions(&self) -> &'a Extensions {
        self.extensions
    }

    /// The template of the route that matched, such as `/orders/{id}`: axum's `MatchedPath`. `None` without the feature `axum`, for
    /// requests that no route matched or that a nested service (`nest_service`) serves, and in a layer around the router instead of in it
    /// (`Router::layer`). A layer within a nested router knows the whole template.
    #[must_use]
    pub fn route(&self) -> Option<&'a str> {
        #[cfg(feature = "axum")]
        {
            let path = self.extensions.get::<axum::extract::MatchedPath>()?;
            Some(path.as_str())
        }
        #[cfg(not(feature = "axum"))]
        {
            None
        }
    }

    /// The address at the other end of the connection: [`PeerAddr`](crate::PeerAddr), or with the feature `axum` its
    /// `ConnectInfo<SocketAddr>`, which is there when the router is served as `into_make_service_with_connect_info`. Behind a proxy it is
    /// the proxy's.
    #[must_use]
    pub fn peer(&self) -> Option<IpAddr> {
        peer::find(self.extensions)
    }

    /// What is known of the caller because it was verified, by a layer further out or by this one.
    pub(super) fn claims(&self) -> Result<&VerifiedClaims, Absent> {
        let find = || match self.extensions.get::<VerifiedClaims>() {
            Some(claims) => Ok(claims.clone()),
            None => self.callers.verify(self),
        };
        let claims = self.claims.get_or_init(find);
        claims.as_ref().map_err(|&absent| absent)
    }

    /// Whether tokens of callers are verified where this is looked at.
    pub(crate) fn verifies_tokens(&self) -> bool {
        self.callers.verifies_tokens()
    }

    /// The address of the caller, as far as the [trusted proxies](crate::TrustedProxies) of the layer's handle say; where it trusts
    /// none, and outside of a layer, that of the [peer](Self::peer).
    #[must_use]
    pub fn client_ip(&self) -> Option<IpAddr> {
        self.callers.client_ip(self)
    }
}

impl fmt::Debug for RequestHead<'_> {
    /// Of headers the names only, and of the target the path: tokens and cookies belong in no log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestHead")
            .field("method", &self.method)
            .field("path", &self.uri.path())
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
