//! Election by a key in etcd.
//!
//! | key | value | lives |
//! |---|---|---|
//! | `PREFIX/master` | the master's [record](Record) | as long as its election lease |
//! | `PREFIX/epoch` | the last epoch | for ever |
//! | `PREFIX/node` | the name of the node | for ever |
//! | `PREFIX/leases/EPOCH/LEASE` | empty | as long as that lease of etcd |
//! | `PREFIX/leases/unknown` | empty | until a master that learns all leases has written such a key |
//! | `PREFIX/longest/EPOCH/NANOS` | empty | until a later master has its own: leases may be booked for so long |
//! | `PREFIX/terms/EPOCH/VERSION/PART/PARTS` | a part of the [terms](crate::ledger::EarlierTerms) of all leases | until newer ones are complete |
//! | `PREFIX/terms/newest` | the epoch and the version of the newest terms | for ever |
//! | `PREFIX/handover/EPOCH` | a [`Handover`] | until the next master takes it |
//!
//! Safety rests on three rules. A master uses its ledger only until 0.95 of its election lease
//! after it *sent* the last renewal that succeeded; etcd cannot give the key to another server
//! before. No lease is reported beyond the end of a key `PREFIX/leases/EPOCH/LEASE`, by the sending
//! of the renewal that succeeded, and a renewal counts only if its answer arrives before that
//! deadline: so the next master finds every reported lease covered. And each write of a key depends
//! on the creation revision of `PREFIX/master`, which is another one for each reign. The renewal of
//! a lease does not: `PREFIX/master` must only go by its lease or by its master.
//!
//! A leader of etcd that was deposed may answer for a moment. It knows neither the leases nor the
//! renewals since. So a reply counts for nothing during a reign if its header has a lower term than
//! an earlier one, a lower revision than the campaign, or another cluster. The server's client of
//! etcd ignores such replies at all times.

mod campaign;
mod terms;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use doorman_openapi::{CLOCK_DRIFT, Epoch, Moment, NodeId};
use serde::{Deserialize, Serialize};

use self::terms::{StoredTerms, TermsWrite};
use super::{
    CallId, Effect, Election, EndReason, Event, Handover, Learn, ReignEffect, Time, View,
    next_epoch,
};
use crate::{
    etcd::{
        Compare, EtcdAnswer, EtcdCall, EtcdReply, KeyValue, LeaseId, Op, ReplyHeader, Txn, TxnReply,
    },
    reign::{Bound, TermsGeneration},
};

const MASTER: &str = "master";
const EPOCH: &str = "epoch";
const NODE: &str = "node";
const LEASES: &str = "leases/";
const UNKNOWN: &str = "leases/unknown";
const LONGEST: &str = "longest/";
const TERMS: &str = "terms/";
const NEWEST_TERMS: &str = "terms/newest";
const HANDOVER: &str = "handover/";

/// The part of its election lease for which a master uses its ledger: by clocks of which one runs
/// 1.05 times as fast as the other, etcd's lease lasts longer.
const DEADLINE: f64 = 0.95;
/// Renewals in the time of an election lease: four may fail.
const RENEWALS: u32 = 5;
/// The longest wait for an answer.
const MAX_CALL_TIME: Duration = Duration::from_secs(3);
/// How often a standby reads the master's key, in seconds.
const POLL_INTERVAL: f64 = 0.2;
/// How often the master reads it: an operator may have deleted it.
const MASTER_POLL_INTERVAL: f64 = 1.0;
/// Seconds until a failed call is tried again.
const RETRY_DELAY: f64 = 0.2;
/// The most pauses that are added after campaigns without a result.
const MAX_PAUSES: u32 = 10;
/// The most old keys that a transaction deletes: etcd refuses more than 128 operations.
const MAX_DELETED: usize = 100;
/// etcd rounds what is left of a lease down to seconds.
const ROUNDING: f64 = 1.0;
/// A lease of the bound is renewed while it lives at most this much longer than is needed.
/// Otherwise a shorter one replaces it, so that the next master learns no longer than necessary.
const MAX_EXCESS: f64 = 1.25;
const MAX_EXCESS_SECONDS: f64 = 5.0;

