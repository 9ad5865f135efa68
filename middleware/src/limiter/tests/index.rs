//! The index beside a map, and while it grows.

use std::{collections::HashMap, thread};

use proptest::prelude::*;

use super::super::index::{Absent, Index, Line};

/// Hashes that collide now and then in every part.
fn spread(number: u32) -> u64 {
    let mut hash = u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    hash ^= hash >> 32;
    hash.wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

fn contains(index: &Index, hash: u64, number: u32) -> Result<u32, Absent> {
    let accept = |it| (it == number).then_some(it);
    let likely = index.find_likely(hash, accept);
    likely.map_or_else(|| index.find(hash, accept), Ok)
}

#[test]
fn entries_are_found_and_no_others() {
    const ENTRIES: u32 = 100_000;
    let index = Index::new(0);
    for number in 0..ENTRIES {
        assert!(index.insert(spread(number), number, spread));
        if number % 3 == 2 {
            index.remove(spread(number - 1), number - 1);
        }
    }
    for number in 0..ENTRIES {
        let expected = if number % 3 == 1 {
            Err(Absent::Certainly)
        } else {
            Ok(number)
        };
        assert_eq!(contains(&index, spread(number), number), expected);
    }
    let bytes = 64.0 * f64::from(index.lines()) / f64::from(ENTRIES - ENTRIES / 3);
    assert!(bytes < 20.0, "{bytes} bytes an entry");
}

#[test]
fn entries_are_found_while_the_index_grows() {
    const KNOWN: u32 = 1_000;
    let index = Index::new(0);
    for number in 0..KNOWN {
        index.insert(spread(number), number, spread);
    }
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in KNOWN..100_000 {
                index.insert(spread(number), number, spread);
            }
        });
        while !writer.is_finished() {
            for number in 0..KNOWN {
                let found = contains(&index, spread(number), number);
                assert_ne!(found, Err(Absent::Certainly), "{number}");
            }
        }
    });
}

proptest! {
    /// Few different hashes: lines overflow into their second ones, and beyond.
    #[test]
    fn any_hashes_are_told_apart(
        changes in prop::collection::vec((0..60_u32, any::<bool>()), 0..300),
        hashes in prop::collection::vec(0..4_u64, 60),
    ) {
        let hash_of = |number: u32| {
            hashes.get(number as usize).map_or(0, |hash| hash << 16 | hash << 50 | hash)
        };
        let index = Index::new(0);
        let mut model = HashMap::new();
        for (number, insert) in changes {
            let hash = hash_of(number);
            if insert && !model.contains_key(&number) {
                if index.insert(hash, number, hash_of) {
                    model.insert(number, ());
                }
            } else if !insert && model.remove(&number).is_some() {
                index.remove(hash, number);
            }
            for number in 0..60 {
                let found = contains(&index, hash_of(number), number).is_ok();
                prop_assert_eq!(found, model.contains_key(&number));
            }
        }
    }
}

#[test]
fn line_is_one_cache_line() {
    assert_eq!(size_of::<Line>(), 64);
}
