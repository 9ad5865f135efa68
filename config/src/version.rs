//! Versions: hashes of the canonical form of documents, templates and rules.

use serde::Serialize;
use sha2::{Digest, Sha256};

/// The first half of a SHA-256. It must be collision resistant: tenants write parts of documents,
/// and a version is a precondition of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version([u8; 16]);

impl Version {
    /// The version of these parts, in order: values in their canonical form, or versions.
    pub(crate) fn of<T: AsRef<[u8]>>(parts: impl IntoIterator<Item = T>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update(part);
        }
        let mut half = [0; 16];
        for (to, byte) in half.iter_mut().zip(hash.finalize()) {
            *to = byte;
        }
        Self(half)
    }

    /// 32 hexadecimal digits.
    pub(crate) fn text(self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.0))
    }
}

impl AsRef<[u8]> for Version {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The canonical form of a value.
pub(crate) fn canonical(value: &impl Serialize) -> Vec<u8> {
    let mut canonical = serde_json::to_vec(value).unwrap_or_default();
    // A separator that no canonical form contains.
    canonical.push(b'\n');
    canonical
}
