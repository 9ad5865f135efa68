//! What identifies the meaning of a text: a hash of its canonical form.

use serde::Serialize;
use sha2::{Digest, Sha256};

/// The first half of a SHA-256, which is the same everywhere and for ever. Tenants write parts of documents: two documents with one version
/// would let a change pass that was meant for the other, so nobody may be able to make them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version([u8; 16]);

impl Version {
    /// Of the canonical forms of these, one after the other.
    pub(crate) fn of<T: Serialize>(parts: impl IntoIterator<Item = T>) -> Self {
        Hashing::default().with(parts).finish()
    }

    /// Of things that have these versions, one after the other.
    pub(crate) fn of_versions<'v>(versions: impl IntoIterator<Item = &'v Self>) -> Self {
        let mut hash = Sha256::new();
        for Self(version) in versions {
            hash.update(version);
        }
        Hashing(hash).finish()
    }

    /// 32 hexadecimal digits.
    pub(crate) fn text(self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.0))
    }
}

/// A version that is being made.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hashing(Sha256);

impl Hashing {
    /// Takes in the canonical forms of these, one after the other.
    pub(crate) fn with<T: Serialize>(mut self, parts: impl IntoIterator<Item = T>) -> Self {
        for part in parts {
            // Text, numbers that are finite, and names: nothing that could fail to be written.
            let canonical = serde_json::to_vec(&part).unwrap_or_default();
            self.0.update(canonical);
            // Canonical forms have no line breaks, so that none of them runs into the next.
            self.0.update(b"\n");
        }
        self
    }

    pub(crate) fn finish(self) -> Version {
        let mut half = [0; 16];
        let whole = self.0.finalize();
        for (place, byte) in half.iter_mut().zip(whole) {
            *place = byte;
        }
        Version(half)
    }
}
