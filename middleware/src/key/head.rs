//! Request heads: what keys, costs and predicates read of a request.

use std::{
    cell::OnceCell,
    fmt,
    net::{IpAddr, SocketAddr},
};

use doorman_openapi::PathSpellings;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header};

use super::{Callers, VerifiedClaims};
use crate::refusal::RefusalReason;

/// The longest host name, RFC 1035 section 2.3.4.
pub(super) const MAX_HOST_BYTES: usize = 255;

/// The callers of a head outside of a layer.
static NO_CALLERS: Callers = Callers::new();

/// The address at the other end of the connection. A server other than axum adds it to the
/// extensions of each request, for keys by address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PeerAddr(pub SocketAddr);

/// A request without its body: the input of keys and costs.
#[derive(Clone)]
pub struct RequestHead<'a> {
    method: &'a Method,
    uri: &'a Uri,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
    callers: &'a Callers,
    /// Cached, so that an invalid token is verified once per request.
    claims: OnceCell<Result<VerifiedClaims, RefusalReason>>,
    /// Those of the whole path, for all rules.
    spellings: OnceCell<PathSpellings>,
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
            callers: &NO_CALLERS,
            claims: OnceCell::new(),
            spellings: OnceCell::new(),
        }
    }

    pub(crate) fn with_callers<'b>(&'b self, callers: &'b Callers) -> RequestHead<'b> {
        RequestHead {
            callers,
            claims: OnceCell::new(),
            spellings: OnceCell::new(),
            ..*self
        }
    }

    pub(crate) fn callers(&self) -> &'a Callers {
        self.callers
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> &'a Method {
        self.method
    }

    /// The URI.
    #[must_use]
    pub fn uri(&self) -> &'a Uri {
        self.uri
    }

    /// All headers.
    #[must_use]
    pub fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// The first value of a header. The caller can send any value.
    #[must_use]
    pub fn header(&self, name: &HeaderName) -> Option<&'a HeaderValue> {
        self.headers.get(name)
    }

    /// The path as it was sent, including the prefix that a nested router removes.
    pub(crate) fn full_path(&self) -> &'a str {
        #[cfg(feature = "axum")]
        if let Some(axum::extract::OriginalUri(uri)) = self.extensions.get() {
            return uri.path();
        }
        self.uri.path()
    }

    /// The spellings of the whole path.
    pub(crate) fn path_spellings(&self) -> &PathSpellings {
        (self.spellings).get_or_init(|| PathSpellings::of(self.full_path()))
    }

    /// The extensions, as set by the server and outer layers.
    #[must_use]
    pub fn extensions(&self) -> &'a Extensions {
        self.extensions
    }

    /// The template of the matched route, such as `/orders/{id}`: axum's `MatchedPath`, with the
    /// prefix of nested routers. `None` without the feature `axum`, if no route matched or a
    /// `nest_service` did, and in a layer around the router instead of inside it (`Router::layer`).
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

    /// The address at the other end of the connection: of [`PeerAddr`], or with the feature `axum`
    /// of `ConnectInfo<SocketAddr>`, which `into_make_service_with_connect_info` adds. Behind a
    /// proxy it is the proxy's address.
    #[must_use]
    pub fn peer(&self) -> Option<IpAddr> {
        if let Some(PeerAddr(address)) = self.extensions.get() {
            return Some(address.ip().to_canonical());
        }
        #[cfg(feature = "axum")]
        if let Some(axum::extract::ConnectInfo(address)) = self
            .extensions
            .get::<axum::extract::ConnectInfo<SocketAddr>>()
        {
            return Some(address.ip().to_canonical());
        }
        None
    }

    /// The address of the client according to the [trusted proxies](crate::TrustedProxies) of the
    /// layer. It is the [peer](Self::peer) if the layer trusts none, and outside of a layer.
    #[must_use]
    pub fn client_ip(&self) -> Option<IpAddr> {
        self.callers.client_ip(self.peer(), self.headers)
    }

    /// The claims verified by an outer layer, or by this one.
    pub(super) fn claims(&self) -> Result<&VerifiedClaims, RefusalReason> {
        let find = || match self.extensions.get::<VerifiedClaims>() {
            Some(claims) => Ok(claims.clone()),
            None => self.callers.verify(self.headers),
        };
        let claims = self.claims.get_or_init(find);
        claims.as_ref().map_err(|&reason| reason)
    }

    pub(crate) fn verifies_tokens(&self) -> bool {
        self.callers.verifies_tokens()
    }
}

impl fmt::Debug for RequestHead<'_> {
    /// Header names and the path only: values and queries may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestHead")
            .field("method", &self.method)
            .field("path", &self.uri.path())
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// Without its port: of the URI (RFC 9112 section 3.2.2), else of a single `Host` header.
pub(super) fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    let host = match uri.host() {
        Some(host) => host,
        None => {
            let mut values = headers.get_all(header::HOST).into_iter();
            let (Some(value), None) = (values.next(), values.next()) else {
                return None;
            };
            without_port(value.to_str().ok()?.trim())?
        }
    };
    // A trailing dot, of the root, names the same host.
    let host = host.strip_suffix('.').unwrap_or(host);
    (1..=MAX_HOST_BYTES).contains(&host.len()).then_some(host)
}

fn without_port(authority: &str) -> Option<&str> {
    let end = if authority.starts_with('[') {
        authority.find(']')?.saturating_add(1)
    } else {
        authority.find(':').unwrap_or(authority.len())
    };
    authority.get(..end)
}
