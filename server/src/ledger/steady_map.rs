//! A hash map of which no single insertion is long, however many entries it has.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hash},
};

/// How many entries a shard has on average; none has many more than twice as many.
const ENTRIES_A_SHARD: usize = 512;

/// As many shards as there are bits of the hash for.
const MOST_SHARDS: usize = 1 << 16;

/// A hash map that grows a little at a time.
///
/// The standard library's map moves all entries at once whenever it is full: with a million of them that holds up everybody for a tenth
/// of a second. Here they lie in shards, and when there are many a shard, one shard is split in two, in a fixed order (linear hashing:
/// W. Litwin, "Linear hashing: a new tool for file and table addressing", VLDB 1980). A small map is one shard.
///
/// The hasher has a seed of this process: who chooses keys cannot choose shards.
#[derive(Debug)]
pub(super) struct SteadyMap<K, V, S> {
    hasher: S,
    /// None while nothing has been put in.
    shards: Vec<HashMap<K, V, S>>,
    len: usize,
}

impl<K, V, S: Default> Default for SteadyMap<K, V, S> {
    fn default() -> Self {
        Self {
            hasher: S::default(),
            shards: Vec::new(),
            len: 0,
        }
    }
}

impl<K: Eq + Hash, V, S: BuildHasher + Clone> SteadyMap<K, V, S> {
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.shards.get(self.shard(key))?.get(key)
    }

    pub(super) fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Puts an entry in, in the place of one with the same key.
    pub(super) fn insert(&mut self, key: K, value: V) {
        if self.shards.is_empty() {
            // Most of many maps stay small.
            self.shards.reserve_exact(1);
            self.shards.push(HashMap::with_hasher(self.hasher.clone()));
        } else if self.len >= self.shards.len().saturating_mul(ENTRIES_A_SHARD) {
            self.split();
        }
        let shard = self.shard(&key);
        if let Some(shard) = self.shards.get_mut(shard)
            && shard.insert(key, value).is_none()
        {
            self.len = self.len.saturating_add(1);
        }
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let shard = self.shard(key);
        let value = self.shards.get_mut(shard)?.remove(key)?;
        self.len = self.len.saturating_sub(1);
        Some(value)
    }

    /// Splits the next shard: those of its entries of which one more bit of the hash is set go to a new one.
    fn split(&mut self) {
        let shards = self.shards.len();
        if shards >= MOST_SHARDS {
            return;
        }
        let Some(old) = self.shards.get_mut(shards - whole(shards)) else {
            return;
        };
        // About a half stays and a half goes; with room for a little more than that neither is moved again at once.
        let half = old.len().saturating_mul(5) / 8;
        let empty = || HashMap::with_capacity_and_hasher(half, self.hasher.clone());
        let entries = std::mem::replace(old, empty());
        self.shards.push(empty());
        for (key, value) in entries {
            let shard = self.shard(&key);
            if let Some(shard) = self.shards.get_mut(shard) {
                shard.insert(key, value);
            }
        }
    }

    /// Where a key belongs.
    fn shard(&self, key: &K) -> usize {
        let shards = self.shards.len();
        if shards <= 1 {
            return 0;
        }
        // Within a shard the same hash is used: its low bits for the place, its highest for the tag that is compared first. Those between
        // still differ there.
        let bits = usize::from((self.hasher.hash_one(key) >> 40) as u16);
        let whole = whole(shards);
        let shard = bits & (2 * whole - 1);
        if shard < shards {
            shard
        } else {
            bits & (whole - 1)
        }
    }
}

/// The largest power of two that is no more than this many shards, of which there is one at least.
fn whole(shards: usize) -> usize {
    1 << shards.ilog2()
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, hash::Hasher};

    use foldhash::{fast, quality};
    use proptest::prelude::*;

    use super::*;

    thread_local! {
        static HASHED: Cell<usize> = const { Cell::new(0) };
    }

    /// A key that counts how often it is hashed: whoever moves entries has to.
    #[derive(PartialEq, Eq)]
    struct Counted(u32);

    impl Hash for Counted {
        fn hash<H: Hasher>(&self, state: &mut H) {
            HASHED.set(HASHED.get() + 1);
            self.0.hash(state);
        }
    }

    fn most_hashed<S: BuildHasher + Clone + Default>() -> usize {
        let mut map = SteadyMap::<_, _, S>::default();
        let inserted = (0..200_000).map(|key| {
            HASHED.set(0);
            map.insert(Counted(key), key);
            HASHED.get()
        });
        let most = inserted.max().unwrap();
        assert!((0..200_000).all(|key| map.get(&Counted(key)) == Some(&key)));
        most
    }

    #[test]
    fn no_insertion_moves_many_entries() {
        let most = [
            most_hashed::<fast::RandomState>(),
            most_hashed::<quality::RandomState>(),
        ];
        // A split hashes each entry of a shard twice, and the same insertion may move a shard.
        assert!(
            most.iter().all(|most| *most < 8 * ENTRIES_A_SHARD),
            "{most:?}"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn agrees_with_the_standard_librarys(
            changes in prop::collection::vec((0u32..6000, 0u8..4), 1..20_000)
        ) {
            let mut map = SteadyMap::<_, _, fast::RandomState>::default();
            let mut plain = HashMap::new();
            for (at, (key, change)) in changes.into_iter().enumerate() {
                if change == 0 {
                    prop_assert_eq!(map.remove(&key), plain.remove(&key));
                } else {
                    map.insert(key, at);
                    plain.insert(key, at);
                }
                prop_assert_eq!(map.get(&key), plain.get(&key));
                prop_assert_eq!(map.len, plain.len());
            }
            for key in 0..6000 {
                prop_assert_eq!(map.get(&key), plain.get(&key));
            }
        }
    }
}
