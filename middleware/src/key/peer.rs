//! The address at the other end of the connection.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
};

use http::Extensions;

/// The address at the other end of the connection. A server that is not axum puts it into the extensions of each request, for keys
/// by peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PeerAddr(pub SocketAddr);

pub(super) fn find(extensions: &Extensions) -> Option<IpAddr> {
    if let Some(PeerAddr(address)) = extensions.get() {
        return Some(address.ip().to_canonical());
    }
    #[cfg(feature = "axum")]
    if let Some(axum::extract::ConnectInfo(address)) =
        extensions.get::<axum::extract::ConnectInfo<SocketAddr>>()
    {
        return Some(address.ip().to_canonical());
    }
    None
}

/// The part of an address that one party owns: all of an IPv4 address, the first 64 bits of an IPv6 address, of which a single
/// host commonly has all the rest to choose from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Party(pub(super) IpAddr);

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(address) => write!(f, "{address}"),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                write!(f, "{}/64", Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
        }
    }
}
