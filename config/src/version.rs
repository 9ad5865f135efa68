//! What identifies the meaning of a text: a hash of its canonical form.

use serde::Serialize;

/// FNV-1a with 128 bits, which is the same everywhere and for ever, unlike the standard library's hashers. It need not withstand an
/// attacker: only operators write documents.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Version(u128);

const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

impl Version {
    pub(crate) fn new() -> Self {
        Self(OFFSET)
    }

    /// Takes in the canonical forms of these, one after the other.
    pub(crate) fn with<T: Serialize>(mut self, parts: impl IntoIterator<Item = T>) -> Self {
        for part in parts {
            // Text, numbers that are finite, and names: nothing that could fail to be written.
            let canonical = serde_json::to_vec(&part).unwrap_or_default();
            self = self.with_bytes(&canonical).with_bytes(b"\n");
        }
        self
    }

    /// Takes in the versions of these, one after the other.
    pub(crate) fn with_versions<'v>(self, versions: impl IntoIterator<Item = &'v Self>) -> Self {
        let versions = versions.into_iter();
        versions.fold(self, |all, version| {
            all.with_bytes(&version.0.to_be_bytes())
        })
    }

    fn with_bytes(self, bytes: &[u8]) -> Self {
        bytes.iter().fold(self, |hash, byte| {
            Self((hash.0 ^ u128::from(*byte)).wrapping_mul(PRIME))
        })
    }

    /// 32 hexadecimal digits.
    pub(crate) fn finish(self) -> String {
        format!("{:032x}", self.0)
    }
}
