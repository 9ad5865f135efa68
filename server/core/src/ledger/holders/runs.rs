//! Holders by their names: the runs of a client, and a node.

use std::{collections::BTreeSet, mem};

use crate::ledger::{
    holders::replaced::NewestFirst,
    holders::{HolderId, Holders},
    keys::HolderKey,
};

/// The duplicates that are remembered: at least so many, and at most twice as many.
const MAX_REMEMBERED: usize = 1 << 15;

/// Hashes of the holders that were counted as duplicates. One that gets no lease is not registered,
/// and asks again.
#[derive(Debug, Clone, Default)]
pub(super) struct CountedDuplicates {
    newer: BTreeSet<u64>,
    older: BTreeSet<u64>,
}

impl CountedDuplicates {
    /// Returns whether the holder was not counted before.
    fn insert(&mut self, hash: u64) -> bool {
        if self.newer.len() >= MAX_REMEMBERED {
            self.older = mem::take(&mut self.newer);
        }
        !self.older.contains(&hash) && self.newer.insert(hash)
    }
}

impl Holders {
    /// The holders with this name, the newest first, from a position on; 0 is the first one. Each
    /// comes with its position, which it keeps while it is registered.
    pub(in crate::ledger) fn named(
        &self,
        name: &str,
        from: u64,
    ) -> impl Iterator<Item = (u64, HolderKey)> {
        let from = NewestFirst(from, HolderKey::default());
        let of_hash = self.by_name.of_hash(self.by_name.hash(&name), from);
        let named = of_hash.filter(move |NewestFirst(_, key)| {
            let id = self.id(*key);
            id.is_some_and(|id| id.as_str() == name)
        });
        named.map(|NewestFirst(rank, key)| (rank, key))
    }

    /// The same without a node.
    pub(in crate::ledger) fn runs_of(
        &self,
        client: &str,
        from: u64,
    ) -> impl Iterator<Item = (u64, HolderKey)> {
        self.named(client, from).filter(|(_, key)| {
            let id = self.id(*key);
            id.is_some_and(|id| matches!(id, HolderId::Client(..)))
        })
    }

    /// Whether another run of the holder's client has a lease, or asks for one.
    pub(in crate::ledger) fn is_duplicate(&self, holder: HolderKey) -> bool {
        let Some(HolderId::Client(client, _)) = self.id(holder) else {
            return false;
        };
        let is_run = |key| matches!(self.id(key), Some(HolderId::Client(it, _)) if it == client);
        let hash = self.leasing.hash(&client.as_str());
        let mut others = self.leasing.of_hash(hash, HolderKey::default());
        others.any(|key| key != holder && is_run(key))
    }

    /// Remembers that a holder is counted as a duplicate. Returns `false` if it was counted before.
    pub(in crate::ledger) fn count_duplicate(&mut self, holder: HolderKey) -> bool {
        let hash = self.id(holder).map(|id| self.by_id.hash(id));
        hash.is_some_and(|hash| self.counted_duplicates.insert(hash))
    }
}
