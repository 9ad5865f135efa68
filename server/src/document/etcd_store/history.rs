//! Keys of the document in etcd, and the changes that are retained.

use std::{
    collections::{BTreeMap, HashMap},
    ops::RangeInclusive,
};

use doorman_openapi::PastChange;
use serde::{Deserialize, Serialize};

use doorman_core::etcd::KeyValue;

/// The most changes that are retained: etcd is no archive.
const MAX_CHANGES: usize = 1_000;

/// The most bytes of documents that are retained.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// The most documents that one write deletes: etcd limits the operations of a transaction.
const MAX_DELETED: usize = 50;

/// Keys below a prefix.
#[derive(Debug)]
pub(super) struct Keys(String);

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        Self(prefix.to_owned())
    }

    /// The newest change. Writes are guarded by its revision in etcd.
    pub(super) fn newest(&self) -> String {
        format!("{}/document", self.0)
    }

    /// Prefix of all changes.
    pub(super) fn changes(&self) -> String {
        format!("{}/history/", self.0)
    }

    /// The change of a revision.
    pub(super) fn change(&self, revision: u64) -> String {
        format!("{}{revision:020}", self.changes())
    }

    /// The document of a revision.
    pub(super) fn document(&self, revision: u64) -> String {
        format!("{}/revision/{revision:020}", self.0)
    }
}

/// A change as stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredChange {
    #[serde(flatten)]
    pub(super) past: PastChange,
    /// Bytes of its document.
    pub(super) bytes: u64,
    /// A random number: two servers may try to write the same revision.
    pub(super) write_id: u64,
}

impl StoredChange {
    pub(super) fn parse(value: &[u8]) -> Option<Self> {
        serde_json::from_slice(value).ok()
    }

    pub(super) fn to_json(&self) -> Vec<u8> {
        // Cannot fail: its keys are text.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// The retained changes by revision.
#[derive(Debug, Default)]
pub(super) struct History {
    changes: BTreeMap<u64, StoredChange>,
    /// The largest revision, also of changes that cannot be read.
    pub(super) newest: u64,
}

/// Revisions of which a write deletes something.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Evicted {
    /// Those that lose change and document.
    pub(super) changes: Vec<u64>,
    /// Those that lose the document.
    pub(super) documents: Vec<u64>,
}

impl History {
    /// The changes among the keys. Those that cannot be read are left out.
    pub(super) fn parse(keys: &Keys, found: &[KeyValue]) -> Self {
        let prefix = keys.changes();
        let mut history = Self::default();
        for KeyValue { key, value, .. } in found {
            let revision = key.strip_prefix(&prefix).and_then(|it| it.parse().ok());
            let Some(revision) = revision else { continue };
            history.newest = history.newest.max(revision);
            if let Some(change) = StoredChange::parse(value)
                && change.past.revision == revision
            {
                history.changes.insert(revision, change);
            }
        }
        history
    }

    /// Changes before a revision, newest first.
    pub(super) fn before(&self, revision: Option<u64>) -> impl Iterator<Item = &PastChange> {
        let changes = self.changes.range(..revision.unwrap_or(u64::MAX));
        changes.rev().map(|(_, change)| &change.past)
    }

    /// The oldest and the newest revision whose document is retained.
    pub(super) fn retained(&self) -> Option<RangeInclusive<u64>> {
        let newest = *self.changes.keys().next_back()?;
        let oldest = self.changes.range(self.first_retained()..).next()?;
        Some(*oldest.0..=newest)
    }

    /// Changes to delete when `new` is written: the oldest changes of the author with the most, so
    /// that no author can evict the changes of others, and the oldest documents.
    pub(super) fn evict(mut self, new: &StoredChange) -> Evicted {
        let had = self.first_retained();
        let mut changes = Vec::new();
        while self.changes.len() >= MAX_CHANGES && changes.len() < MAX_DELETED {
            let Some(revision) = self.oldest_of_busiest() else {
                break;
            };
            self.changes.remove(&revision);
            changes.push(revision);
        }
        self.newest = new.past.revision;
        self.changes.insert(self.newest, new.clone());
        let documents = had..self.first_retained().max(had);
        let documents = self.changes.range(documents).map(|(revision, _)| *revision);
        Evicted {
            changes,
            documents: documents.take(MAX_DELETED).collect(),
        }
    }

