//! Telling what was written whole from what was not.

/// FNV-1a with 64 bits. It need not withstand an attacker: who can write the data directory needs no forged books.
#[derive(Debug, Clone, Copy)]
pub(super) struct Checksum(u64);

impl Checksum {
    pub(super) fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub(super) fn of(bytes: &[u8]) -> u64 {
        let mut checksum = Self::new();
        checksum.add(bytes);
        checksum.get()
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    pub(super) fn get(self) -> u64 {
        self.0
    }
}
