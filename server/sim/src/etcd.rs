//! A model of etcd: keys with revisions, leases by its own clock, transactions, and the leader that
//! was deposed.

use std::collections::BTreeMap;

use doorman_core::{
    etcd::Compare, etcd::EtcdAnswer, etcd::EtcdCall, etcd::EtcdReply, etcd::KeyValue,
    etcd::LeaseId, etcd::Op, etcd::ReplyHeader, etcd::Txn, etcd::TxnReply,
};
use doorman_openapi::Moment;
use fastrand::Rng;

use super::{clock::Clock, network::Candidate};

/// The shortest lease of etcd, in seconds.
const SHORTEST_LEASE: u32 = 2;

#[derive(Debug, Clone)]
struct Key {
    value: Vec<u8>,
    created: u64,
    modified: u64,
    lease: Option<LeaseId>,
}

#[derive(Debug, Clone)]
struct Lease {
    ttl: u32,
    /// By etcd's clock.
    expires: Moment,
}

/// The keys and leases that a leader knows.
#[derive(Debug, Clone, Default)]
struct Store {
    keys: BTreeMap<String, Key>,
    leases: BTreeMap<LeaseId, Lease>,
    header: ReplyHeader,
}

/// A leader that another one has replaced, and that does not know it. It has no quorum, so it
/// executes no transaction and grants no lease. But it renews leases and tells what is left of them
/// by its own clock and its own memory.
#[derive(Debug)]
struct DeposedLeader {
    store: Store,
    /// Until when it answers any server: its successor prolongs all leases for as long, because it
    /// may have renewed one meanwhile. By etcd's clock.
    answers_all_until: Moment,
    /// Until when it answers the servers that have heard of its successor: it was suspended.
    answers_until: Moment,
    heard: Vec<Candidate>,
    rng: Rng,
}

/// The etcd of a node. Each call takes effect at one moment between its sending and its answer, in
/// the same order for all servers: the calls are linearizable. Only a deposed leader answers from
/// the past.
#[derive(Debug)]
pub(super) struct Etcd {
    clock: Clock,
    /// The simulated time until which it answers nothing.
    pub(super) down_until: Moment,
    store: Store,
    deposed: Option<DeposedLeader>,
    /// Ids of leases are never used twice, even by an etcd that was rebuilt.
    last_lease: i64,
}

