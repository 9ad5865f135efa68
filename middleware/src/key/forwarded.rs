//! Client addresses behind proxies: `Forwarded` and `X-Forwarded-For`. The header is read from the
//! right for as long as trusted proxies wrote it: the caller can invent everything further left.

#[cfg(test)]
mod tests;

use std::{iter, net::IpAddr, sync::Arc};

use http::HeaderMap;
use ipnet::IpNet;

const MAX_CHAIN: usize = 32;

/// The proxies whose forwarding header is trusted; by default none. A trusted proxy must append the
/// address that called it, as proxies do by default, or replace the header. If it passes the header
/// on unchanged, every caller can choose its address.
///
/// ```
/// use tower_doorman::{ForwardedHeader, TrustedProxies};
///
/// // One load balancer, whose address changes, in front of every instance.
/// let balancer = TrustedProxies::hops(1, ForwardedHeader::XForwardedFor);
/// // Proxies in their own networks.
/// let networks = ["10.1.0.0/16", "2001:db8:1::/48"];
/// let proxies = TrustedProxies::networks(networks, ForwardedHeader::Forwarded)?;
/// # Ok::<(), tower_doorman::InvalidNetwork>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct TrustedProxies(Trust);

#[derive(Debug, Clone, Default)]
enum Trust {
    #[default]
    None,
    Hops(u8, ForwardedHeader),
    Networks(Arc<[IpNet]>, ForwardedHeader),
}

/// The header that the proxies write. The other one comes from the caller and is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ForwardedHeader {
    /// `Forwarded`, RFC 7239: `for=192.0.2.60;proto=http, for="[2001:db8::1]:4711"`.
    Forwarded,
    /// `X-Forwarded-For`: `192.0.2.60, 2001:db8::1`.
    XForwardedFor,
}

/// A text that is not a network.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("network must be like 10.0.0.0/8, 2001:db8::/32 or 192.0.2.1, without a zone, not {0:?}")]
pub struct InvalidNetwork(String);

crate::error::debug_as_text!(InvalidNetwork);

impl TrustedProxies {
    /// No proxies: the client is the connection's peer.
    #[must_use]
    pub const fn none() -> Self {
        Self(Trust::None)
    }

    /// A fixed number of proxies that every request passes, for proxies whose addresses change. A
    /// caller that can bypass them can invent its address. The peer address is ignored. 0 trusts
    /// none.
    #[must_use]
    pub const fn hops(count: u8, header: ForwardedHeader) -> Self {
        match count {
            0 => Self::none(),
            _ => Self(Trust::Hops(count, header)),
        }
    }

    /// Any number of proxies in these networks: `10.0.0.0/8`, `2001:db8::/32`, or one address. The
    /// client is the rightmost address outside of them. If the peer is outside, the header is
    /// ignored.
    ///
    /// # Errors
    /// [`InvalidNetwork`] if a text is not a network, or an IPv4 network mapped into IPv6.
    pub fn networks(
        networks: impl IntoIterator<Item = impl AsRef<str>>,
        header: ForwardedHeader,
    ) -> Result<Self, InvalidNetwork> {
        let networks = networks.into_iter();
        let networks: Result<_, _> = networks.map(|text| parse_network(text.as_ref())).collect();
        Ok(Self(Trust::Networks(networks?, header)))
    }

