//! Hides places of lists from those who are given them in cursors: a bare position would tell a tenant how many others there are, and an
//! invented one would lead anywhere.

use std::hash::{BuildHasher, RandomState};

use crate::core::Place;

/// How many bytes a sealed place has: a number that is used once, the place, and what proves that it was sealed here.
const BYTES: usize = 8 + 12 + 8;

/// The key of this start; what was sealed by another one cannot be opened.
///
/// It hashes by SipHash with a random key, which is a pseudo-random function (Aumasson and Bernstein, "SipHash", 2012): one value of it
/// masks, another proves. That is enough for what lasts as long as a page is read.
#[derive(Debug, Default)]
pub(crate) struct Seal(RandomState);

/// What a hash is for.
#[derive(Hash)]
enum Use {
    Life,
    Slot,
    Proof(Mask),
}

/// A place that is hidden.
#[derive(Debug, Clone, Copy, Hash)]
struct Mask {
    life: u64,
    slot: u32,
}

impl Seal {
    /// Seals a place of this list; no two seals of one place are alike.
    pub(super) fn close(&self, list: &str, place: Place) -> [u8; BYTES] {
        let once = fastrand::u64(..);
        let mask = self.mask(list, once, place.life, place.slot);
        let proof = self.0.hash_one((Use::Proof(mask), once, list));
        let mut bytes = [0; BYTES];
        let parts = [
            &once.to_be_bytes()[..],
            &mask.life.to_be_bytes(),
            &mask.slot.to_be_bytes(),
            &proof.to_be_bytes(),
        ];
        for (byte, part) in bytes.iter_mut().zip(parts.into_iter().flatten()) {
            *byte = *part;
        }
        bytes
    }

    /// The place, if it was sealed here and for this list.
    pub(super) fn open(&self, list: &str, bytes: &[u8]) -> Option<Place> {
        let (once, rest) = bytes.split_first_chunk()?;
        let (life, rest) = rest.split_first_chunk()?;
        let (slot, proof) = rest.split_first_chunk()?;
        let once = u64::from_be_bytes(*once);
        let mask = Mask {
            life: u64::from_be_bytes(*life),
            slot: u32::from_be_bytes(*slot),
        };
        let expected = self.0.hash_one((Use::Proof(mask), once, list));
        (proof == expected.to_be_bytes()).then(|| {
            let Mask { life, slot } = self.mask(list, once, mask.life, mask.slot);
            Place { life, slot }
        })
    }

    /// Hides, and shows again what it has hidden.
    fn mask(&self, list: &str, once: u64, life: u64, slot: u32) -> Mask {
        let life = life ^ self.0.hash_one((Use::Life, once, list));
        let slot = slot ^ self.0.hash_one((Use::Slot, once, list)) as u32;
        Mask { life, slot }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn opens_what_it_closed_and_nothing_else(
            life in any::<u64>(), slot in any::<u32>(), flip in 0..BYTES, bit in 0u32..8
        ) {
            let seal = Seal::default();
            let place = Place { life, slot };
            let mut sealed = seal.close("db", place);
            prop_assert_eq!(seal.open("db", &sealed), Some(place));
            prop_assert_eq!(seal.open("db2", &sealed), None);
            prop_assert_eq!(Seal::default().open("db", &sealed), None);
            prop_assert_ne!(seal.close("db", place), sealed);
            sealed[flip] ^= 1u8 << bit;
            prop_assert_eq!(seal.open("db", &sealed), None);
            prop_assert_eq!(seal.open("db", &sealed[1..]), None);
        }
    }
}
