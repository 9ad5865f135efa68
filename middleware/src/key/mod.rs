//! Keys: map the head of a request to its resource.

mod callers;
mod claims;
mod forwarded;
mod head;
#[cfg(feature = "jwt")]
mod jwt;
mod resource_id;
mod template;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, fmt, sync::Arc};

use doorman_openapi::{InvalidKeyTemplate, MAX_VALUE_BYTES, PrefixLengths, ResourceId};

#[cfg(feature = "jwt")]
pub use self::jwt::{InvalidJwks, InvalidJwtKey, Jwks, JwtKey, JwtVerifier};
use self::template::{Part, ValueFn};
pub use self::{
    callers::Callers,
    claims::{InvalidClaims, VerifiedClaims},
    forwarded::{ForwardedHeader, InvalidNetwork, TrustedProxies},
    head::{PeerAddr, RequestHead},
    template::InvalidKey,
};
pub(crate) use self::{
    resource_id::{KeyPrefix, is_unreserved, to_resource_id},
    template::Placeholder,
};

/// Maps a request to a resource. Cheap to clone.
///
/// A text becomes a [template](Self::template) if it has braces, else a
/// [constant](Self::constant): `"api"`, `"tenant/{header:x-tenant}"`. An invalid template or empty
/// text is an error when a [layer](crate::Doorman::layer) is built.
///
/// Values of the request are percent-encoded in the resource id (all but `A-Z a-z 0-9 - . _ ~`). If
/// the id would exceed 256 bytes, values over 40 bytes are hashed. A value can therefore neither
/// imitate another part of the id nor make the id invalid. A caller chooses its headers: limit by a
/// header only if an outer layer verifies it, or if changing it gains nothing.
#[derive(Clone)]
pub struct Key {
    /// The template, with header names in lower case: the default name of the limit.
    text: Arc<str>,
    parts: Arc<[Part]>,
    /// Why the text that it was converted from is no template.
    invalid: Option<Arc<InvalidKey>>,
    /// Literal text that looks like a placeholder, of a key converted from a text.
    like_placeholder: Option<&'static str>,
}

impl Key {
    /// The same resource for all requests. In the id, control characters are percent-encoded, a
    /// text over 256 bytes is hashed, and an empty one becomes `(empty)`. Braces are literal
    /// here, unlike in a text that is converted to a key.
    #[must_use]
    pub fn constant(resource: &str) -> Self {
        let id = Part::Text(to_resource_id(resource).as_str().into());
        Self::new(resource, [id])
    }

    /// One resource per value of a header, the first if it is repeated: `x-tenant/acme`. The caller
    /// chooses the value, unless an outer layer verifies it.
    ///
    /// # Errors
    /// [`InvalidKey`] if the name is invalid, or is `Authorization`, `Cookie` or
    /// `Proxy-Authorization`: use the [hash](Self::api_key) of a secret.
    pub fn header(name: &str) -> Result<Self, InvalidKey> {
        let name = name.to_ascii_lowercase();
        Ok(Self {
            text: name.as_str().into(),
            ..Self::template(&format!("{name}/{{header:{name}}}"))?
        })
    }

    /// One resource per method: `method/GET`. The caller can invent methods, unless an outer layer
    /// rejects them.
    #[must_use]
    pub fn method() -> Self {
        Self::single("method", Placeholder::Method)
    }

    /// One resource per route: `route/%2Forders%2F%7Bid%7D`, and `route/(unmatched)` for all
    /// requests without a [route](RequestHead::route). The caller cannot invent routes.
    #[must_use]
    pub fn route() -> Self {
        Self::single("route", Placeholder::Route)
    }

    /// One resource per [peer address](RequestHead::peer) or IPv6 /64 network: `peer/192.0.2.1`.
    #[must_use]
    pub fn peer() -> Self {
        Self::single("peer", Placeholder::Peer(PrefixLengths::default()))
    }

    /// One resource per client address: `client_ip/192.0.2.1`, according to the [`TrustedProxies`]
    /// of [`Callers`]; without them the [`peer`](Self::peer). The addresses of an IPv6 /64 network
    /// share one resource, and IPv4-mapped IPv6 addresses are IPv4.
    #[must_use]
    pub fn client_ip() -> Self {
        Self::single("client_ip", Placeholder::ClientIp(PrefixLengths::default()))
    }

    /// One resource per requested host, in lower case and without the port: `host/api.example.com`.
    /// The caller chooses the host, unless a proxy or router rejects unknown ones.
    #[must_use]
    pub fn host() -> Self {
        Self::single("host", Placeholder::Host)
    }

    /// One resource per API key in the header `x-api-key`: `api_key/` and 32 hexadecimal digits of
    /// its hash. A template can name another header: `{api_key:authorization}`. The layer does not
    /// validate API keys: put it inside the layer that does, or a caller gets a new limit with
    /// every invented one. API keys that can be guessed need a [secret](Callers::api_key_secret).
    #[must_use]
    pub fn api_key() -> Self {
        Self::single("api_key", Placeholder::ApiKey(template::API_KEY))
    }

    /// One resource per value of a string, integer or boolean claim: `jwt:sub/alice`. A claim that
    /// begins with a slash is a JSON Pointer (RFC 6901) to a nested one, such as `/realm/tenant`.
    /// The claims are the [`VerifiedClaims`] in the request's extensions, or those of the bearer
    /// token in `Authorization` after the [verifier](Callers#method.jwt) accepted it (feature
    /// `jwt`). Claims that nothing verified are ignored.
    ///
    /// # Errors
    /// [`InvalidKey`] if the claim is empty, contains a brace, or is too long.
    pub fn jwt(claim: &str) -> Result<Self, InvalidKey> {
        let name = format!("jwt:{claim}");
        Ok(Self {
            text: name.as_str().into(),
            ..Self::template(&format!("{name}/{{{name}}}"))?
        })
    }