/// Facts about the server of an election.
#[derive(Debug, Clone)]
pub struct EtcdOptions {
    /// The prefix of all keys, without a slash at its end.
    pub prefix: String,
    /// The name of the node.
    pub node: NodeId,
    /// Seconds for which an election lease lives; at least 2.
    pub ttl: u32,
    /// The server's name, for people.
    pub server_id: String,
    /// The base URL at which others reach the server.
    pub address: String,
    /// A random number, which tells this process from earlier ones.
    pub instance: u64,
    /// The highest epoch that the server has heard of.
    pub last_epoch: Option<Epoch>,
    /// Whether it heard of it in an election by this prefix.
    pub had_election: bool,
    /// The epoch of the ledger in the data directory, and whether it was written in an election.
    pub stored_ledger: Option<(Epoch, bool)>,
    /// Until when leases from a time without election may be outstanding.
    pub earlier_leases: Option<Moment>,
    /// The longest booking of any lease of the node that the server has heard of, in nanoseconds;
    /// `None` if it is unknown.
    pub longest: Option<u64>,
    /// The terms of the node's leases that the server has heard of.
    pub terms: Vec<TermsGeneration>,
    /// Whether an empty prefix means that there was no server before.
    pub is_first: bool,
}

/// The value of the master's key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    server_id: String,
    address: String,
    epoch: Epoch,
    instance: u64,
}

/// The election of a server that has peers.
#[derive(Debug)]
pub struct EtcdElection {
    options: EtcdOptions,
    keys: Keys,
    state: Phase,
    master: Option<Record>,
    /// The highest epoch that is known.
    last_epoch: Option<Epoch>,
    /// The highest epoch that is known to have been in etcd.
    elected_epoch: Option<Epoch>,
    /// The highest epoch of which a reign is known to have begun.
    begun_epoch: Option<Epoch>,
    /// The longest booking of any lease that may last, in nanoseconds, as far as it is known.
    longest: Option<u64>,
    /// The terms of the node's leases, as far as they are known, and their version in etcd.
    terms: Vec<TermsGeneration>,
    terms_version: Option<Vec<u8>>,
    /// Whether etcd has forgotten a reign, or leases may last that it never knew.
    is_etcd_behind: bool,
    calls: BTreeMap<CallId, PendingCall>,
    next_call: u64,
    /// The least that a reply must know of etcd's history: the highest term that was heard of since
    /// the campaign, and the revision of the campaign. Zeros without a reign: etcd may have lost
    /// its data.
    known: ReplyHeader,
    poll_at: Moment,
    /// When the first poll that failed since the last one that succeeded was sent.
    unread_since: Option<Moment>,
    has_read: bool,
    /// Campaigns without a result, since the last one that had one.
    lost_campaigns: u32,
    /// Of the event that is handled.
    effects: Vec<Effect<EtcdCall>>,
}

/// The keys below the prefix.
#[derive(Debug)]
struct Keys(String);

impl Keys {
    fn of(&self, name: &str) -> String {
        format!("{}/{name}", self.0)
    }

    fn terms_of(&self, epoch: Epoch, version: u64) -> String {
        self.of(&format!("{TERMS}{epoch}/{version}/"))
    }

    /// One key for each length: a late transaction would lower a common one.
    fn longest_of(&self, epoch: Epoch, nanos: u64) -> String {
        self.of(&format!("{LONGEST}{epoch}/{nanos}"))
    }

    /// One key for each lease: a transaction that etcd executes late, after its timeout, would
    /// attach a common key to an older lease.
    fn leases_of(&self, epoch: Epoch, LeaseId(lease): LeaseId) -> String {
        self.of(&format!("{LEASES}{epoch}/{lease}"))
    }

    /// The reign that wrote a key of [`leases_of`](Self::leases_of).
    fn epoch_of_leases(&self, key: &str) -> Option<Epoch> {
        let (epoch, _) = key.strip_prefix(&self.of(LEASES))?.split_once('/')?;
        Epoch::new(epoch.parse().ok()?).ok()
    }

    fn handover_of(&self, epoch: Epoch) -> String {
        self.of(&format!("{HANDOVER}{epoch}"))
    }
}

#[derive(Debug)]
struct PendingCall {
    purpose: Purpose,
    sent: Moment,
}

#[derive(Debug, Clone)]
enum Purpose {
    Poll,
    GrantElectionLease {
        last: Stored,
    },
    Campaign(Campaign),
    Renew,
    ReadBound(LeaseId),
    /// `longest`: the longest booking that the bound is for.
    GrantBoundLease {
        longest: u64,
    },
    PutBound(BoundLease),
    RenewBound,
    PutTerms,
    ReadTerms,
    Resign,
    Revoke,
}

/// A lease of the bound.
#[derive(Debug, Clone, Copy)]
struct BoundLease {
    lease: LeaseId,
    ttl: u32,
    /// The longest booking that the bound is for.
    longest: u64,
    /// When the lease was asked for.
    sent: Moment,
}

