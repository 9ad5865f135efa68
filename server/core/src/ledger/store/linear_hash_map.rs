//! Hash map without long pauses on growth.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hash},
};

/// Average entries per shard. No shard has many more than twice as many.
const ENTRIES_PER_SHARD: usize = 512;

/// With fewer on average, shards are merged.
const MIN_ENTRIES_PER_SHARD: usize = ENTRIES_PER_SHARD / 4;

/// The shard index uses 16 bits of the hash.
const MAX_SHARDS: usize = 1 << 16;

/// A hash map that grows and shrinks one shard at a time.
///
/// The standard map rehashes all entries when it is full, which stalls a million entries for a
/// tenth of a second. This map splits one shard after the other in a fixed order (linear hashing:
/// W. Litwin, "Linear hashing: a new tool for file and table addressing", VLDB 1980).
///
/// Use a randomly seeded hasher for keys that clients choose.
#[derive(Debug, Clone)]
pub(in crate::ledger) struct LinearHashMap<K, V, S> {
    hasher: S,
    /// Empty until the first insertion.
    shards: Vec<HashMap<K, V, S>>,
    len: usize,
}

impl<K, V, S: Default> Default for LinearHashMap<K, V, S> {
    fn default() -> Self {
        Self {
            hasher: S::default(),
            shards: Vec::new(),
            len: 0,
        }
    }
}

impl<K: Eq + Hash, V, S: BuildHasher + Clone> LinearHashMap<K, V, S> {
    pub(in crate::ledger) fn get(&self, key: &K) -> Option<&V> {
        self.shards.get(self.shard(key))?.get(key)
    }

    pub(in crate::ledger) fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    pub(in crate::ledger) fn insert(&mut self, key: K, value: V) {
        if self.shards.is_empty() {
            // Every resource has a map, and most stay small.
            self.shards.reserve_exact(1);
            self.shards.push(HashMap::with_hasher(self.hasher.clone()));
        } else if self.len >= self.shards.len().saturating_mul(ENTRIES_PER_SHARD) {
            self.split();
        }
        let shard = self.shard(&key);
        if let Some(shard) = self.shards.get_mut(shard)
            && shard.insert(key, value).is_none()
        {
            self.len = self.len.saturating_add(1);
        }
    }

    pub(in crate::ledger) fn remove(&mut self, key: &K) -> Option<V> {
        let shard = self.shard(key);
        let value = self.shards.get_mut(shard)?.remove(key)?;
        self.len = self.len.saturating_sub(1);
        if self.len < self.shards.len().saturating_mul(MIN_ENTRIES_PER_SHARD) {
            self.merge();
        }
        Some(value)
    }

    /// Splits the next shard by one more bit of the hash.
    fn split(&mut self) {
        let shards = self.shards.len();
        if shards >= MAX_SHARDS {
            return;
        }
        let Some(old) = self.shards.get_mut(shards - power_of_two(shards)) else {
            return;
        };
        // About half of the entries stay. The slack avoids another reallocation right away.
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

    /// Undoes the last split, and frees its memory.
    fn merge(&mut self) {
        if self.shards.len() <= 1 {
            return;
        }
        let Some(last) = self.shards.pop() else {
            return;
        };
        let shards = self.shards.len();
        if let Some(rest) = self.shards.get_mut(shards - power_of_two(shards)) {
            rest.extend(last);
            // The slack avoids another reallocation right away.
            rest.shrink_to(ENTRIES_PER_SHARD);
        }
    }

    fn shard(&self, key: &K) -> usize {
        let shards = self.shards.len();
        if shards <= 1 {
            return 0;
        }
        // A shard uses the low bits of the same hash for the bucket and the highest for the tag.
        // The bits between still differ within a shard.
        let bits = usize::from((self.hasher.hash_one(key) >> 40) as u16);
        let power_of_two = power_of_two(shards);
        let shard = bits & (2 * power_of_two - 1);
        if shard < shards {
            shard
        } else {
            bits & (power_of_two - 1)
        }
    }
}

fn power_of_two(shards: usize) -> usize {
    1 << shards.ilog2()
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, hash::Hasher};

    use foldhash::{fast, quality};
    use proptest::prelude::*;

    use super::*;

    thread_local! {
        static HASHES: Cell<usize> = const { Cell::new(0) };
    }

    #[derive(PartialEq, Eq)]
    struct CountingKey(u32);

    impl Hash for CountingKey {
        fn hash<H: Hasher>(&self, state: &mut H) {
            HASHES.set(HASHES.get() + 1);
            self.0.hash(state);
        }
    }

    fn most_hashes_per_insertion<S: BuildHasher + Clone + Default>() -> usize {
        let mut map = LinearHashMap::<_, _, S>::default();
        let inserted = (0..200_000).map(|key| {
            HASHES.set(0);
            map.insert(CountingKey(key), key);
            HASHES.get()
        });
        let most = inserted.max().unwrap();
        assert!((0..200_000).all(|key| map.get(&CountingKey(key)) == Some(&key)));
        most
    }

    #[test]
    fn no_insertion_rehashes_many_entries() {
        let most = [
            most_hashes_per_insertion::<fast::RandomState>(),
            most_hashes_per_insertion::<quality::RandomState>(),
        ];
        // A split hashes each entry of a shard twice, and the insertion may grow a shard.
        assert!(
            most.iter().all(|most| *most < 8 * ENTRIES_PER_SHARD),
            "{most:?}"
        );
    }

    #[test]
    fn emptied_map_has_one_shard_and_no_removal_rehashes_many() {
        let mut map = LinearHashMap::<_, _, quality::RandomState>::default();
        for key in 0..200_000 {
            map.insert(CountingKey(key), key);
        }
        assert!(map.shards.len() > 300, "{}", map.shards.len());
        let mut most = 0;
        for key in 0..200_000 {
            HASHES.set(0);
            assert_eq!(map.remove(&CountingKey(key)), Some(key));
            most = most.max(HASHES.get());
        }
        assert_eq!(map.shards.len(), 1);
        assert!(most < 8 * ENTRIES_PER_SHARD, "{most}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn agrees_with_the_standard_map(
            changes in prop::collection::vec((0u32..6000, 0u8..4), 1..20_000)
        ) {
            let mut map = LinearHashMap::<_, _, fast::RandomState>::default();
            let mut standard = HashMap::new();
            for (at, (key, change)) in changes.into_iter().enumerate() {
                if change == 0 {
                    prop_assert_eq!(map.remove(&key), standard.remove(&key));
                } else {
                    map.insert(key, at);
                    standard.insert(key, at);
                }
                prop_assert_eq!(map.get(&key), standard.get(&key));
                prop_assert_eq!(map.len, standard.len());
            }
            for key in 0..6000 {
                prop_assert_eq!(map.get(&key), standard.get(&key));
            }
        }
    }
}