    /// One resource per result of a closure: `<name>/<value>`. No key if it is `None` or empty. It
    /// may be called twice for a request.
    ///
    /// # Errors
    /// [`InvalidKey`] if the name is too long.
    pub fn from_fn<F>(name: &str, value: F) -> Result<Self, InvalidKey>
    where
        F: for<'a> Fn(&RequestHead<'a>) -> Option<Cow<'a, str>> + Send + Sync + 'static,
    {
        let mut clean = String::new();
        template::push_literal(&mut clean, name);
        let longest = clean.len().saturating_add(1 + MAX_VALUE_BYTES);
        if longest > resource_id::MAX_BYTES {
            return Err(InvalidKeyTemplate::TooLong(longest).into());
        }
        Ok(Self::single(&clean, Placeholder::Closure(Arc::new(value))))
    }

    /// One resource per combination of values: `tenant/{header:x-tenant}/{route}`. Text outside of
    /// placeholders is constant. Two placeholders need a separator that no value contains, such as
    /// `/`, so that different values never make the same id.
    ///
    /// | placeholder | value |
    /// |---|---|
    /// | `{header:NAME}` | a [header](Self::header) |
    /// | `{api_key}`, `{api_key:NAME}` | hash of an [API key](Self::api_key), in the named header |
    /// | `{jwt:CLAIM}` | a [claim](Self::jwt) of a verified token |
    /// | `{client_ip}` | [client address](Self::client_ip) |
    /// | `{client_ip:v4=24,v6=56}` | its network, by prefix lengths; without them 32 and 64 |
    /// | `{peer}`, `{peer:v4=24,v6=56}` | [peer address](Self::peer), likewise |
    /// | `{host}` | [requested host](Self::host) |
    /// | `{method}` | [method](Self::method) |
    /// | `{route}` | [route template](Self::route) |
    ///
    /// # Errors
    /// [`InvalidKey`] if a placeholder is unknown, lacks a separator or names a [header with
    /// secrets](Self::header), a brace is unbalanced, or the constant text is too long.
    pub fn template(template: &str) -> Result<Self, InvalidKey> {
        template::parse(template, &[])
    }

    /// A [template](Self::template) with placeholders of your own: `{name}` is the result of the
    /// closure of that name. If it is `None` or empty, the key is missing. Built-in placeholders
    /// take precedence. Box closures of different types as
    /// `Box<dyn for<'a> Fn(&RequestHead<'a>) -> Option<Cow<'a, str>> + Send + Sync>`.
    ///
    /// ```
    /// use std::borrow::Cow;
    /// use tower_doorman::{Key, RequestHead};
    ///
    /// fn path<'a>(head: &RequestHead<'a>) -> Option<Cow<'a, str>> {
    ///     Some(head.uri().path().to_owned().into())
    /// }
    /// let key = Key::template_with("path/{path}/{method}", [("path", path)])?;
    /// # Ok::<(), tower_doorman::InvalidKey>(())
    /// ```
    ///
    /// # Errors
    /// As for [`template`](Self::template).
    pub fn template_with<N, F>(
        template: &str,
        closures: impl IntoIterator<Item = (N, F)>,
    ) -> Result<Self, InvalidKey>
    where
        N: AsRef<str>,
        F: for<'a> Fn(&RequestHead<'a>) -> Option<Cow<'a, str>> + Send + Sync + 'static,
    {
        let closures: Vec<_> = closures
            .into_iter()
            .map(|(name, value)| (name.as_ref().to_owned(), Arc::new(value) as Arc<ValueFn>))
            .collect();
        template::parse(template, &closures)
    }

    fn single(name: &str, value: Placeholder) -> Self {
        let text = Part::Text(format!("{name}/").into());
        Self::new(name, [text, Part::Value(value)])
    }

    fn new(text: &str, parts: impl Into<Arc<[Part]>>) -> Self {
        Self {
            text: text.into(),
            parts: parts.into(),
            invalid: None,
            like_placeholder: None,
        }
    }

    pub(crate) fn text(&self) -> &Arc<str> {
        &self.text
    }

    pub(crate) fn invalid(&self) -> Option<&InvalidKey> {
        self.invalid.as_deref()
    }

    /// Logs that literal text looks like a placeholder.
    pub(crate) fn warn_like_placeholder(&self) {
        if let Some(sign) = self.like_placeholder {
            tracing::warn!(
                key = &*self.text,
                "key has `{sign}` as literal text; a placeholder is like {{header:x-tenant}}"
            );
        }
    }

    pub(crate) fn needs_claims(&self) -> bool {
        let mut parts = self.parts.iter();
        parts.any(|part| matches!(part, Part::Value(Placeholder::Jwt(_))))
    }

    pub(crate) fn as_constant(&self) -> Option<ResourceId> {
        match &*self.parts {
            [Part::Text(text)] => Some(to_resource_id(text)),
            _ => None,
        }
    }
}

impl<T: AsRef<str>> From<T> for Key {
    fn from(text: T) -> Self {
        let text = text.as_ref();
        let is_constant = !text.is_empty() && !text.contains(['{', '}']);
        let template = (!is_constant).then(|| Self::template(text));
        let (key, invalid) = match template {
            Some(Ok(key)) => (key, None),
            Some(Err(invalid)) => (Self::constant(text), Some(Arc::new(invalid))),
            None => (Self::constant(text), None),
        };
        Self {
            invalid,
            like_placeholder: template::forgotten_brace(text),
            ..key
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Key").field(&self.text).finish()
    }
}