/// A transaction by which the server may become master.
#[derive(Debug, Clone, Copy)]
struct Campaign {
    last: Stored,
    epoch: Epoch,
    has_unknown_leases: bool,
}

/// The stored epoch, and the revision of its key; 0 if there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stored {
    epoch: Option<Epoch>,
    revision: u64,
}

#[derive(Debug)]
enum Phase {
    Standby,
    /// Waits for a lease, or for the result of the transaction with it.
    Campaigning(Option<ElectionLease>),
    Elected(Elected),
    Master(Mastership),
    Resigning(Epoch, LeaseId),
    /// It follows the master, and never becomes one.
    Resigned,
}

#[derive(Debug, Clone, Copy)]
struct ElectionLease {
    id: LeaseId,
    ttl: u32,
    /// When the last renewal that succeeded was sent.
    renewed: Moment,
    renew_at: Moment,
}

impl ElectionLease {
    fn new(id: LeaseId, ttl: u32, sent: Moment) -> Self {
        Self {
            id,
            ttl,
            renewed: sent,
            renew_at: sent.after(Duration::from_secs(ttl.into()) / RENEWALS),
        }
    }

    fn deadline(&self) -> Moment {
        self.renewed.after_seconds(DEADLINE * f64::from(self.ttl))
    }
}

/// An election that the server has won.
#[derive(Debug, Clone)]
struct Won {
    lease: ElectionLease,
    epoch: Epoch,
    /// The revision of the master's key.
    created: u64,
    longest: LongestLease,
}

/// A server that has won the election, and finds out what the last master leaves.
#[derive(Debug)]
struct Elected {
    won: Won,
    /// Leases of bounds to read, and when the next failed one is read again.
    unread: BTreeSet<LeaseId>,
    read_at: Moment,
    learn: Learn,
    /// The part of `learn` that no bound in etcd covers.
    uncovered: Learn,
    ledger: Fetch,
    terms: StoredTerms,
    /// Terms of which etcd has no trace.
    other_terms: Vec<TermsGeneration>,
}

/// The longest lease of a reign in etcd, and those of earlier ones.
#[derive(Debug, Clone, Default)]
struct LongestLease {
    /// The longest booking that this reign has written, in nanoseconds.
    written: u64,
    /// Keys of earlier reigns, which the first one of this reign replaces: it counts what is left
    /// of their leases.
    earlier: Vec<String>,
}

/// The ledger of the last master.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fetch {
    /// It is being fetched, at most until then.
    Until(Moment),
    Received,
    /// There is none.
    Failed,
}

#[derive(Debug)]
struct Mastership {
    won: Won,
    /// The lease of the bound, and its seconds to live.
    bound: Option<(LeaseId, u32)>,
    bound_at: Moment,
    /// Prefixes of the keys of terms that newer ones replace.
    old_terms: BTreeSet<String>,
    terms: Option<TermsWrite>,
    terms_at: Moment,
    /// Whether etcd does not have the terms of all leases that may last. Until then terms and bound
    /// are written one after the other: the later one deletes `PREFIX/leases/unknown`.
    lacks_terms: bool,
}

impl EtcdElection {
    /// Begins as a standby.
    #[must_use]
    pub fn new(options: EtcdOptions) -> Self {
        Self {
            keys: Keys(options.prefix.clone()),
            state: Phase::Standby,
            master: None,
            last_epoch: options.last_epoch,
            elected_epoch: options.last_epoch.filter(|_| options.had_election),
            begun_epoch: None,
            longest: options.longest,
            terms: options.terms.clone(),
            terms_version: None,
            is_etcd_behind: false,
            calls: BTreeMap::new(),
            next_call: 0,
            known: ReplyHeader::default(),
            poll_at: Moment::ORIGIN,
            unread_since: None,
            has_read: false,
            lost_campaigns: 0,
            effects: Vec::new(),
            options,
        }
    }

    fn call(&mut self, purpose: Purpose, call: EtcdCall, now: Moment) {
        let id = CallId(self.next_call);
        self.next_call = self.next_call.saturating_add(1);
        let sent = now;
        self.calls.insert(id, PendingCall { purpose, sent });
        self.effects.push(Effect::Call { id, call });
    }

    fn affect(&mut self, reign: ReignEffect) {
        self.effects.push(reign.into());
    }

    fn call_time(&self) -> Duration {
        call_time(self.options.ttl)
    }

