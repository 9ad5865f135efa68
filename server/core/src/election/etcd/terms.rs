//! The terms of leases in etcd: written in parts by the master, read by its successor and by
//! standbys.

use std::collections::{BTreeMap, BTreeSet};

use doorman_openapi::{Epoch, Moment};

use super::{EtcdElection, MAX_DELETED, NEWEST_TERMS, Phase, Purpose, TERMS, UNKNOWN};
use crate::{
    election::{Effect, EndReason, ReignEffect},
    etcd::{EtcdCall, KeyValue, Op, Txn, TxnReply},
    ledger::EarlierTerms,
    reign::{DueTerms, TermsGeneration, earlier_terms},
};

/// The most bytes of a part of the terms: etcd refuses requests of more than 1.5 MiB.
pub(super) const TERMS_PART: usize = 512 * 1024;

/// A part of a version: its number, the number of parts, and its text.
type Part<'a> = (usize, usize, &'a [u8]);

/// The terms of leases in etcd.
#[derive(Debug, Clone, Default)]
pub(super) struct StoredTerms {
    pub(super) generations: Vec<TermsGeneration>,
    /// The value of the key that names the newest.
    pub(super) version: Option<Vec<u8>>,
    /// Prefixes of all their keys, which newer ones replace.
    pub(super) prefixes: BTreeSet<String>,
}

impl StoredTerms {
    /// The newest complete terms among these keys, whose prefix is that of all terms.
    pub(super) fn find(keys: &[KeyValue], prefix: &str) -> Self {
        let mut versions: BTreeMap<(u64, u64), Vec<Part<'_>>> = BTreeMap::new();
        let mut prefixes = BTreeSet::new();
        let mut newest_version = None;
        for KeyValue { key, value, .. } in keys {
            let name = key.strip_prefix(prefix).unwrap_or_default();
            if name == "newest" {
                newest_version = Some(value.clone());
            }
            let numbers: Vec<u64> = name.split('/').filter_map(|it| it.parse().ok()).collect();
            if let [epoch, version, part, parts] = numbers[..] {
                let part = (part as usize, parts as usize, &**value);
                versions.entry((epoch, version)).or_default().push(part);
                prefixes.insert(format!("{prefix}{epoch}/{version}/"));
            }
        }
        let read = |parts: &mut Vec<Part<'_>>| {
            parts.sort_unstable();
            let is_complete = parts
                .iter()
                .enumerate()
                .all(|(index, (part, count, _))| index == *part && *count == parts.len());
            let text: Vec<u8> = parts.iter().flat_map(|(.., text)| *text).copied().collect();
            is_complete.then(|| serde_json::from_slice::<EarlierTerms>(&text).ok())?
        };
        let newest = versions.values_mut().rev().find_map(read);
        let generations = newest.iter().flat_map(EarlierTerms::generations);
        Self {
            generations: generations.map(TermsGeneration::from).collect(),
            version: newest_version,
            prefixes,
        }
    }
}

/// A write of terms, a part at a time.
#[derive(Debug)]
pub(super) struct TermsWrite {
    pub(super) due: DueTerms,
    pub(super) parts: Vec<Vec<u8>>,
    /// The number of written parts.
    pub(super) written: usize,
}

impl EtcdElection {
    pub(super) fn on_terms_due(&mut self, due: DueTerms, now: Moment) {
        let is_writing_bound = self.is_writing_bound();
        let Phase::Master(master) = &mut self.state else {
            return;
        };
        let awaits_bound = master.lacks_terms && is_writing_bound;
        if awaits_bound
            || master.terms.is_some()
            || now < master.terms_at
            || master.won.lease.deadline() <= now
        {
            return;
        }
        // The parts may not all be written.
        let prefix = self.keys.terms_of(master.won.epoch, due.version);
        master.old_terms.insert(prefix);
        // Cannot fail: it has only text and numbers.
        let text = serde_json::to_vec(&earlier_terms(&due.generations)).unwrap_or_default();
        master.terms = Some(TermsWrite {
            due,
            parts: text.chunks(TERMS_PART).map(<[u8]>::to_vec).collect(),
            written: 0,
        });
        self.put_terms(now);
    }

