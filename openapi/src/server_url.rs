//! URLs of servers, as users give them to clients.

use std::{fmt, str::FromStr};

use http::{
    Uri,
    uri::{Authority, Scheme},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The most bytes of a URL in a request.
const MAX_BYTES: usize = 1024;

/// URL of a server: `http://` or `https://`, a host, and optionally a port and the path prefix of a
/// proxy.
///
/// ```
/// use doorman_openapi::ServerUrl;
///
/// let server: ServerUrl = "https://proxy.example/doorman/".parse()?;
/// assert_eq!(format!("{server}/v1/capacity"), "https://proxy.example/doorman/v1/capacity");
/// # Ok::<(), doorman_openapi::InvalidServerUrl>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerUrl {
    scheme: Scheme,
    authority: Authority,
    /// Without a trailing slash.
    prefix: String,
}

/// A text is not the URL of a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidServerUrl {
    /// Only the scheme is missing.
    #[error("must begin with http:// or https://, such as {0}")]
    NoScheme(ServerUrl),
    /// Anything else.
    #[error(
        "must be like http://host:7300, optionally with a path, and without user, query or fragment"
    )]
    Malformed,
}

impl ServerUrl {
    fn parse(text: &str) -> Option<Self> {
        // Parsing drops a fragment.
        if text.contains('#') {
            return None;
        }
        let parts = text.parse::<Uri>().ok()?.into_parts();
        let (scheme, authority) = (parts.scheme?, parts.authority?);
        let is_http = scheme == Scheme::HTTP || scheme == Scheme::HTTPS;
        if !is_http || authority.as_str().contains('@') || authority.host().is_empty() {
            return None;
        }
        let prefix = match parts.path_and_query {
            Some(path) if path.query().is_some() => return None,
            Some(path) => path.path().trim_end_matches('/').to_owned(),
            None => String::new(),
        };
        Some(Self {
            scheme,
            authority,
            prefix,
        })
    }

    /// Whether the scheme is `https`.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// The host: a name or an address, in brackets for IPv6.
    #[must_use]
    pub fn host(&self) -> &str {
        self.authority.host()
    }

    /// Whether a URI, with whatever path, query and fragment, is at this server.
    #[must_use]
    pub fn serves(&self, uri: &str) -> bool {
        let base = uri.split(['?', '#']).next().unwrap_or_default();
        Self::parse(base).is_some_and(|other| {
            let (host, other_host) = (self.authority.host(), other.authority.host());
            self.scheme == other.scheme
                && self.port() == other.port()
                && host.eq_ignore_ascii_case(other_host)
        })
    }

    fn port(&self) -> u16 {
        let default = if self.is_encrypted() { 443 } else { 80 };
        self.authority.port_u16().unwrap_or(default)
    }
}

impl FromStr for ServerUrl {
    type Err = InvalidServerUrl;

    fn from_str(text: &str) -> Result<Self, InvalidServerUrl> {
        if let Some(url) = Self::parse(text) {
            return Ok(url);
        }
        let with_scheme = Self::parse(&format!("http://{text}"));
        Err(match with_scheme.filter(|_| !text.contains("://")) {
            Some(url) => InvalidServerUrl::NoScheme(url),
            None => InvalidServerUrl::Malformed,
        })
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.authority, self.prefix)
    }
}

impl Serialize for ServerUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ServerUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.len() > MAX_BYTES {
            return Err(de::Error::custom(format_args!(
                "must be at most {MAX_BYTES} bytes"
            )));
        }
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_urls_are_parsed() {
        for (text, url) in [
            ("http://127.0.0.1:7300", "http://127.0.0.1:7300"),
            ("http://a:7300/", "http://a:7300"),
            ("https://doorman.example/", "https://doorman.example"),
            ("https://a/limits/", "https://a/limits"),
            ("HTTPS://a/x/y", "https://a/x/y"),
            ("http://[::1]:7300", "http://[::1]:7300"),
        ] {
            assert_eq!(text.parse::<ServerUrl>().unwrap().to_string(), url);
        }
        for text in [
            "",
            "/v1",
            "ftp://a",
            "http://",
            "http://a?b",
            "http://a#b",
            "http://a/?query",
            "http://user:secret@a",
            "user:secret@a",
        ] {
            let invalid = text.parse::<ServerUrl>();
            assert_eq!(invalid, Err(InvalidServerUrl::Malformed), "{text}");
        }
    }

    #[test]
    fn url_in_a_request_is_validated() {
        let url: ServerUrl = serde_json::from_str(r#""http://a:7300/""#).unwrap();
        assert_eq!(serde_json::to_string(&url).unwrap(), r#""http://a:7300""#);
        let long = format!(r#""http://{}""#, "a".repeat(MAX_BYTES));
        for (text, expected) in [
            (r#""a:7300""#, "must begin with http://"),
            (r#""ftp://a""#, "must be like http://host:7300"),
            (&*long, "must be at most 1024 bytes"),
            ("1", "expected a string"),
        ] {
            let error = serde_json::from_str::<ServerUrl>(text).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn missing_scheme_is_suggested() {
        for (text, suggested) in [
            ("a", "http://a"),
            ("localhost:7300", "http://localhost:7300"),
            ("127.0.0.1:7300/limits/", "http://127.0.0.1:7300/limits"),
        ] {
            let error = text.parse::<ServerUrl>().unwrap_err().to_string();
            let expected = format!("must begin with http:// or https://, such as {suggested}");
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn server_serves_uris_of_its_scheme_host_and_port() {
        let server: ServerUrl = "http://Host-A/limits".parse().unwrap();
        for (uri, expected) in [
            ("http://host-a", true),
            ("http://host-a:80/v1/capacity?x=1#y", true),
            ("https://host-a", false),
            ("http://host-a:81", false),
            ("http://host-b", false),
            ("http://host-a@host-b", false),
            ("/v1/capacity", false),
            ("", false),
        ] {
            assert_eq!(server.serves(uri), expected, "{uri}");
        }
    }
}
