//! Versions: hashes of the canonical form of documents, templates and rules.

use serde::Serialize;
use sha2::{Digest, Sha256};

/// The first half of a SHA-256. It must be collision resistant: tenants write parts of documents,
/// and a version is a precondition of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version([u8; 16]);

impl Version {
    /// The version of these values, in order.
    pub(crate) fn of<T: Serialize>(values: impl IntoIterator<Item = T>) -> Self {
        VersionHasher::default().with(values).finish()
    }

    /// The version of values with these versions, in order.
    pub(crate) fn of_versions<'v>(versions: impl IntoIterator<Item = &'v Self>) -> Self {
        let mut hash = Sha256::new();
        for Self(version) in versions {
            hash.update(version);
        }
        VersionHasher(hash).finish()
    }

    /// 32 hexadecimal digits.
    pub(crate) fn text(self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.0))
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct VersionHasher(Sha256);

impl VersionHasher {
    pub(crate) fn with<T: Serialize>(mut self, values: impl IntoIterator<Item = T>) -> Self {
        for value in values {
            self.0.update(canonical(&value));
        }
        self
    }

    pub(crate) fn finish(self) -> Version {
        let mut half = [0; 16];
        let hash = self.0.finalize();
        for (to, byte) in half.iter_mut().zip(hash) {
            *to = byte;
        }
        Version(half)
    }
}

fn canonical(value: &impl Serialize) -> Vec<u8> {
    let mut canonical = serde_json::to_vec(value).unwrap_or_default();
    // A separator that no canonical form contains.
    canonical.push(b'\n');
    canonical
}