    /// The first revision whose document is within the limit of bytes, with all after it.
    fn first_retained(&self) -> u64 {
        let mut bytes: u64 = 0;
        let mut first = self.newest;
        for (revision, change) in self.changes.iter().rev() {
            bytes = bytes.saturating_add(change.bytes);
            if bytes > MAX_BYTES {
                break;
            }
            first = *revision;
        }
        first
    }

    fn oldest_of_busiest(&self) -> Option<u64> {
        let mut of: HashMap<&str, (usize, u64)> = HashMap::new();
        for (revision, change) in &self.changes {
            let (count, _) = of.entry(&change.past.changed_by).or_insert((0, *revision));
            *count = count.saturating_add(1);
        }
        let most = |(count, oldest): &(usize, u64)| (*count, u64::MAX.saturating_sub(*oldest));
        of.into_values().max_by_key(most).map(|(_, oldest)| oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(revision: u64, by: &str, bytes: u64) -> StoredChange {
        StoredChange {
            past: PastChange {
                revision,
                changed_at: 1000 + revision,
                changed_by: by.to_owned(),
                change: "capacity".to_owned(),
                version: "v".to_owned(),
            },
            bytes,
            write_id: 7,
        }
    }

    fn history(changes: impl IntoIterator<Item = StoredChange>) -> History {
        let keys = Keys::new("p");
        let found = changes.into_iter().map(|it| KeyValue {
            key: keys.change(it.past.revision),
            value: it.to_json(),
            created: 1,
            modified: 1,
            lease: None,
        });
        History::parse(&keys, &found.collect::<Vec<_>>())
    }

    #[test]
    fn change_is_flat_json_and_read_again() {
        let stored = change(3, "me", 9);
        let text = String::from_utf8(stored.to_json()).unwrap();
        let expected = r#"{"revision":3,"changed_at":1003,"changed_by":"me","change":"capacity","version":"v","bytes":9,"write_id":7}"#;
        assert_eq!(text, expected);
        assert_eq!(StoredChange::parse(text.as_bytes()), Some(stored));
        for text in ["", "null", "{}", "\u{0}", r#"{"revision":-1}"#] {
            assert_eq!(StoredChange::parse(text.as_bytes()), None);
        }
    }

    #[test]
    fn unreadable_changes_are_left_out_but_keep_their_revision() {
        let keys = Keys::new("p");
        let with = |revision, value: Vec<u8>| KeyValue {
            key: keys.change(revision),
            value,
            created: 1,
            modified: 1,
            lease: None,
        };
        let found = [
            with(1, change(1, "a", 1).to_json()),
            with(2, b"no JSON".to_vec()),
            with(3, change(8, "a", 1).to_json()),
            with(4, Vec::new()),
        ];
        let history = History::parse(&keys, &found);
        assert_eq!(history.newest, 4);
        let listed: Vec<_> = history.before(None).map(|it| it.revision).collect();
        assert_eq!(listed, [1]);
        assert_eq!(history.retained(), Some(1..=1));
        assert_eq!(History::default().retained(), None);
    }

    #[test]
    fn history_is_listed_newest_first() {
        let history = history((1..=4).map(|n| change(n, "a", 1)));
        let listed = |before| {
            let listed = history.before(before).map(|it| it.revision);
            listed.collect::<Vec<_>>()
        };
        assert_eq!(listed(None), [4, 3, 2, 1]);
        assert_eq!(listed(Some(3)), [2, 1]);
    }

    #[test]
    fn busiest_author_loses_its_oldest_change() {
        let rare = [change(1, "rare", 1), change(2, "rare", 1)];
        let busy = (3..=1_000).map(|n| change(n, "busy", 1));
        let evicted = history(rare.into_iter().chain(busy)).evict(&change(1_001, "rare", 1));
        let expected = Evicted {
            changes: vec![3],
            documents: vec![],
        };
        assert_eq!(evicted, expected);
        let few = history((1..=999).map(|n| change(n, "busy", 1)));
        assert!(few.evict(&change(1_000, "busy", 1)).changes.is_empty());
    }

    #[test]
    fn oldest_documents_beyond_the_limit_are_deleted_once() {
        let half = MAX_BYTES / 2;
        let history = || history((1..=4).map(|n| change(n, "a", half)));
        assert_eq!(history().retained(), Some(3..=4));
        let evicted = history().evict(&change(5, "a", half));
        assert_eq!(evicted.documents, [3]);
        assert!(history().evict(&change(5, "a", 0)).documents.is_empty());
        assert_eq!(
            history().evict(&change(5, "a", MAX_BYTES)).documents,
            [3, 4]
        );
    }
}
