//! Which resource a request spends: a key is made of the request's head, the same on every instance.

mod api_key;
mod callers;
mod claims;
mod encode;
mod forwarded;
mod head;
mod host;
#[cfg(feature = "jwt")]
mod jwt;
mod peer;
mod presented;
mod template;
#[cfg(test)]
mod tests;
mod value;
mod write;

use std::{borrow::Cow, fmt, sync::Arc};

use doorman_openapi::{InvalidKeyTemplate, MAX_VALUE_BYTES, ResourceId};

pub(crate) use self::encode::constant;
#[cfg(feature = "jwt")]
pub use self::jwt::{InvalidJwtKey, JwtKey, JwtVerifier};
use self::value::{Maker, Value};
pub(crate) use self::write::{Absent, Made};
pub use self::{
    callers::Callers,
    claims::{InvalidClaims, VerifiedClaims},
    forwarded::{ForwardedHeader, InvalidNetwork, TrustedProxies},
    head::RequestHead,
    peer::PeerAddr,
    template::InvalidKey,
};

/// Which resource a request spends. Cheap to clone.
///
/// Where an id is made of values of the request, they are percent-encoded (all but `A-Z a-z 0-9 - . _ ~`), and those over 40 bytes
/// are hashed when the id would exceed 256 bytes. So a value can neither reach out of its place in the id, nor make an id that the
/// control plane refuses.
///
/// Whoever sends a request chooses its headers: limit by a header only what a layer further out has checked, or what costs the
/// sender nothing to be limited by.
#[derive(Clone)]
pub struct Key {
    /// As written in the program, but for the case of the names of headers: the default name of the limit.
    text: Arc<str>,
    parts: Arc<[Part]>,
}

/// What happens to a request of which a key cannot be made: it lacks the header, its peer is not known, or its token does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MissingKey {
    /// All such requests share one key, which has `(missing)` in place of the value.
    #[default]
    Shared,
    /// The limit does not apply to it.
    Skip,
    /// It is refused: with status 401 and `WWW-Authenticate: Bearer` where a token that counts is missing, else with 400.
    Reject,
}

#[derive(Clone)]
enum Part {
    Text(Box<str>),
    Value(Value),
}

impl Key {
    /// One resource for all requests.
    ///
    /// A text that is no resource id becomes one: control characters are percent-encoded, over 256 bytes are hashed, and the empty
    /// one is `(empty)`. Braces mean nothing here, see [`template`](Self::template).
    #[must_use]
    pub fn constant(resource: &str) -> Self {
        Self {
            text: resource.into(),
            parts: [Part::Text(constant(resource).as_str().into())].into(),
        }
    }

    /// A resource a value of a header: `x-tenant/acme`. Of several lines the first counts.
    ///
    /// Whoever sends the request chooses it, unless a layer further out has checked it.
    ///
    /// # Errors
    /// [`InvalidKey`] when there can be no header of that name, or it is `Authorization`, `Cookie` or `Proxy-Authorization`: their values
    /// are secrets, and stand in an id only as a [hash](Self::api_key).
    pub fn header(name: &str) -> Result<Self, InvalidKey> {
        let name = name.to_ascii_lowercase();
        Ok(Self {
            text: name.as_str().into(),
            ..Self::template(&format!("{name}/{{header:{name}}}"))?
        })
    }

    /// A resource a method: `method/GET`. A sender can make up methods, which become keys unless a layer further out refuses them.
    #[must_use]
    pub fn method() -> Self {
        Self::one("method", Value::Method)
    }

    /// A resource a route: `route/%2Forders%2F%7Bid%7D`, and `route/(unmatched)` for requests without one, which share
    /// it: see [`RequestHead::route`]. No sender can make up routes.
    #[must_use]
    pub fn route() -> Self {
        Self::one("route", Value::Route)
    }

    /// A resource an address at the other end of the connection: `peer/192.0.2.1`. All addresses of an IPv6 network of 64 bits are
    /// one. See [`RequestHead::peer`].
    #[must_use]
    pub fn peer() -> Self {
        Self::one("peer", Value::Peer)
    }

    /// A resource a caller's address: `client_ip/192.0.2.1`. All addresses of an IPv6 network of 64 bits are one, and IPv4 addresses
    /// mapped into IPv6 are IPv4.
    ///
    /// Trusted are the connection's [peer](RequestHead::peer), which the server must make known, and, where the process's [`Callers`]
    /// name any, the proxies in front of it: as [`TrustedProxies`] says. Without them it is the same as [`peer`](Self::peer).
    #[must_use]
    pub fn client_ip() -> Self {
        Self::one("client_ip", Value::ClientIp)
    }

    /// A resource a host that is asked for: `host/api.example.com`, in lower case and without the port.
    ///
    /// Whoever sends the request chooses it, unless a proxy or the routing by hosts lets no other pass.
    #[must_use]
    pub fn host() -> Self {
        Self::one("host", Value::Host)
    }

    /// A resource an API key, from the header `x-api-key`: `api_key/` and 32 hexadecimal digits of its hash. The key itself is in
    /// no id. A template can name another header: `{api_key:authorization}`.
    ///
    /// It is not known here whether the key is valid: put the layer behind the one that checks keys, or a caller who makes keys up is
    /// limited by each of them. Keys that can be guessed need a [secret](Callers::api_key_secret).
    #[must_use]
    pub fn api_key() -> Self {
        Self::one("api_key", Value::ApiKey(template::API_KEY))
    }

