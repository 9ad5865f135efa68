//! Whose request it is, when proxies stand between the caller and the service.
//!
//! Each proxy writes the address it was called from at the end of a header. Whatever stands further left was there before, and may
//! have been made up by the caller. So the header is read from the right, for as long as it was written by those who are trusted.

mod address;
mod elements;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use std::{net::IpAddr, sync::Arc};

use http::HeaderMap;
use ipnet::IpNet;

/// No chain of proxies is longer; what stands further left is not looked at.
const LONGEST_CHAIN: usize = 32;

/// Which proxies in front of the service are trusted to say whose request it is: nobody, unless it is said.
///
/// A proxy that is trusted must append the address it is called from to the header, as proxies do by default, or replace the
/// header. One that passes it on as it came lets every caller choose an address.
///
/// ```
/// use tower_doorman::{ForwardedHeader, TrustedProxies};
///
/// // One balancer, whose address changes, in front of every instance.
/// let balancer = TrustedProxies::hops(1, ForwardedHeader::XForwardedFor);
/// // Proxies in a network of their own.
/// let proxies = TrustedProxies::networks(["10.1.0.0/16", "2001:db8:1::/48"], ForwardedHeader::Forwarded)?;
/// # Ok::<(), tower_doorman::InvalidNetwork>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct TrustedProxies(Trust);

#[derive(Debug, Clone, Default)]
enum Trust {
    #[default]
    Nobody,
    Hops(u8, ForwardedHeader),
    Networks(Arc<[IpNet]>, ForwardedHeader),
}

/// The header that the proxies write. The other one is not read, even where this one is missing: what a proxy does not write comes
/// from the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ForwardedHeader {
    /// `Forwarded`, RFC 7239: `for=192.0.2.60;proto=http, for="[2001:db8::1]:4711"`.
    Forwarded,
    /// `X-Forwarded-For`: `192.0.2.60, 2001:db8::1`.
    XForwardedFor,
}

/// A text that is no network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no network: it would be like 10.0.0.0/8, 2001:db8::/32 or 192.0.2.1")]
pub struct InvalidNetwork(String);

impl TrustedProxies {
    /// Nobody: the caller is who is at the other end of the connection.
    #[must_use]
    pub const fn none() -> Self {
        Self(Trust::Nobody)
    }

    /// As many proxies as every request passes before it comes here. For proxies whose addresses change.
    ///
    /// There must be no way around them: who reaches the service through fewer can make up the rest. The address at the other end of
    /// the connection does not matter, and need not be known. With a count of 0 nobody is trusted.
    #[must_use]
    pub const fn hops(count: u8, header: ForwardedHeader) -> Self {
        match count {
            0 => Self::none(),
            _ => Self(Trust::Hops(count, header)),
        }
    }

    /// The proxies in these networks, however many are passed: `10.0.0.0/8`, `2001:db8::/32`, or one address. The caller is the last
    /// address that is in none of them; the header of a request that does not come from one of them is not read.
    ///
    /// # Errors
    /// [`InvalidNetwork`] when one of the texts is no network. IPv4 networks are written as such, not mapped into IPv6.
    pub fn networks(
        networks: impl IntoIterator<Item = impl AsRef<str>>,
        header: ForwardedHeader,
    ) -> Result<Self, InvalidNetwork> {
        let networks: Result<Arc<[_]>, _> = networks
            .into_iter()
            .map(|network| parse(network.as_ref()))
            .collect();
        Ok(Self(Trust::Networks(networks?, header)))
    }

    /// Whose request it is. What cannot be read, or hides an address, ends the way to the left: then the last address on it counts,
    /// which is that of the proxy that wrote this.
    pub(super) fn client(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Option<IpAddr> {
        match &self.0 {
            Trust::Nobody => peer,
            Trust::Hops(count, header) => walk(peer, header.addresses(headers), |hop, _| {
                hop < usize::from(*count)
            }),
            Trust::Networks(networks, header) => {
                walk(peer, header.addresses(headers), |_, address| {
                    let within =
                        |address| networks.iter().any(|network| network.contains(&address));
                    address.is_some_and(within)
                })
            }
        }
    }
}

/// Goes from the connection's peer to the left for as long as the one who wrote the next address is trusted.
fn walk(
    peer: Option<IpAddr>,
    addresses: impl Iterator<Item = Option<IpAddr>>,
    is_trusted: impl Fn(usize, Option<IpAddr>) -> bool,
) -> Option<IpAddr> {
    let mut client = peer;
    for (hop, address) in addresses.take(LONGEST_CHAIN).enumerate() {
        if !is_trusted(hop, client) || address.is_none() {
            break;
        }
        client = address;
    }
    client
}

impl ForwardedHeader {
    /// The addresses of all lines from the right; `None` for what is none.
    fn addresses(self, headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
        let name = match self {
            Self::Forwarded => "forwarded",
            Self::XForwardedFor => "x-forwarded-for",
        };
        // Lines of one header are one list, RFC 9110 section 5.3.
        let lines = headers.get_all(name).into_iter().rev();
        lines.flat_map(move |line| {
            elements::from_the_right(line.as_bytes()).map(move |element| match self {
                Self::Forwarded => elements::forwarded_for(element),
                Self::XForwardedFor => address::parse(element),
            })
        })
    }
}

fn parse(text: &str) -> Result<IpNet, InvalidNetwork> {
    let network = match text.parse::<IpAddr>() {
        Ok(address) => IpNet::from(address),
        Err(_) => text.parse().map_err(|_| InvalidNetwork(text.to_owned()))?,
    };
    match network {
        // Addresses are compared as IPv4 where they are: this would never match.
        IpNet::V6(mapped) if mapped.addr().to_ipv4_mapped().is_some() => {
            Err(InvalidNetwork(text.to_owned()))
        }
        IpNet::V4(_) | IpNet::V6(_) => Ok(network),
    }
}