    fn is_pending(&self, purpose: impl Fn(&Purpose) -> bool) -> bool {
        self.calls.values().any(|call| purpose(&call.purpose))
    }

    /// The election that it has won, while it is or becomes master.
    fn won(&self) -> Option<&Won> {
        match &self.state {
            Phase::Elected(Elected { won, .. }) | Phase::Master(Mastership { won, .. }) => {
                Some(won)
            }
            Phase::Standby | Phase::Campaigning(_) | Phase::Resigning(..) | Phase::Resigned => None,
        }
    }

    fn won_mut(&mut self) -> Option<&mut Won> {
        match &mut self.state {
            Phase::Elected(Elected { won, .. }) | Phase::Master(Mastership { won, .. }) => {
                Some(won)
            }
            Phase::Standby | Phase::Campaigning(_) | Phase::Resigning(..) | Phase::Resigned => None,
        }
    }

    fn master(&mut self) -> Option<&mut Mastership> {
        match &mut self.state {
            Phase::Master(master) => Some(master),
            _ => None,
        }
    }

    /// Gives mastership up, or the attempt, and returns to the standbys.
    fn step_down(&mut self, reason: EndReason, now: Moment) {
        let was = std::mem::replace(&mut self.state, Phase::Standby);
        self.calls.clear();
        self.known = ReplyHeader::default();
        self.poll_at = now.after_seconds(self.pause_after_campaigns());
        let lease = match was {
            Phase::Master(master) => {
                self.affect(ReignEffect::End(reason));
                Some(master.won.lease.id)
            }
            Phase::Elected(elected) => Some(elected.won.lease.id),
            Phase::Campaigning(lease) => lease.map(|lease| lease.id),
            Phase::Standby | Phase::Resigning(..) | Phase::Resigned => None,
        };
        if let Some(lease) = lease {
            self.call(Purpose::Revoke, EtcdCall::RevokeLease(lease), now);
        }
        if self.is_own_record() {
            self.master = None;
        }
    }

    /// Seconds until a server that has lost an election looks for a master again: more after each
    /// campaign without a result, and others than for its peers.
    fn pause_after_campaigns(&self) -> f64 {
        let own = (self.options.instance % 1024) as f64 / 1024.0;
        RETRY_DELAY * (1.0 + f64::from(self.lost_campaigns.min(MAX_PAUSES)) * (1.0 + own))
    }

    fn is_own_record(&self) -> bool {
        let instance = self.options.instance;
        self.master
            .as_ref()
            .is_some_and(|it| it.instance == instance)
    }

    fn wake(&mut self, now: Moment) {
        if self.won().is_some_and(|won| won.lease.deadline() <= now) {
            return self.step_down(EndReason::Deadline, now);
        }
        let call_time = self.call_time();
        let overdue = |call: &PendingCall| call.sent.after(call_time) <= now;
        let overdue = self.calls.iter().filter(|(_, it)| overdue(it));
        let overdue: Vec<_> = overdue.map(|(id, _)| *id).collect();
        for id in overdue {
            if let Some(call) = self.calls.remove(&id) {
                self.on_failure(&call, now);
            }
        }
        self.renew(now);
        self.read_bounds(now);
        if let Phase::Elected(elected) = &mut self.state
            && let Fetch::Until(until) = elected.ledger
            && until <= now
        {
            elected.ledger = Fetch::Failed;
            self.begin_if_ready();
        }
        if self.poll_at <= now && !self.is_pending(|it| matches!(it, Purpose::Poll)) {
            let interval = match self.state {
                Phase::Master(_) => MASTER_POLL_INTERVAL,
                _ => POLL_INTERVAL,
            };
            self.poll_at = now.after_seconds(interval);
            let txn = Txn {
                success: vec![
                    Op::Get(self.keys.of(MASTER)),
                    Op::Get(self.keys.of(EPOCH)),
                    Op::GetPrefix(self.keys.of(LEASES)),
                    Op::GetPrefix(self.keys.of(LONGEST)),
                    Op::Get(self.keys.of(NEWEST_TERMS)),
                ],
                ..Txn::default()
            };
            self.call(Purpose::Poll, EtcdCall::Txn(txn), now);
        }
    }

    fn renew(&mut self, now: Moment) {
        if let Some(ElectionLease { id, renew_at, .. }) = self.won().map(|won| won.lease)
            && renew_at <= now
            && !self.is_pending(|it| matches!(it, Purpose::Renew))
        {
            self.call(Purpose::Renew, EtcdCall::KeepAlive(id), now);
        }
    }

