//! The caller that a request is charged to.

use std::{
    hash::{BuildHasher, RandomState},
    sync::LazyLock,
};

use crate::util::peer::PeerAddr;

/// SipHash with a seed of this process: no caller can choose an address that collides with another.
static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Calls that are charged separately, so that no kind of call locks out another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum QuotaClass {
    /// Calls of holders.
    Leases,
    /// Calls of operators.
    Operators,
    /// Calls without a token.
    Open,
    /// Verification of unknown tokens.
    Verification,
}

/// The caller that a request is charged to: the subject of a token, or the address of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QuotaKey(u64);

impl QuotaKey {
    /// The key of an authenticated caller, by a seeded hash of its identity.
    pub(crate) fn of_caller(identity_hash: u64) -> Self {
        Self(identity_hash)
    }

    pub(super) fn of_peer(peer: PeerAddr) -> Self {
        Self(SEED.hash_one(peer))
    }

    pub(super) fn bucket(self, class: QuotaClass) -> u64 {
        // The hash is uniform, so neighbouring numbers belong to nobody else.
        self.0.wrapping_add(class as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_its_own_bucket() {
        let peer = |address: &str| QuotaKey::of_peer(PeerAddr::new(address.parse().unwrap()));
        let one = peer("192.0.2.1");
        assert_eq!(one, peer("192.0.2.1"));
        assert_ne!(one, peer("192.0.2.2"));
        assert_ne!(
            one.bucket(QuotaClass::Leases),
            one.bucket(QuotaClass::Operators)
        );
        assert_ne!(
            one.bucket(QuotaClass::Operators),
            one.bucket(QuotaClass::Open)
        );
        assert_ne!(
            one.bucket(QuotaClass::Open),
            one.bucket(QuotaClass::Verification)
        );
    }
}