impl Etcd {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            down_until: Moment::ORIGIN,
            store: Store::new(),
            deposed: None,
            last_lease: 0,
        }
    }

    /// Answers nothing until then. No lease ends if it has crashed.
    pub(super) fn stop(&mut self, time: Moment, until: Moment) {
        self.store.expire(self.clock.local(time));
        self.down_until = until;
    }

    /// Has another leader, maybe after a crash: all leases live for their full time again.
    pub(super) fn restart(&mut self, time: Moment) {
        self.elect_leader(self.clock.local(time), 0.0);
    }

    /// Has another leader, while the one before still answers any server for `timeout` seconds, and
    /// those that have heard of its successor for `seconds`.
    pub(super) fn depose_leader(&mut self, time: Moment, timeout: f64, seconds: f64, rng: Rng) {
        let now = self.clock.local(time);
        self.store.expire(now);
        self.deposed = Some(DeposedLeader {
            store: self.store.clone(),
            answers_all_until: now.after_seconds(timeout),
            answers_until: now.after_seconds(timeout.max(seconds)),
            heard: Vec::new(),
            rng,
        });
        self.elect_leader(now, timeout);
    }

    fn elect_leader(&mut self, now: Moment, longer: f64) {
        self.store.header.raft_term += 1;
        for lease in self.store.leases.values_mut() {
            lease.expires = now.after_seconds(f64::from(lease.ttl) + longer);
        }
    }

    /// Loses all data.
    pub(super) fn rebuild(&mut self) {
        self.store = Store::new();
        self.deposed = None;
    }

    /// A server has received an answer.
    pub(super) fn record_answer(&mut self, candidate: Candidate, header: ReplyHeader) {
        if let Some(deposed) = &mut self.deposed
            && header.raft_term == self.store.header.raft_term
            && !deposed.heard.contains(&candidate)
        {
            deposed.heard.push(candidate);
        }
    }

    /// The simulated times at which its leases end.
    pub(super) fn ends(&self) -> impl Iterator<Item = Moment> {
        let leases = self.store.leases.values();
        leases.map(|it| self.clock.time(it.expires))
    }

    /// Executes a call. `None`: the answer is an error, and the call had no effect.
    pub(super) fn execute(
        &mut self,
        candidate: Candidate,
        call: &EtcdCall,
        time: Moment,
    ) -> Option<EtcdAnswer> {
        let now = self.clock.local(time);
        if let Some(deposed) = &mut self.deposed {
            if deposed.answers_until <= now {
                self.deposed = None;
            } else if deposed.is_asked(candidate, now) {
                return deposed.store.answer_deposed(call, now);
            }
        }
        self.store.expire(now);
        let reply = match call {
            EtcdCall::GrantLease { ttl } => {
                self.last_lease += 1;
                let (lease, ttl) = (LeaseId(self.last_lease), *ttl.max(&SHORTEST_LEASE));
                let expires = now.after_seconds(f64::from(ttl));
                self.store.leases.insert(lease, Lease { ttl, expires });
                EtcdReply::LeaseGranted { lease, ttl }
            }
            EtcdCall::KeepAlive(lease) => EtcdReply::KeptAlive(self.store.renew(*lease, now)),
            EtcdCall::TimeToLive(lease) => EtcdReply::TimeLeft(self.store.time_left(*lease, now)),
            EtcdCall::RevokeLease(lease) => {
                self.store.end_lease(*lease);
                EtcdReply::LeaseRevoked
            }
            EtcdCall::Txn(txn) => EtcdReply::Txn(self.store.commit(txn)?),
        };
        let header = self.store.header;
        Some(EtcdAnswer { header, reply })
    }
}

impl DeposedLeader {
    /// Whether a call reaches this member, and it answers.
    fn is_asked(&mut self, candidate: Candidate, now: Moment) -> bool {
        let answers = now < self.answers_all_until || self.heard.contains(&candidate);
        answers && self.rng.bool()
    }
}

impl Store {
    fn new() -> Self {
        let header = ReplyHeader {
            cluster: 1,
            raft_term: 1,
            revision: 1,
        };
        Self {
            header,
            ..Self::default()
        }
    }

    /// The answer of a deposed leader.
    fn answer_deposed(&mut self, call: &EtcdCall, now: Moment) -> Option<EtcdAnswer> {
        let reply = match call {
            // It cannot end the lease, which takes a quorum.
            EtcdCall::KeepAlive(lease)
                if self.leases.get(lease).is_some_and(|it| it.expires <= now) =>
            {
                return None;
            }
            EtcdCall::KeepAlive(lease) => EtcdReply::KeptAlive(self.renew(*lease, now)),
            EtcdCall::TimeToLive(lease) => EtcdReply::TimeLeft(self.time_left(*lease, now)),
            EtcdCall::GrantLease { .. } | EtcdCall::RevokeLease(_) | EtcdCall::Txn(_) => {
                return None;
            }
        };
        let header = self.header;
        Some(EtcdAnswer { header, reply })
    }

    fn renew(&mut self, lease: LeaseId, now: Moment) -> Option<u32> {
        let lease = self.leases.get_mut(&lease)?;
        lease.expires = now.after_seconds(f64::from(lease.ttl));
        Some(lease.ttl)
    }

    /// At most what was granted, as the client of etcd returns it.
    fn time_left(&self, lease: LeaseId, now: Moment) -> Option<u32> {
        let lease = self.leases.get(&lease)?;
        let left = lease.expires.seconds_since(now).floor() as u32;
        Some(left.min(lease.ttl))
    }

    fn expire(&mut self, now: Moment) {
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
            self.header.revision += u64::from(self.keys.len() < before);
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
        let revision = self.header.revision + 1;
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
            self.header.revision = revision;
        }
        Some(TxnReply {
            succeeded,
            revision: self.header.revision,
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