    fn read_bounds(&mut self, now: Moment) {
        let Phase::Elected(elected) = &mut self.state else {
            return;
        };
        if now < elected.read_at {
            return;
        }
        elected.read_at = now.after_seconds(RETRY_DELAY);
        let unread: Vec<_> = elected.unread.iter().copied().collect();
        for lease in unread {
            let is_this = |it: &Purpose| matches!(it, Purpose::ReadBound(id) if *id == lease);
            if !self.is_pending(is_this) {
                let call = EtcdCall::TimeToLive(lease);
                self.call(Purpose::ReadBound(lease), call, now);
            }
        }
    }

    fn on_answer(&mut self, call: PendingCall, answer: EtcdAnswer, time: Time) {
        let EtcdAnswer { header, reply } = answer;
        if self.is_of_deposed_leader(header) {
            return self.on_failure(&call, time.now);
        }
        let is_campaign = matches!(call.purpose, Purpose::Campaign(_));
        self.on_reply(call, reply, time);
        if is_campaign && self.won().is_some() {
            self.known = header;
        }
    }

    /// Whether the member of etcd that replied lacks a part of what this reign has seen.
    fn is_of_deposed_leader(&self, header: ReplyHeader) -> bool {
        let is_of_other_cluster = self.won().is_some() && header.cluster != self.known.cluster;
        is_of_other_cluster
            || header.raft_term < self.known.raft_term
            || header.revision < self.known.revision
    }

    fn on_reply(&mut self, call: PendingCall, reply: EtcdReply, time: Time) {
        let (now, sent) = (time.now, call.sent);
        match (call.purpose, reply) {
            (Purpose::Poll, EtcdReply::Txn(reply)) => {
                self.unread_since = None;
                self.has_read = true;
                self.on_poll(&reply, now);
            }
            (Purpose::GrantElectionLease { last }, EtcdReply::LeaseGranted { lease, ttl }) => {
                self.campaign(last, ElectionLease::new(lease, ttl, sent), time);
            }
            (Purpose::Campaign(campaign), EtcdReply::Txn(reply)) => {
                self.on_campaign(campaign, &reply, now);
            }
            (Purpose::Renew, EtcdReply::KeptAlive(Some(ttl))) => {
                self.on_renewal(ttl, sent, now);
            }
            (Purpose::Renew, EtcdReply::KeptAlive(None)) => {
                self.step_down(EndReason::Deposed, now);
            }
            (Purpose::ReadBound(lease), EtcdReply::TimeLeft(left)) => {
                self.on_bound_read(lease, left, now);
            }
            (Purpose::GrantBoundLease { longest }, EtcdReply::LeaseGranted { lease, ttl }) => {
                let bound = BoundLease {
                    lease,
                    ttl,
                    longest,
                    sent,
                };
                self.put_bound(bound, now);
            }
            (Purpose::PutBound(bound), EtcdReply::Txn(reply)) => {
                self.on_bound_put(bound, reply.succeeded, now);
            }
            (Purpose::RenewBound, EtcdReply::KeptAlive(Some(ttl))) => {
                if let Some((_, granted)) = self.master().and_then(|it| it.bound) {
                    self.on_bound_written(ttl.min(granted), sent, now);
                }
            }
            (Purpose::RenewBound, EtcdReply::KeptAlive(None)) => {
                // It was not needed for a while. The next one is a new lease.
                if let Some(master) = self.master() {
                    master.bound = None;
                }
            }
            (Purpose::PutTerms, EtcdReply::Txn(reply)) => {
                self.on_terms_put(reply.succeeded, now);
            }
            (Purpose::ReadTerms, EtcdReply::Txn(reply)) => {
                self.on_terms_read(&reply, now);
            }
            (Purpose::Resign, EtcdReply::Txn(reply)) => {
                self.on_resigned(reply.succeeded, now);
            }
            (Purpose::Revoke, _) => {}
            // etcd replies to each call by its name.
            (purpose, _) => self.on_failure(&PendingCall { purpose, sent }, now),
        }
    }

