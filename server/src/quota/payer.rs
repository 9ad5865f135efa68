//! On whose account a request goes.

use std::{
    hash::{BuildHasher, RandomState},
    net::{IpAddr, Ipv6Addr},
    sync::LazyLock,
};

use doorman_config::Restrictions;

use super::table::Key;
use crate::ledger::TenantId;

/// Of this process: SipHash, so that callers who may choose their names or addresses cannot make them meet those of others.
static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The bits of an IPv6 address by which callers are told apart: whoever has an address has the whole network of it (RFC 6177, section 2).
const NETWORK: u128 = u128::MAX << 64;

/// The address at the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer(IpAddr);

impl Peer {
    pub(crate) fn new(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) if !address.is_loopback() => {
                Ipv6Addr::from_bits(address.to_bits() & NETWORK).into()
            }
            address => address,
        })
    }

    /// The address as callers are told apart by it: of an IPv6 address the network.
    pub(crate) fn address(self) -> IpAddr {
        self.0
    }

    /// Whether it is of this machine: all its processes, or all whose requests one of them passes on, have the same.
    pub(crate) fn is_loopback(self) -> bool {
        self.0.is_loopback()
    }
}

/// The kinds of calls that are charged apart from each other, so that none of them locks out another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Purse {
    /// What holders ask for.
    Leases,
    /// What operators ask for.
    Operators,
    /// What is asked without a token.
    Open,
    /// What it takes to find out whether tokens count.
    Verifying,
}

/// Whoever is told from others by the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Payer(u64);

impl Payer {
    /// Whom a verified token speaks of.
    pub(crate) fn of_token(issuer: &str, subject: &str) -> Self {
        Self(SEED.hash_one((issuer, subject)))
    }

    /// All that have these restrictions.
    pub(crate) fn tenant(restrictions: &Restrictions) -> TenantId {
        TenantId(SEED.hash_one(restrictions))
    }

    /// Whoever is at an address.
    pub(super) fn of_peer(peer: Peer) -> Self {
        Self(SEED.hash_one(peer.0))
    }

    pub(super) fn key(self, purse: Purse) -> Key {
        // As good as a hash of both: what it is added to is spread over all numbers.
        Key(self.0.wrapping_add(purse as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payer(address: &str) -> Payer {
        Payer::of_peer(Peer::new(address.parse().unwrap()))
    }

    #[test]
    fn addresses_of_one_caller_are_one() {
        assert_eq!(payer("2001:db8:0:1::1"), payer("2001:db8:0:1:ffff::2"));
        assert_ne!(payer("2001:db8:0:1::1"), payer("2001:db8:0:2::1"));
        assert_eq!(payer("192.0.2.1"), payer("::ffff:192.0.2.1"));
        assert_ne!(payer("192.0.2.1"), payer("192.0.2.2"));
        for loopback in ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"] {
            assert!(Peer::new(loopback.parse().unwrap()).is_loopback());
        }
        assert!(!Peer::new("::2".parse().unwrap()).is_loopback());
    }

    #[test]
    fn who_is_told_apart_has_an_account_for_each_purpose() {
        let one = Payer::of_token("issuer", "a");
        assert_eq!(one, Payer::of_token("issuer", "a"));
        assert_ne!(one, Payer::of_token("issuera", ""));
        assert_ne!(one, Payer::of_token("other", "a"));
        assert_ne!(one.key(Purse::Leases), one.key(Purse::Operators));
        assert_ne!(one.key(Purse::Operators), one.key(Purse::Open));
        assert_ne!(one.key(Purse::Open), one.key(Purse::Verifying));
    }
}