    /// The address of the client. An unreadable or hidden address ends the search: the client is
    /// then the proxy that wrote it.
    pub(super) fn client_ip(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Option<IpAddr> {
        let header = match &self.0 {
            Trust::None => return peer,
            Trust::Hops(_, header) | Trust::Networks(_, header) => *header,
        };
        let mut client = peer;
        for (hop, address) in header.addresses(headers).take(MAX_CHAIN).enumerate() {
            if address.is_none() || !self.trusts(hop, client) {
                break;
            }
            client = address;
        }
        client
    }

    /// Whether the sender at this address, so many hops from the right, is a trusted proxy.
    fn trusts(&self, hop: usize, address: Option<IpAddr>) -> bool {
        match &self.0 {
            Trust::None => false,
            Trust::Hops(count, _) => hop < usize::from(*count),
            Trust::Networks(networks, _) => address
                .is_some_and(|address| networks.iter().any(|network| network.contains(&address))),
        }
    }
}

impl ForwardedHeader {
    /// The addresses from right to left; `None` for an element without a valid one.
    fn addresses(self, headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
        let name = match self {
            Self::Forwarded => "forwarded",
            Self::XForwardedFor => "x-forwarded-for",
        };
        // Repeated headers are one list, RFC 9110 section 5.3.
        let lines = headers.get_all(name).into_iter().rev();
        lines.flat_map(move |line| {
            elements_from_right(line.as_bytes()).map(move |element| match self {
                Self::Forwarded => forwarded_for(element),
                Self::XForwardedFor => parse_address(element),
            })
        })
    }
}

fn parse_network(text: &str) -> Result<IpNet, InvalidNetwork> {
    let network = match text.parse::<IpAddr>() {
        Ok(address) => IpNet::from(address),
        Err(_) => text.parse().map_err(|_| InvalidNetwork(text.to_owned()))?,
    };
    match network {
        // Addresses are compared in canonical form, so this would never match.
        IpNet::V6(mapped) if mapped.addr().to_ipv4_mapped().is_some() => {
            Err(InvalidNetwork(text.to_owned()))
        }
        IpNet::V4(_) | IpNet::V6(_) => Ok(network),
    }
}

/// The elements of a list from last to first, split at commas outside of quotes. Quotes are matched
/// from the right: one that the caller leaves open must not hide what a proxy appended.
fn elements_from_right(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(line);
    iter::from_fn(move || {
        let line = rest?;
        let (before, element) = match last_comma(line) {
            Some(comma) => (line.get(..comma), line.get(comma.saturating_add(1)..)?),
            None => (None, line),
        };
        rest = before;
        Some(element)
    })
}

fn last_comma(line: &[u8]) -> Option<usize> {
    let mut quoted = false;
    line.iter().enumerate().rev().find_map(|(at, byte)| {
        match byte {
            b',' if !quoted => return Some(at),
            b'"' if !quoted => quoted = true,
            b'"' => quoted = is_escaped(line, at),
            _ => {}
        }
        None
    })
}

/// Whether the byte at this position follows an odd number of backslashes.
fn is_escaped(line: &[u8], at: usize) -> bool {
    let before = line.iter().take(at).rev();
    before.take_while(|&&byte| byte == b'\\').count() % 2 == 1
}

/// The address in the `for` of an element, unless it is missing, repeated or malformed.
fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let mut found = None;
    let mut rest = element;
    loop {
        let (pair, tail) = rest.split_at_checked(end_of_pair(rest)?)?;
        let mut sides = pair.splitn(2, |&byte| byte == b'=');
        let (name, value) = (sides.next()?.trim_ascii(), sides.next());
        if name.eq_ignore_ascii_case(b"for") {
            if found.is_some() {
                return None;
            }
            found = Some(parse_address(unquoted(value?.trim_ascii())?)?);
        }
        match tail.split_first() {
            Some((_, tail)) => rest = tail,
            None => return found,
        }
    }
}

/// The position of the next semicolon outside of quotes, or the end; `None` if a quote is open.
fn end_of_pair(text: &[u8]) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in text.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b';' if !quoted => return Some(at),
            _ => {}
        }
    }
    (!quoted).then_some(text.len())
}

/// Escapes are not resolved: no address contains one.
fn unquoted(value: &[u8]) -> Option<&[u8]> {
    match value.strip_prefix(b"\"") {
        Some(value) => value.strip_suffix(b"\""),
        None => Some(value),
    }
}

/// An address with or without port and brackets; `None` for names that hide one (`unknown`,
/// `_hidden`). Lenient, because proxies are inexact about brackets.
fn parse_address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?.trim_matches([' ', '\t']);
    let (address, port) = match text.strip_prefix('[') {
        Some(bracketed) => {
            let (address, port) = bracketed.split_once(']')?;
            (IpAddr::V6(without_zone(address)?.parse().ok()?), port)
        }
        None if text.contains('%') => (IpAddr::V6(without_zone(text)?.parse().ok()?), ""),
        None => match text.parse() {
            Ok(address) => (address, ""),
            Err(_) => {
                let (address, port) = text.split_at_checked(text.find(':')?)?;
                (IpAddr::V4(address.parse().ok()?), port)
            }
        },
    };
    (port.is_empty() || is_port(port)).then(|| address.to_canonical())
}

/// An IPv6 address without its zone (RFC 4007, section 11), which is a name of the machine that
/// wrote it. `None` if the zone is empty.
fn without_zone(text: &str) -> Option<&str> {
    match text.split_once('%') {
        Some((_, "")) => None,
        Some((address, _)) => Some(address),
        None => Some(text),
    }
}

/// A colon and a port number, or an obfuscated port, RFC 7239 section 6.3.
fn is_port(text: &str) -> bool {
    let Some(port) = text.strip_prefix(':') else {
        return false;
    };
    match port.strip_prefix('_') {
        Some(obfuscated) => {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            !obfuscated.is_empty() && obfuscated.bytes().all(allowed)
        }
        None => matches!(port.len(), 1..=5) && port.bytes().all(|byte| byte.is_ascii_digit()),
    }
}
