//! Hides places of lists from those who are given them in cursors: a bare position would tell a tenant how many others there are, the name
//! of a resource whose it is, and an invented place would lead anywhere.

use std::hash::{BuildHasher, RandomState};

/// A number that is used once.
const ONCE: usize = 8;

/// The key of this start; what was sealed by another one cannot be opened.
///
/// It hashes by SipHash with a random key, which is a pseudo-random function (Aumasson and Bernstein, "SipHash", 2012): values of it
/// mask, one proves. That is enough for what lasts as long as a page is read.
#[derive(Debug, Default)]
pub(crate) struct Seal(RandomState);

/// The list that a place is in.
#[derive(Debug, Clone, Copy, Hash)]
pub(super) enum List<'a> {
    /// The resources whose identifiers begin so.
    Resources(&'a str),
    /// The leases of a resource.
    Leases(&'a str),
}

/// What a hash is for.
#[derive(Hash)]
enum Use<'a> {
    /// To hide the eight bytes of this number.
    Mask(usize),
    Proof(&'a [u8]),
}

impl Seal {
    /// Seals a place of this list; no two seals of one place are alike.
    pub(super) fn close(&self, list: List<'_>, place: &[u8]) -> Vec<u8> {
        let once = fastrand::u64(..).to_be_bytes();
        let mut sealed = once.to_vec();
        sealed.extend(self.mask(list, once, place));
        let proof = self.proof(list, once, sealed.get(ONCE..).unwrap_or_default());
        sealed.extend_from_slice(&proof);
        sealed
    }

    /// The place, if it was sealed here and for this list.
    pub(super) fn open(&self, list: List<'_>, sealed: &[u8]) -> Option<Vec<u8>> {
        let (once, rest) = sealed.split_first_chunk::<ONCE>()?;
        let (hidden, proof) = rest.split_last_chunk()?;
        (*proof == self.proof(list, *once, hidden)).then(|| self.mask(list, *once, hidden))
    }

    fn proof(&self, list: List<'_>, once: [u8; ONCE], hidden: &[u8]) -> [u8; 8] {
        self.0
            .hash_one((Use::Proof(hidden), once, list))
            .to_be_bytes()
    }

    /// Hides, and shows again what it has hidden.
    fn mask(&self, list: List<'_>, once: [u8; ONCE], bytes: &[u8]) -> Vec<u8> {
        let masks = (0..).flat_map(|number| {
            let mask = self.0.hash_one((Use::Mask(number), once, list));
            mask.to_be_bytes()
        });
        bytes
            .iter()
            .zip(masks)
            .map(|(byte, mask)| byte ^ mask)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn opens_what_it_closed_and_nothing_else(
            place in prop::collection::vec(any::<u8>(), 0..300), flip in any::<prop::sample::Index>(), bit in 0u32..8
        ) {
            let seal = Seal::default();
            let list = List::Leases("db");
            let mut sealed = seal.close(list, &place);
            prop_assert_eq!(seal.open(list, &sealed), Some(place.clone()));
            prop_assert_eq!(seal.open(List::Leases("db2"), &sealed), None);
            prop_assert_eq!(seal.open(List::Resources("db"), &sealed), None);
            prop_assert_eq!(Seal::default().open(list, &sealed), None);
            prop_assert_ne!(&seal.close(list, &place), &sealed);
            sealed[flip.index(place.len() + 16)] ^= 1u8 << bit;
            prop_assert_eq!(seal.open(list, &sealed), None);
            prop_assert_eq!(seal.open(list, &sealed[1..]), None);
        }
    }

    #[test]
    fn no_part_of_a_place_is_left_as_it_was() {
        let place = [0; 256];
        let sealed = Seal::default().close(List::Resources(""), &place);
        for part in sealed.chunks_exact(8) {
            assert_ne!(part, &[0; 8]);
            assert_eq!(sealed.chunks_exact(8).filter(|it| *it == part).count(), 1);
        }
    }
}
