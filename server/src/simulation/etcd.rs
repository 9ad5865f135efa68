//! A model of etcd: keys with revisions, leases by its own clock, and transactions.

use std::collections::BTreeMap;

use crate::etcd::{Compare, EtcdCall, EtcdReply, KeyValue, LeaseId, Op, Txn, TxnReply};
use doorman_openapi::Moment;

use super::clock::Clock;

/// The shortest lease of etcd, in seconds.
const SHORTEST_LEASE: u32 = 2;

#[derive(Debug)]
struct Key {
    value: Vec<u8>,
    created: u64,
    modified: u64,
    lease: Option<LeaseId>,
}

#[derive(Debug)]
struct Lease {
    ttl: u32,
    /// By etcd's clock.
    expires: Moment,
}

#[derive(Debug)]
pub(super) struct Etcd {
    clock: Clock,
    /// The simulated time until which it answers nothing.
    pub(super) down_until: Moment,
    keys: BTreeMap<String, Key>,
    leases: BTreeMap<LeaseId, Lease>,
    revision: u64,
    /// Ids of leases are never used twice, even by an etcd that was rebuilt.
    last_lease: i64,
}

impl Etcd {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            down_until: Moment::ORIGIN,
            keys: BTreeMap::new(),
            leases: BTreeMap::new(),
            revision: 1,
            last_lease: 0,
        }
    }

    /// Answers nothing until then. No lease ends if it has crashed.
    pub(super) fn stop(&mut self, time: Moment, until: Moment) {
        self.expire(time);
        self.down_until = until;
    }

    /// Has another leader, maybe after a crash: all leases live for their full time again.
    pub(super) fn restart(&mut self, time: Moment) {
        let now = self.clock.local(time);
        for lease in self.leases.values_mut() {
            lease.expires = now.after_seconds(f64::from(lease.ttl));
        }
    }

    /// Loses all data.
    pub(super) fn rebuild(&mut self) {
        self.keys.clear();
        self.leases.clear();
        self.revision = 1;
    }

    /// The simulated times at which its leases end.
    pub(super) fn ends(&self) -> impl Iterator<Item = Moment> {
        self.leases.values().map(|it| self.clock.time(it.expires))
    }

    /// Executes a call. `None`: the answer is an error, and the call had no effect.
    pub(super) fn execute(&mut self, call: &EtcdCall, time: Moment) -> Option<EtcdReply> {
        self.expire(time);
        let now = self.clock.local(time);
        Some(match call {
            EtcdCall::GrantLease { ttl } => {
                self.last_lease += 1;
                let (lease, ttl) = (LeaseId(self.last_lease), *ttl.max(&SHORTEST_LEASE));
                let expires = now.after_seconds(f64::from(ttl));
                self.leases.insert(lease, Lease { ttl, expires });
                EtcdReply::LeaseGranted { lease, ttl }
            }
            EtcdCall::KeepAlive(lease) => {
                EtcdReply::KeptAlive(self.leases.get_mut(lease).map(|lease| {
                    lease.expires = now.after_seconds(f64::from(lease.ttl));
                    lease.ttl
                }))
            }
            EtcdCall::TimeToLive(lease) => EtcdReply::TimeLeft(
                self.leases
                    .get(lease)
                    .map(|lease| lease.expires.seconds_since(now).floor() as u32),
            ),
            EtcdCall::RevokeLease(lease) => {
                self.end_lease(*lease);
                EtcdReply::LeaseRevoked
            }
            EtcdCall::Txn(txn) => EtcdReply::Txn(self.commit(txn)?),
        })
    }

    fn expire(&mut self, time: Moment) {
        let now = self.clock.local(time);
        let expired = self.leases.iter().filter(|(_, it)| it.expires <= now);
        let expired: Vec<_> = expired.map(|(id, _)| *id).collect();
        for lease in expired {
            self.end_lease(lease);
        }
    }

    fn end_lease(&mut self, lease: LeaseId) {
        if self.leases.remove(&lease).is_some() {
            let before = self.keys.len();
            self.keys.retain(|_, key| key.lease != Some(lease));
            self.revision += u64::from(self.keys.len() < before);
        }
    }

    fn commit(&mut self, txn: &Txn) -> Option<TxnReply> {
        let succeeded = txn.compare.iter().all(|compare| self.holds(compare));
        let ops = if succeeded {
            &txn.success
        } else {
            &txn.failure
        };
        let is_valid = |op: &Op| match op {
            Op::Put { lease, .. } => lease.is_none_or(|it| self.leases.contains_key(&it)),
            _ => true,
        };
        if !ops.iter().all(is_valid) {
            return None;
        }
        let revision = self.revision + 1;
        let mut has_written = false;
        let mut results = Vec::new();
        for op in ops {
            let found = match op {
                Op::Get(name) => self.get(name).into_iter().collect(),
                Op::GetPrefix(prefix) => self.get_prefix(prefix),
                Op::Put { key, value, lease } => {
                    has_written = true;
                    self.put(key, value, *lease, revision);
                    Vec::new()
                }
                Op::Delete(name) => {
                    let deleted: Vec<_> = self.get(name).into_iter().collect();
                    self.keys.remove(name);
                    has_written |= !deleted.is_empty();
                    deleted
                }
                Op::DeletePrefix(prefix) => {
                    let deleted = self.get_prefix(prefix);
                    self.keys.retain(|name, _| !name.starts_with(prefix));
                    has_written |= !deleted.is_empty();
                    deleted
                }
            };
            results.push(found);
        }
        if has_written {
            self.revision = revision;
        }
        Some(TxnReply {
            succeeded,
            revision: self.revision,
            results,
        })
    }

    fn holds(&self, compare: &Compare) -> bool {
        let stored = |name: &str, of: fn(&Key) -> u64| self.keys.get(name).map_or(0, of);
        match compare {
            Compare::Created { key, revision } => stored(key, |it| it.created) == *revision,
            Compare::Modified { key, revision } => stored(key, |it| it.modified) == *revision,
        }
    }

    fn put(&mut self, name: &str, value: &[u8], lease: Option<LeaseId>, revision: u64) {
        let created = self.keys.get(name).map_or(revision, |key| key.created);
        let key = Key {
            value: value.to_vec(),
            created,
            modified: revision,
            lease,
        };
        self.keys.insert(name.to_owned(), key);
    }

    fn get(&self, name: &str) -> Option<KeyValue> {
        self.keys.get(name).map(|key| key_value(name, key))
    }

    fn get_prefix(&self, prefix: &str) -> Vec<KeyValue> {
        let keys = self.keys.iter();
        keys.filter(|(name, _)| name.starts_with(prefix))
            .map(|(name, key)| key_value(name, key))
            .collect()
    }
}

fn key_value(name: &str, key: &Key) -> KeyValue {
    KeyValue {
        key: name.to_owned(),
        value: key.value.clone(),
        created: key.created,
        modified: key.modified,
        lease: key.lease,
    }
}
