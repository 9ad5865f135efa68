//! Where a server of the control plane is.

use std::fmt;

use http::{
    Uri,
    uri::{Authority, Scheme},
};

/// Why a text is not the address of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be like http://host:7300, without user, query or fragment")]
pub struct InvalidAddress;

/// The address of a server: scheme, host and port, and the path that the API's own paths are put behind, if any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    scheme: Scheme,
    authority: Authority,
    /// Without a slash at its end.
    prefix: String,
}

impl Address {
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidAddress> {
        let uri: Uri = text.parse().map_err(|_| InvalidAddress)?;
        let parts = uri.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(InvalidAddress);
        };
        let known = scheme == Scheme::HTTP || scheme == Scheme::HTTPS;
        let path = parts.path_and_query;
        let query = path.as_ref().is_some_and(|path| path.query().is_some());
        if !known || query || authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(InvalidAddress);
        }
        let prefix = path.map_or(String::new(), |path| {
            path.path().trim_end_matches('/').to_owned()
        });
        Ok(Self {
            scheme,
            authority,
            prefix,
        })
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// The full address of one of the API's paths.
    pub(crate) fn uri(&self, path: &str) -> String {
        format!("{self}{path}")
    }

    /// Whether an address that somebody names, with whatever path, is at this server.
    pub(crate) fn serves(&self, named: &str) -> bool {
        Self::parse(named.split(['?', '#']).next().unwrap_or_default()).is_ok_and(|named| {
            self.scheme == named.scheme
                && self.port() == named.port()
                && self
                    .authority
                    .host()
                    .eq_ignore_ascii_case(named.authority.host())
        })
    }

    fn port(&self) -> u16 {
        let default = if self.is_encrypted() { 443 } else { 80 };
        self.authority.port_u16().unwrap_or(default)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.authority, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_only_what_a_request_can_go_to() {
        for (text, uri) in [
            ("http://a:7300", "http://a:7300/v1"),
            ("http://a:7300/", "http://a:7300/v1"),
            ("https://a/limits/", "https://a/limits/v1"),
            ("http://[::1]:7300", "http://[::1]:7300/v1"),
        ] {
            assert_eq!(Address::parse(text).unwrap().uri("/v1"), uri);
        }
        for text in [
            "",
            "a",
            "a:7300",
            "/v1",
            "ftp://a",
            "http://",
            "http://user:secret@a",
            "http://a/?query",
        ] {
            assert_eq!(Address::parse(text), Err(InvalidAddress), "{text}");
        }
    }

    #[test]
    fn knows_a_server_by_scheme_host_and_port() {
        let address = Address::parse("http://Host-A/limits").unwrap();
        for (named, expected) in [
            ("http://host-a", true),
            ("http://host-a:80/v1/capacity?x=1#y", true),
            ("https://host-a", false),
            ("http://host-a:81", false),
            ("http://host-b", false),
            ("http://host-a@host-b", false),
            ("/v1/capacity", false),
            ("", false),
        ] {
            assert_eq!(address.serves(named), expected, "{named}");
        }
    }
}