    fn on_failure(&mut self, call: &PendingCall, now: Moment) {
        let retry_at = now.after_seconds(RETRY_DELAY);
        match &call.purpose {
            Purpose::Poll => {
                self.unread_since.get_or_insert(call.sent);
                self.poll_at = retry_at;
            }
            // The transaction may have been executed. Without its result the reign cannot begin, so
            // the key must go.
            Purpose::GrantElectionLease { .. } | Purpose::Campaign(_) => {
                self.lost_campaigns = self.lost_campaigns.saturating_add(1);
                self.step_down(EndReason::Deposed, now);
            }
            Purpose::Renew => {
                if let Some(won) = self.won_mut() {
                    won.lease.renew_at = retry_at;
                }
            }
            Purpose::GrantBoundLease { .. } | Purpose::PutBound(_) | Purpose::RenewBound => {
                if let Some(master) = self.master() {
                    master.bound_at = retry_at;
                    self.affect(ReignEffect::BoundFailed);
                }
            }
            Purpose::PutTerms => {
                if let Some(master) = self.master() {
                    master.terms = None;
                    master.terms_at = retry_at;
                    self.affect(ReignEffect::TermsFailed);
                }
            }
            // It may have been executed.
            Purpose::Resign => self.on_resigned(true, now),
            Purpose::ReadBound(_) | Purpose::ReadTerms | Purpose::Revoke => {}
        }
    }

    fn on_poll(&mut self, reply: &TxnReply, now: Moment) {
        let mut results = reply.results.iter().map(Vec::as_slice);
        let mut next = || results.next().unwrap_or_default();
        let (key, epoch) = (next().first(), next().first());
        let (bounds, longest) = (next(), next());
        let terms_version = next().first().map(|it| &*it.value);
        let stored = Stored {
            epoch: epoch.and_then(parse_epoch),
            revision: epoch.map_or(0, |it| it.modified),
        };
        let record: Option<Record> = key.and_then(|it| serde_json::from_slice(&it.value).ok());
        self.is_etcd_behind = stored.epoch < self.elected_epoch
            || bounds.iter().any(|it| it.key == self.keys.of(UNKNOWN));
        let seen = stored.epoch.max(record.as_ref().map(|it| it.epoch));
        self.last_epoch = self.last_epoch.max(seen);
        self.elected_epoch = self.elected_epoch.max(seen);
        // A master writes these keys before its first lease. Its record and its epoch are there
        // before its reign, while an earlier master may still grant.
        let begun = bounds
            .iter()
            .filter_map(|it| self.keys.epoch_of_leases(&it.key));
        self.begun_epoch = begun.max().max(self.begun_epoch);
        self.master = record;
        self.read_terms(terms_version, now);
        // Without a key etcd has lost its data, or this master's own write is on its way.
        let longest = longest_of(longest);
        self.longest = match self.state {
            Phase::Master(_) => longest.max(self.longest),
            _ => longest.or(self.longest),
        };
        let is_another = |won: &Won| key.is_none_or(|it| it.created != won.created);
        match &self.state {
            Phase::Master(_) | Phase::Elected(_) if self.won().is_some_and(is_another) => {
                self.step_down(EndReason::Deposed, now);
            }
            Phase::Standby if key.is_none() => {
                self.state = Phase::Campaigning(None);
                let purpose = Purpose::GrantElectionLease { last: stored };
                let ttl = self.options.ttl;
                self.call(purpose, EtcdCall::GrantLease { ttl }, now);
            }
            // Of a campaign whose result was lost.
            Phase::Standby if self.is_own_record() => {
                self.master = None;
                let lease = key.and_then(|it| it.lease);
                if let Some(lease) = lease
                    && !self.is_pending(|it| matches!(it, Purpose::Revoke))
                {
                    self.call(Purpose::Revoke, EtcdCall::RevokeLease(lease), now);
                }
            }
            _ => {}
        }
    }

    fn on_renewal(&mut self, ttl: u32, sent: Moment, now: Moment) {
        let Some(Won { lease, .. }) = self.won_mut() else {
            return;
        };
        // A reign that was over stays over: it may lack a document that was activated since.
        let was_over = lease.deadline() <= now;
        *lease = ElectionLease::new(lease.id, ttl.min(lease.ttl), sent);
        let deadline = lease.deadline();
        if was_over || deadline <= now {
            self.step_down(EndReason::Deadline, now);
        } else if matches!(self.state, Phase::Master(_)) {
            self.affect(ReignEffect::Extend(deadline));
        }
    }

    fn is_writing_bound(&self) -> bool {
        self.is_pending(|it| {
            matches!(
                it,
                Purpose::GrantBoundLease { .. } | Purpose::PutBound(_) | Purpose::RenewBound
            )
        })
    }