    /// A resource a value of a claim: `jwt:sub/alice`. The claim is a string, a whole number, `true` or `false`; a text that begins
    /// with a slash is a JSON Pointer (RFC 6901) to a claim within others, such as `/realm/tenant`, every other one is a name.
    ///
    /// The claims are those of the bearer token in `Authorization`, verified by the [verifier](Callers#method.jwt) of the process (feature
    /// `jwt`), or the [`VerifiedClaims`] that a layer further out has put into the request's extensions. Without either there are
    /// none: a claim that nobody has verified is never looked at, nor is a token that does not count.
    ///
    /// # Errors
    /// [`InvalidKey`] when the name is empty, has a brace in it, or is so long that it leaves no room for a value.
    pub fn jwt(claim: &str) -> Result<Self, InvalidKey> {
        let name = format!("jwt:{claim}");
        Ok(Self {
            text: name.as_str().into(),
            ..Self::template(&format!("{name}/{{{name}}}"))?
        })
    }

    /// A resource a value that a closure takes from the request: `<name>/<value>`. `None`, or an empty value: it cannot be made.
    ///
    /// # Errors
    /// [`InvalidKey`] when the name is so long that it leaves no room for a value.
    pub fn from_fn<F>(name: &str, make: F) -> Result<Self, InvalidKey>
    where
        F: for<'a> Fn(&RequestHead<'a>) -> Option<Cow<'a, str>> + Send + Sync + 'static,
    {
        let mut clean = String::new();
        encode::push_text(&mut clean, name);
        let longest = clean.len().saturating_add(1 + MAX_VALUE_BYTES);
        if longest > encode::MAX_ID {
            return Err(InvalidKeyTemplate::TooLong(longest).into());
        }
        Ok(Self::one(&clean, Value::Made(Arc::new(make))))
    }

    /// A resource a combination of values: `tenant/{header:x-tenant}/{route}`. The rest is constant. Between two placeholders there
    /// must be a character that no value contains, such as `/`, so that no two combinations make the same id.
    ///
    /// | placeholder | value |
    /// |---|---|
    /// | `{header:NAME}` | of a [header](Self::header) |
    /// | `{api_key}`, `{api_key:NAME}` | hash of an [API key](Self::api_key), in a header of that name |
    /// | `{jwt:CLAIM}` | of a [claim](Self::jwt) of a verified token |
    /// | `{client_ip}` | [address of the caller](Self::client_ip) |
    /// | `{peer}` | [address at the other end of the connection](Self::peer) |
    /// | `{host}` | [host that is asked for](Self::host) |
    /// | `{method}` | [method](Self::method) |
    /// | `{route}` | [template of the route](Self::route) |
    ///
    /// # Errors
    /// [`InvalidKey`] when a placeholder is not one of these, nothing separates it from the one before, it names a
    /// [header of secrets](Self::header), a brace has no other, or the constant text leaves no room.
    pub fn template(template: &str) -> Result<Self, InvalidKey> {
        template::parse(template, &[])
    }

    /// A [template](Self::template) that may also have values which closures take from the request: `{name}` is what the closure of that
    /// name gives, encoded as all values are. `None`, or an empty value: the key cannot be made. Closures of several types, or whose
    /// type is not inferred, are given as
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
    /// [`InvalidKey`] as for a template. The names of the other placeholders keep their meaning.
    pub fn template_with<N, F>(
        template: &str,
        makers: impl IntoIterator<Item = (N, F)>,
    ) -> Result<Self, InvalidKey>
    where
        N: AsRef<str>,
        F: for<'a> Fn(&RequestHead<'a>) -> Option<Cow<'a, str>> + Send + Sync + 'static,
    {
        let makers: Vec<_> = makers
            .into_iter()
            .map(|(name, make)| (name.as_ref().to_owned(), Arc::new(make) as Arc<Maker>))
            .collect();
        template::parse(template, &makers)
    }

    fn one(name: &str, value: Value) -> Self {
        let text = Part::Text(format!("{name}/").into());
        Self {
            text: name.into(),
            parts: [text, Part::Value(value)].into(),
        }
    }

    /// As written in the program, with the names of headers in lower case.
    pub(crate) fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// Whether it is made of a token's claims.
    pub(crate) fn needs_claims(&self) -> bool {
        let mut parts = self.parts.iter();
        parts.any(|part| matches!(part, Part::Value(Value::Jwt(_))))
    }

    /// The resource, when it is one for all requests.
    pub(crate) fn as_constant(&self) -> Option<ResourceId> {
        match &*self.parts {
            [Part::Text(text)] => Some(constant(text)),
            _ => None,
        }
    }
}

impl From<&str> for Key {
    /// The [constant](Key::constant) key.
    fn from(resource: &str) -> Self {
        Self::constant(resource)
    }
}

impl From<String> for Key {
    /// The [constant](Key::constant) key.
    fn from(resource: String) -> Self {
        Self::constant(&resource)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Key").field(&self.text).finish()
    }
}
