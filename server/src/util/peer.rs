//! The address at the other end of a connection.

use std::net::{IpAddr, Ipv6Addr};

/// Callers are told apart by the first 64 bits of an IPv6 address: every host has a whole /64
/// network (RFC 6177, section 2).
const IPV6_NETWORK: u128 = u128::MAX << 64;

/// The address of a peer: IPv4 whole, IPv6 cut to its /64 network, IPv4-mapped addresses as IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PeerAddr(IpAddr);

impl PeerAddr {
    pub(crate) fn new(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) if !address.is_loopback() => {
                Ipv6Addr::from_bits(address.to_bits() & IPV6_NETWORK).into()
            }
            address => address,
        })
    }

    pub(crate) fn ip(self) -> IpAddr {
        self.0
    }

    /// Whether the peer is on this machine. All its processes share this address, and so do all
    /// clients of a local proxy.
    pub(crate) fn is_loopback(self) -> bool {
        self.0.is_loopback()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_host_are_equal() {
        let peer = |address: &str| PeerAddr::new(address.parse().unwrap());
        assert_eq!(peer("2001:db8:0:1::1"), peer("2001:db8:0:1:ffff::2"));
        assert_ne!(peer("2001:db8:0:1::1"), peer("2001:db8:0:2::1"));
        assert_eq!(peer("192.0.2.1"), peer("::ffff:192.0.2.1"));
        assert_ne!(peer("192.0.2.1"), peer("192.0.2.2"));
        for loopback in ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"] {
            assert!(peer(loopback).is_loopback(), "{loopback}");
        }
        assert!(!peer("::2").is_loopback());
    }
}