    fn on_bound_due(&mut self, due: Bound, now: Moment) {
        let Phase::Master(master) = &self.state else {
            return;
        };
        let awaits_terms = master.lacks_terms && master.terms.is_some();
        if awaits_terms
            || self.is_writing_bound()
            || now < master.bound_at
            || master.won.lease.deadline() <= now
        {
            return;
        }
        self.longest = self.longest.max(Some(due.longest));
        let needed = due.until.seconds_since(now) * CLOCK_DRIFT;
        let fits = |ttl: u32| {
            let longest = needed * MAX_EXCESS + MAX_EXCESS_SECONDS;
            (needed..=longest).contains(&f64::from(ttl))
        };
        match master.bound {
            Some((lease, ttl)) if fits(ttl) && due.longest <= master.won.longest.written => {
                self.call(Purpose::RenewBound, EtcdCall::KeepAlive(lease), now);
            }
            _ => {
                let ttl = needed.ceil() as u32;
                let call = EtcdCall::GrantLease { ttl: ttl.max(2) };
                let longest = due.longest;
                self.call(Purpose::GrantBoundLease { longest }, call, now);
            }
        }
    }

    fn put_bound(&mut self, bound: BoundLease, now: Moment) {
        let BoundLease { lease, longest, .. } = bound;
        let Phase::Master(master) = &self.state else {
            return;
        };
        let put = |key, lease| Op::put(key, Vec::new(), lease);
        let mut success = vec![put(
            self.keys.leases_of(master.won.epoch, lease),
            Some(lease),
        )];
        if !master.lacks_terms {
            // The first bound of a reign that learns all leases covers them.
            success.push(Op::Delete(self.keys.of(UNKNOWN)));
        }
        if master.won.longest.written < longest {
            success.push(put(self.keys.longest_of(master.won.epoch, longest), None));
            // Their names have the epochs of earlier reigns, so it may be executed late.
            let earlier = master.won.longest.earlier.iter().take(MAX_DELETED).cloned();
            success.extend(earlier.map(Op::Delete));
        }
        let txn = Txn {
            compare: vec![self.is_master(&master.won)],
            success,
            ..Txn::default()
        };
        self.call(Purpose::PutBound(bound), EtcdCall::Txn(txn), now);
    }

    fn on_bound_put(&mut self, bound: BoundLease, succeeded: bool, now: Moment) {
        if !succeeded {
            return self.step_down(EndReason::Deposed, now);
        }
        if let Some(master) = self.master() {
            master.bound = Some((bound.lease, bound.ttl));
            let longest = &mut master.won.longest;
            if longest.written < bound.longest {
                longest.written = bound.longest;
                longest.earlier.clear();
            }
        }
        self.on_bound_written(bound.ttl, bound.sent, now);
    }

    fn is_master(&self, won: &Won) -> Compare {
        Compare::Created {
            key: self.keys.of(MASTER),
            revision: won.created,
        }
    }

    /// An answer that arrives after the deadline counts for nothing: the next master may have read
    /// the lease before it was renewed.
    fn on_bound_written(&mut self, ttl: u32, sent: Moment, now: Moment) {
        if let Phase::Master(master) = &self.state
            && now < master.won.lease.deadline()
        {
            self.affect(ReignEffect::BoundWritten(Bound {
                until: sent.after_seconds(f64::from(ttl) / CLOCK_DRIFT),
                longest: master.won.longest.written,
            }));
        }
    }

    fn resign(&mut self, secret: String, now: Moment) {
        let Phase::Master(Mastership { won, .. }) = &self.state else {
            if matches!(self.state, Phase::Resigning(..)) {
                // The answer is under way.
                return;
            }
            self.step_down(EndReason::Resigned, now);
            self.state = Phase::Resigned;
            self.effects.push(Effect::Resigned { offered: None });
            return;
        };
        let (epoch, lease, is_master) = (won.epoch, won.lease.id, self.is_master(won));
        self.calls.clear();
        self.state = Phase::Resigning(epoch, lease);
        self.master = None;
        self.affect(ReignEffect::End(EndReason::Resigned));
        let handover = Handover {
            address: self.options.address.clone(),
            secret,
            epoch,
        };
        let mut txn = Txn {
            compare: vec![is_master],
            success: vec![Op::Delete(self.keys.of(MASTER))],
            ..Txn::default()
        };
        // Without a secret there is nothing to offer.
        if !handover.secret.is_empty() {
            // Cannot fail: it has only text and numbers.
            let offer = serde_json::to_vec(&handover).unwrap_or_default();
            let key = self.keys.handover_of(epoch);
            txn.success.push(Op::put(key, offer, None));
        }
        self.call(Purpose::Resign, EtcdCall::Txn(txn), now);
    }

