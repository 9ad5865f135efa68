//! Keys by the identifiers of what they stand for.

use std::{
    collections::BTreeSet,
    hash::{BuildHasher as _, Hash},
};

use foldhash::quality::RandomState;

/// Keys in the order of the hashes of their identifiers, which are kept elsewhere.
///
/// A hash map rehashes all entries when it is full, which stalls a million for a tenth of a second.
/// A tree of the identifiers takes a third longer per decision. Callers choose the identifiers, so
/// the hasher is randomly seeded.
#[derive(Debug, Clone, Default)]
pub(in crate::ledger) struct HashIndex<K> {
    keys: BTreeSet<(u64, K)>,
    hasher: RandomState,
}

impl<K: Copy + Default + Ord> HashIndex<K> {
    /// The key of an identifier; `is_of` tells whether a key of its hash is.
    pub(in crate::ledger) fn find(&self, id: &impl Hash, is_of: impl Fn(K) -> bool) -> Option<K> {
        self.from(id, K::default()).find(|key| is_of(*key))
    }

    /// The hash of an identifier in this index.
    pub(in crate::ledger) fn hash(&self, id: &impl Hash) -> u64 {
        self.hasher.hash_one(id)
    }

    /// The keys with the hash of an identifier, in order, from one on.
    pub(in crate::ledger) fn from(&self, id: &impl Hash, first: K) -> impl Iterator<Item = K> {
        self.of_hash(self.hash(id), first)
    }

    /// The keys with a hash, in order, from one on.
    pub(in crate::ledger) fn of_hash(
        &self,
        hash: u64,
        first: K,
    ) -> impl Iterator<Item = K> + use<'_, K> {
        let keys = self.keys.range((hash, first)..);
        let keys = keys.take_while(move |(other, _)| *other == hash);
        keys.map(|(_, key)| *key)
    }

    #[cfg(test)]
    pub(in crate::ledger) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(in crate::ledger) fn insert(&mut self, id: &impl Hash, key: K) {
        self.keys.insert((self.hash(id), key));
    }

    pub(in crate::ledger) fn remove(&mut self, id: &impl Hash, key: K) {
        self.keys.remove(&(self.hash(id), key));
    }
}