    /// Writes the next part of the terms. The last one replaces all earlier terms, whose names it
    /// has, so it may be executed late.
    fn put_terms(&mut self, now: Moment) {
        let Phase::Master(master) = &self.state else {
            return;
        };
        let Some(TermsWrite {
            due,
            parts,
            written,
        }) = &master.terms
        else {
            return;
        };
        let prefix = self.keys.terms_of(master.won.epoch, due.version);
        let key = format!("{prefix}{written}/{}", parts.len());
        let part = parts.get(*written).cloned().unwrap_or_default();
        let mut success = vec![Op::put(key, part, None)];
        if written + 1 == parts.len() {
            let version = version_of(master.won.epoch, due.version);
            success.push(Op::put(self.keys.of(NEWEST_TERMS), version, None));
            if master.lacks_terms && master.bound.is_some() {
                success.push(Op::Delete(self.keys.of(UNKNOWN)));
            }
            let old = master.old_terms.iter().filter(|it| **it != prefix);
            success.extend(old.take(MAX_DELETED).cloned().map(Op::DeletePrefix));
        }
        let txn = Txn {
            compare: vec![self.is_master(&master.won)],
            success,
            ..Txn::default()
        };
        self.call(Purpose::PutTerms, EtcdCall::Txn(txn), now);
    }

    pub(super) fn on_terms_put(&mut self, succeeded: bool, now: Moment) {
        if !succeeded {
            return self.step_down(EndReason::Deposed, now);
        }
        let Phase::Master(master) = &mut self.state else {
            return;
        };
        let Some(terms) = &mut master.terms else {
            return;
        };
        terms.written += 1;
        if terms.written < terms.parts.len() {
            return self.put_terms(now);
        }
        if let Some(TermsWrite { due, .. }) = master.terms.take() {
            let prefix = self.keys.terms_of(master.won.epoch, due.version);
            master.old_terms = BTreeSet::from([prefix]);
            master.lacks_terms = false;
            self.terms_version = Some(version_of(master.won.epoch, due.version));
            self.hear_terms(due.generations.clone(), Vec::new());
            self.affect(ReignEffect::TermsWritten(due));
        }
    }

    /// Reads the terms of the node's leases, if they have another version than the known ones.
    pub(super) fn read_terms(&mut self, version: Option<&[u8]>, now: Moment) {
        if version.is_some()
            && self.terms_version.as_deref() != version
            && !self.is_pending(|it| matches!(it, Purpose::ReadTerms))
        {
            let txn = Txn {
                success: vec![Op::GetPrefix(self.keys.of(TERMS))],
                ..Txn::default()
            };
            self.call(Purpose::ReadTerms, EtcdCall::Txn(txn), now);
        }
    }

    pub(super) fn on_terms_read(&mut self, reply: &TxnReply, now: Moment) {
        let found = reply.results.first().map_or(&[][..], Vec::as_slice);
        let found = StoredTerms::find(found, &self.keys.of(TERMS));
        if found.generations.is_empty() {
            return;
        }
        self.terms_version = found.version;
        // Safety rule: etcd does not know the terms of leases that it has forgotten, or that this
        // server granted without an election.
        let unknown = if self.is_etcd_behind {
            self.terms.clone()
        } else if self.earlier_leases(now).is_some() {
            self.options.terms.clone()
        } else {
            Vec::new()
        };
        self.hear_terms(found.generations, unknown);
    }

    /// Remembers the terms that etcd has, and others that it does not know.
    pub(super) fn hear_terms(
        &mut self,
        mut generations: Vec<TermsGeneration>,
        others: Vec<TermsGeneration>,
    ) {
        for other in others {
            if !generations.contains(&other) {
                generations.push(other);
            }
        }
        self.terms.clone_from(&generations);
        self.effects.push(Effect::TermsHeard(generations));
    }
}

fn version_of(epoch: Epoch, version: u64) -> Vec<u8> {
    format!("{epoch}/{version}").into_bytes()
}