    /// `offered`: whether the next master may find the offer.
    fn on_resigned(&mut self, offered: bool, now: Moment) {
        let Phase::Resigning(epoch, lease) = self.state else {
            return;
        };
        self.state = Phase::Resigned;
        self.effects.push(Effect::Resigned {
            offered: offered.then_some(epoch),
        });
        self.call(Purpose::Revoke, EtcdCall::RevokeLease(lease), now);
    }

    fn record(&self, epoch: Epoch) -> Record {
        Record {
            server_id: self.options.server_id.clone(),
            address: self.options.address.clone(),
            epoch,
            instance: self.options.instance,
        }
    }
}

/// How long a call may take with election leases of `ttl` seconds.
#[must_use]
pub fn call_time(ttl: u32) -> Duration {
    (Duration::from_secs(ttl.into()) / RENEWALS).min(MAX_CALL_TIME)
}

/// The longest booking in keys `PREFIX/longest/EPOCH/NANOS`.
fn longest_of(keys: &[KeyValue]) -> Option<u64> {
    let nanos = |it: &KeyValue| it.key.rsplit('/').next()?.parse().ok();
    keys.iter().filter_map(nanos).max()
}

fn parse_epoch(stored: &KeyValue) -> Option<Epoch> {
    let text = str::from_utf8(&stored.value).ok()?;
    Epoch::new(text.parse().ok()?).ok()
}

impl Election for EtcdElection {
    type Call = EtcdCall;
    type Reply = EtcdAnswer;

    fn handle(&mut self, event: Event<EtcdAnswer>, time: Time) -> Vec<Effect<EtcdCall>> {
        let now = time.now;
        match event {
            Event::Wake => self.wake(now),
            Event::Reply { call, result } => {
                // Of calls that are overdue, too.
                if let Some(EtcdAnswer { header, .. }) = &result
                    && self.won().is_some()
                {
                    self.known.raft_term = self.known.raft_term.max(header.raft_term);
                }
                if let Some(call) = self.calls.remove(&call) {
                    match result {
                        Some(answer) => self.on_answer(call, answer, time),
                        None => self.on_failure(&call, now),
                    }
                }
            }
            Event::BoundDue(due) => self.on_bound_due(due, now),
            Event::TermsDue(due) => self.on_terms_due(due, now),
            Event::LedgerFetched { epoch, is_fetched } => {
                // One for an earlier election lacks the leases of masters since.
                if let Phase::Elected(elected) = &mut self.state
                    && elected.won.epoch == epoch
                    && matches!(elected.ledger, Fetch::Until(_))
                {
                    elected.ledger = if is_fetched {
                        Fetch::Received
                    } else {
                        Fetch::Failed
                    };
                    self.begin_if_ready();
                }
            }
            Event::Resign { secret } => self.resign(secret, now),
        }
        std::mem::take(&mut self.effects)
    }

    fn wake_at(&self) -> Moment {
        let call_time = self.call_time();
        let calls = self.calls.values();
        let timeouts = calls.map(|call| call.sent.after(call_time));
        let polls = !self.is_pending(|it| matches!(it, Purpose::Poll));
        let renews = !self.is_pending(|it| matches!(it, Purpose::Renew));
        let lease = self.won().map(|won| &won.lease);
        let elected = match &self.state {
            Phase::Elected(elected) => Some(elected),
            _ => None,
        };
        let fetch = elected.and_then(|it| match it.ledger {
            Fetch::Until(until) => Some(until),
            Fetch::Received | Fetch::Failed => None,
        });
        timeouts
            .chain(polls.then_some(self.poll_at))
            .chain(lease.map(ElectionLease::deadline))
            .chain(lease.filter(|_| renews).map(|it| it.renew_at))
            .chain(
                elected
                    .filter(|it| !it.unread.is_empty())
                    .map(|it| it.read_at),
            )
            .chain(fetch)
            .min()
            .unwrap_or(Moment::NEVER)
    }

    fn view(&self) -> View {
        let is_master = matches!(self.state, Phase::Master(_));
        let master = self.master.as_ref();
        View {
            address: master
                .filter(|_| is_master || !self.is_own_record())
                .map(|it| it.address.clone()),
            epoch: self.begun_epoch,
            longest: self.longest,
            unread_since: self.unread_since,
            has_read: self.has_read,
        }
    }

    fn last_epoch(&self) -> Option<Epoch> {
        self.last_epoch
    }
}

#[cfg(test)]
mod tests;
