use doorman_openapi::{Capacity, Seconds, Unit};

use super::{terms::TERMS_PART, *};
use crate::{
    election::Term,
    ledger::{EarlierTemplate, Predecessor},
    reign::{DueTerms, earlier_terms},
};

const START: Moment = Moment::from_nanos(1_000_000_000_000);
const UNIX: u64 = 1_795_000_000;

fn options() -> EtcdOptions {
    EtcdOptions {
        prefix: "p".to_owned(),
        node: NodeId::new("n").unwrap(),
        ttl: 5,
        server_id: "a".to_owned(),
        address: "http://a".to_owned(),
        instance: 1,
        last_epoch: None,
        had_election: false,
        stored_ledger: None,
        earlier_leases: None,
        longest: None,
        terms: Vec::new(),
        is_first: true,
    }
}

const HEADER: ReplyHeader = ReplyHeader {
    cluster: 1,
    raft_term: 3,
    revision: 10,
};

const LONGEST: Learn = Learn::LongestLease(Moment::ORIGIN);

fn epoch(number: u64) -> Epoch {
    Epoch::new(number).unwrap()
}

/// An election with scripted replies of etcd.
struct Script {
    election: EtcdElection,
    now: Moment,
    open: Vec<(CallId, EtcdCall)>,
    /// Of the replies.
    header: ReplyHeader,
    /// Effects other than calls.
    effects: Vec<Effect<EtcdCall>>,
}

impl Script {
    fn new(options: EtcdOptions) -> Self {
        Self {
            election: EtcdElection::new(options),
            now: START,
            open: Vec::new(),
            header: HEADER,
            effects: Vec::new(),
        }
    }

    fn handle(&mut self, event: Event<EtcdAnswer>) {
        let time = Time {
            now: self.now,
            unix: UNIX,
        };
        for effect in self.election.handle(event, time) {
            match effect {
                Effect::Call { id, call } => self.open.push((id, call)),
                other => self.effects.push(other),
            }
        }
    }

    /// Lets time pass, and wakes the election whenever it wants.
    fn pass(&mut self, seconds: f64) {
        let until = self.now.after_seconds(seconds);
        while self.election.wake_at() <= until {
            self.now = self.now.max(self.election.wake_at());
            self.handle(Event::Wake);
        }
        self.now = until;
    }

    /// The oldest open call that `is_this` accepts.
    fn take(&mut self, is_this: impl Fn(&EtcdCall) -> bool) -> (CallId, EtcdCall) {
        let at = self.open.iter().position(|(_, call)| is_this(call));
        let at = at.unwrap_or_else(|| panic!("no such call: {:?}", self.open));
        self.open.remove(at)
    }

    fn reply(&mut self, is_this: impl Fn(&EtcdCall) -> bool, reply: EtcdReply) {
        let (call, _) = self.take(is_this);
        self.answer(call, reply);
    }

    fn answer(&mut self, call: CallId, reply: EtcdReply) {
        let header = self.header;
        let result = Some(EtcdAnswer { header, reply });
        self.handle(Event::Reply { call, result });
    }

    fn fail(&mut self, is_this: impl Fn(&EtcdCall) -> bool) {
        let (call, _) = self.take(is_this);
        self.handle(Event::Reply { call, result: None });
    }

    /// Answers a poll: there is no master, and this was the last epoch.
    fn find_no_master(&mut self, last: Option<u64>) {
        let last = last.map(|last| kv("p/epoch", last.to_string().as_bytes(), None));
        let results = vec![Vec::new(), last.into_iter().collect()];
        self.reply(is_poll, txn(true, 9, results));
    }

    /// Answers the calls of a campaign. The transaction finds these leases and this offer.
    fn win(&mut self, last: Option<u64>, leases: &[i64], offer: Option<KeyValue>) {
        self.pass(0.0);
        self.find_no_master(last);
        self.reply(is_grant, granted(1));
        let leases = leases.iter().map(|id| kv("p/leases/1", b"", Some(*id)));
        let results = vec![
            Vec::new(),
            Vec::new(),
            leases.collect(),
            offer.into_iter().collect(),
        ];
        self.reply(is_txn, txn(true, 10, results));
    }

    /// Lets the time pass in which a master that etcd has forgotten may serve.
    fn outwait_forgotten_master(&mut self) {
        assert_eq!(self.begun(), None);
        for _ in 0..5 {
            self.pass(1.0);
            self.reply(is_keep_alive, EtcdReply::KeptAlive(Some(5)));
        }
    }

    /// Reports that the ledger has been fetched, after one for an earlier election.
    fn fetch_ledger(&mut self) {
        let wanted = self.effects.iter().find_map(|effect| match effect {
            Effect::FetchLedger { epoch, .. } => Some(*epoch),
            _ => None,
        });
        let is_fetched = true;
        let earlier = epoch(wanted.unwrap().get() - 1);
        for epoch in [earlier, wanted.unwrap()] {
            assert_eq!(self.begun(), None);
            self.handle(Event::LedgerFetched { epoch, is_fetched });
        }
    }

    fn begun(&self) -> Option<&Term> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::Reign(ReignEffect::Begin(term)) => Some(term),
            _ => None,
        })
    }

    fn ended(&self) -> Option<EndReason> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::Reign(ReignEffect::End(reason)) => Some(*reason),
            _ => None,
        })
    }
}

fn kv(key: &str, value: &[u8], lease: Option<i64>) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: value.to_vec(),
        created: 3,
        modified: 4,
        lease: lease.map(LeaseId),
    }
}

fn txn(succeeded: bool, revision: u64, results: Vec<Vec<KeyValue>>) -> EtcdReply {
    EtcdReply::Txn(TxnReply {
        succeeded,
        revision,
        results,
    })
}

fn granted(lease: i64) -> EtcdReply {
    EtcdReply::LeaseGranted {
        lease: LeaseId(lease),
        ttl: 5,
    }
}

fn is_poll(call: &EtcdCall) -> bool {
    matches!(call, EtcdCall::Txn(txn) if txn.compare.is_empty())
}

fn is_txn(call: &EtcdCall) -> bool {
    matches!(call, EtcdCall::Txn(txn) if !txn.compare.is_empty())
}

fn is_grant(call: &EtcdCall) -> bool {
    matches!(call, EtcdCall::GrantLease { .. })
}

fn is_keep_alive(call: &EtcdCall) -> bool {
    matches!(call, EtcdCall::KeepAlive(_))
}

fn is_time_to_live(call: &EtcdCall) -> bool {
    matches!(call, EtcdCall::TimeToLive(_))
}

fn seconds(moment: Moment) -> f64 {
    moment.seconds_since(START)
}

#[test]
fn first_master_begins_without_learning() {
    let mut script = Script::new(options());
    script.win(None, &[], None);
    let term = script.begun().unwrap();
    assert_eq!((term.epoch, term.learn), (epoch(UNIX), Learn::Nothing));
    assert!((seconds(term.deadline) - 4.75).abs() < 1e-6, "{term:?}");
    assert_eq!(script.election.view().address.as_deref(), Some("http://a"));
}

#[test]
fn epoch_grows_whatever_the_wall_clock_says() {
    let mut script = Script::new(options());
    script.win(Some(UNIX + 7), &[], None);
    assert_eq!(script.begun().unwrap().epoch, epoch(UNIX + 8));
}

#[test]
fn empty_prefix_is_learned_unless_it_is_a_first_start() {
    let mut script = Script::new(EtcdOptions {
        is_first: false,
        ..options()
    });
    script.win(None, &[], None);
    script.outwait_forgotten_master();
    assert_eq!(script.begun().unwrap().learn, LONGEST);
}

#[test]
fn lost_data_of_etcd_is_learned_in_a_higher_epoch() {
    let mut script = Script::new(EtcdOptions {
        last_epoch: Some(epoch(UNIX + 50)),
        had_election: true,
        ..options()
    });
    script.win(Some(UNIX + 3), &[], None);
    script.outwait_forgotten_master();
    let term = script.begun().unwrap();
    assert_eq!((term.epoch, term.learn), (epoch(UNIX + 51), LONGEST));
}

#[test]
fn epoch_is_told_once_its_reign_has_begun() {
    let epoch_of = |script: &Script| script.election.view().epoch;
    let record = br#"{"server_id":"b","address":"http://b","epoch":7,"instance":2}"#;
    let master = kv("p/master", record, None);
    let poll = |script: &mut Script, keys: &[&str]| {
        script.pass(0.25);
        let bounds = keys.iter().map(|key| kv(key, b"", Some(1)));
        let results = vec![
            vec![master.clone()],
            vec![kv("p/epoch", b"7", None)],
            bounds.collect(),
        ];
        script.reply(is_poll, txn(true, 9, results));
    };
    let mut script = Script::new(EtcdOptions {
        last_epoch: Some(epoch(5)),
        had_election: true,
        ..options()
    });
    assert_eq!(epoch_of(&script), None);
    poll(&mut script, &[]);
    assert_eq!(epoch_of(&script), None, "it may still wait for another");
    poll(&mut script, &["p/leases/unknown", "p/leases/6/4"]);
    assert_eq!(epoch_of(&script), Some(epoch(6)));
    poll(&mut script, &["p/leases/6/4", "p/leases/7/5"]);
    assert_eq!(epoch_of(&script), Some(epoch(7)));
    assert_eq!(script.election.last_epoch(), Some(epoch(7)));
    // The data of etcd is lost.
    script.pass(0.25);
    script.find_no_master(None);
    script.reply(is_grant, granted(1));
    script.reply(is_txn, txn(true, 10, vec![Vec::new(); 4]));
    assert_eq!(epoch_of(&script), Some(epoch(7)));
    assert_eq!(script.election.last_epoch(), Some(epoch(UNIX)));
    script.outwait_forgotten_master();
    assert!(script.begun().is_some());
    assert_eq!(epoch_of(&script), Some(epoch(UNIX)));
}

#[test]
fn lost_data_is_learned_until_a_bound_is_written() {
    let unknown = "p/leases/unknown".to_owned();
    let mut script = Script::new(EtcdOptions {
        is_first: false,
        ..options()
    });
    script.pass(0.0);
    script.find_no_master(None);
    script.reply(is_grant, granted(1));
    let (_, EtcdCall::Txn(campaign)) = script.take(is_txn) else {
        panic!()
    };
    let marker = Op::Put {
        key: unknown.clone(),
        value: Vec::new(),
        lease: None,
    };
    assert!(campaign.success.contains(&marker), "{campaign:?}");

    // The next master finds an epoch, and no trace of a lease but the marker.
    let mut script = Script::new(options());
    script.pass(0.0);
    script.find_no_master(Some(UNIX));
    script.reply(is_grant, granted(1));
    let marker = vec![kv(&unknown, b"", None)];
    let results = vec![Vec::new(), Vec::new(), marker, Vec::new()];
    script.reply(is_txn, txn(true, 10, results));
    script.outwait_forgotten_master();
    let term = script.begun().unwrap().clone();
    assert_eq!(term.learn, LONGEST);

    let bound = term.new_bound(Seconds::saturating(60.0), None, script.now);
    let due = bound.due().unwrap();
    assert!(due.until >= script.now.after_seconds(63.0), "{due:?}");
    script.handle(Event::BoundDue(due));
    script.reply(is_grant, granted(2));
    let (_, EtcdCall::Txn(put)) = script.take(is_txn) else {
        panic!()
    };
    assert!(put.success.contains(&Op::Delete(unknown)), "{put:?}");
}

#[test]
fn renewal_after_the_deadline_revives_no_reign() {
    let mut script = Script::new(options());
    script.win(None, &[], None);
    script.pass(4.5);
    script.open.clear();
    script.pass(0.15);
    // The server is stopped until after its deadline, and then sees the answer first.
    script.now = script.now.after_seconds(0.2);
    script.reply(is_keep_alive, EtcdReply::KeptAlive(Some(5)));
    assert_eq!(script.ended(), Some(EndReason::Deadline));
}

#[test]
fn learning_lasts_for_the_longest_bound_of_all_reigns() {
    let mut script = Script::new(options());
    script.win(Some(1), &[7, 8], None);
    script.reply(is_time_to_live, EtcdReply::TimeLeft(Some(20)));
    assert_eq!(script.begun(), None);
    // A failed read is repeated: nothing is assumed.
    script.fail(is_time_to_live);
    script.pass(0.3);
    assert_eq!(script.begun(), None);
    script.reply(is_time_to_live, EtcdReply::TimeLeft(None));
    let Learn::Until(until) = script.begun().unwrap().learn else {
        panic!("{:?}", script.begun());
    };
    assert!((seconds(until) - 1.05 * 21.0).abs() < 1e-6, "{until:?}");
}

#[test]
fn deadline_counts_from_the_sending_of_the_renewal() {
    let mut script = Script::new(options());
    script.win(None, &[], None);
    script.pass(1.0);
    let sent = script.now;
    script.pass(0.7);
    script.reply(is_keep_alive, EtcdReply::KeptAlive(Some(5)));
    let deadline = sent.after_seconds(4.75);
    assert!(
        script
            .effects
            .contains(&ReignEffect::Extend(deadline).into())
    );
}

#[test]
fn one_failed_renewal_is_no_lost_mastership() {
    let mut script = Script::new(options());
    script.win(None, &[], None);
    script.pass(1.0);
    script.fail(is_keep_alive);
    script.pass(0.3);
    script.reply(is_keep_alive, EtcdReply::KeptAlive(Some(5)));
    script.pass(3.5);
    assert_eq!(script.ended(), None);
}

#[test]
fn reign_ends_at_its_deadline_when_etcd_is_silent() {
    let mut script = Script::new(options());
    script.win(None, &[], None);
    script.pass(4.7);
    assert_eq!(script.ended(), None);
    script.pass(0.1);
    assert_eq!(script.ended(), Some(EndReason::Deadline));
    assert_eq!(script.election.view().address, None);
}

#[test]
fn lost_election_lease_and_lost_key_end_the_reign() {
    let mut script = Script::new(options());
    script.win(None, &[], None);
    script.pass(1.0);
    script.reply(is_keep_alive, EtcdReply::KeptAlive(None));
    assert_eq!(script.ended(), Some(EndReason::Deposed));

    let mut script = Script::new(options());
    script.win(None, &[], None);
    script.pass(1.0);
    script.find_no_master(Some(UNIX));
    assert_eq!(script.ended(), Some(EndReason::Deposed));
}

#[test]
fn poll_from_before_the_election_is_ignored() {
    let mut script = Script::new(options());
    script.pass(0.0);
    script.find_no_master(None);
    script.pass(0.25);
    let (poll, _) = script.take(is_poll);
    script.reply(is_grant, granted(1));
    script.reply(is_txn, txn(true, 10, vec![Vec::new(); 4]));
    script.answer(poll, txn(true, 9, vec![Vec::new(), Vec::new()]));
    assert!(script.begun().is_some() && script.ended().is_none());
}

#[test]
fn campaign_without_a_result_is_taken_back() {
    let mut script = Script::new(options());
    script.pass(0.0);
    script.find_no_master(None);
    script.reply(is_grant, granted(1));
    script.fail(is_txn);
    script.take(|call| *call == EtcdCall::RevokeLease(LeaseId(1)));
    assert_eq!(script.begun(), None);
}

fn due(script: &Script, seconds: f64) -> Bound {
    Bound {
        until: script.now.after_seconds(seconds),
        longest: 0,
    }
}

#[test]
fn bound_counts_from_the_sending_of_its_lease() {
    let mut script = Script::new(options());
    script.win(None, &[], None);
    let sent = script.now;
    script.handle(Event::BoundDue(due(&script, 66.0)));
    // Only one call at a time.
    script.handle(Event::BoundDue(due(&script, 66.0)));
    let (call, grant) = script.take(is_grant);
    assert_eq!(grant, EtcdCall::GrantLease { ttl: 70 });
    script.pass(0.2);
    let (lease, ttl) = (LeaseId(2), 70);
    script.answer(call, EtcdReply::LeaseGranted { lease, ttl });
    let (call, put) = script.take(is_txn);
    let EtcdCall::Txn(put) = put else { panic!() };
    let guard = Compare::Created {
        key: "p/master".to_owned(),
        revision: 10,
    };
    assert_eq!(put.compare, [guard]);
    script.pass(0.2);
    script.answer(call, txn(true, 11, vec![Vec::new()]));
    let written = Bound {
        until: sent.after_seconds(70.0 / 1.05),
        longest: 0,
    };
    assert!(
        script
            .effects
            .contains(&ReignEffect::BoundWritten(written).into())
    );

    // The next one renews the same lease.
    script.handle(Event::BoundDue(due(&script, 66.0)));
    script.take(|call| *call == EtcdCall::KeepAlive(LeaseId(2)));
}

#[test]
fn shorter_leases_get_a_shorter_bound() {
    let mut script = Script::new(options());
    script.win(None, &[], None);
    let put = |script: &mut Script, id: i64| {
        let (call, grant) = script.take(is_grant);
        let EtcdCall::GrantLease { ttl } = grant else {
            panic!()
        };
        let lease = LeaseId(id);
        script.answer(call, EtcdReply::LeaseGranted { lease, ttl });
        script.reply(is_txn, txn(true, 11, vec![Vec::new()]));
        ttl
    };
    script.handle(Event::BoundDue(due(&script, 315.0)));
    assert_eq!(put(&mut script, 2), 331);
    script.handle(Event::BoundDue(due(&script, 66.0)));
    assert_eq!(put(&mut script, 3), 70);
}

#[test]
fn bound_that_is_answered_after_the_deadline_does_not_count() {
    let mut script = Script::new(options());
    script.win(None, &[], None);
    script.handle(Event::BoundDue(due(&script, 66.0)));
    script.reply(is_grant, granted(2));
    let (call, _) = script.take(is_txn);
    // The server was stopped meanwhile: no timer has run.
    script.now = script.now.after_seconds(10.0);
    script.answer(call, txn(true, 11, vec![Vec::new()]));
    let written =
        |effect: &Effect<_>| matches!(effect, Effect::Reign(ReignEffect::BoundWritten(_)));
    assert!(!script.effects.iter().any(written), "{:?}", script.effects);
}

#[test]
fn resignation_offers_the_ledger_and_deletes_the_key() {
    let mut script = Script::new(options());
    script.win(None, &[], None);
    let secret = "s".to_owned();
    script.handle(Event::Resign { secret });
    assert_eq!(script.ended(), Some(EndReason::Resigned));
    let (call, resign) = script.take(is_txn);
    let EtcdCall::Txn(resign) = resign else {
        panic!()
    };
    let delete = Op::Delete("p/master".to_owned());
    assert!(resign.success.contains(&delete), "{resign:?}");
    script.answer(call, txn(true, 12, vec![Vec::new(); 2]));
    let offered = Some(epoch(UNIX));
    assert!(script.effects.contains(&Effect::Resigned { offered }));
    // It follows the next master, but never campaigns.
    script.pass(1.0);
    script.find_no_master(Some(UNIX));
    assert!(!script.open.iter().any(|(_, call)| is_grant(call)));
}

fn offer(last: u64) -> KeyValue {
    let handover = Handover {
        address: "http://b".to_owned(),
        secret: "s".to_owned(),
        epoch: epoch(last),
    };
    let value = serde_json::to_vec(&handover).unwrap();
    kv(&format!("p/handover/{last}"), &value, None)
}

#[test]
fn offered_ledger_is_fetched_and_replaces_learning() {
    let mut script = Script::new(options());
    script.win(Some(4), &[7], Some(offer(4)));
    let fetches = |effect: &Effect<_>| matches!(effect, Effect::FetchLedger { .. });
    assert!(script.effects.iter().any(fetches));
    script.fetch_ledger();
    let term = script.begun().unwrap();
    assert!(term.inherits && term.learn == Learn::Nothing, "{term:?}");
}

#[test]
fn long_transfer_is_awaited() {
    let mut script = Script::new(options());
    script.win(Some(4), &[7], Some(offer(4)));
    script.reply(is_time_to_live, EtcdReply::TimeLeft(Some(30)));
    for _ in 0..3 {
        script.outwait_forgotten_master();
    }
    script.fetch_ledger();
    assert!(script.begun().unwrap().inherits);
}

#[test]
fn failed_transfer_and_offer_of_an_older_epoch_are_learned() {
    let mut script = Script::new(options());
    script.win(Some(4), &[7], Some(offer(4)));
    script.reply(is_time_to_live, EtcdReply::TimeLeft(Some(30)));
    assert_eq!(script.begun(), None);
    script.handle(Event::LedgerFetched {
        epoch: epoch(UNIX),
        is_fetched: false,
    });
    let term = script.begun().unwrap();
    assert!(!term.inherits && matches!(term.learn, Learn::Until(_)));

    let mut script = Script::new(options());
    script.win(Some(5), &[7], Some(offer(4)));
    script.reply(is_time_to_live, EtcdReply::TimeLeft(Some(30)));
    assert!(!script.begun().unwrap().inherits);
}

#[test]
fn ledger_in_the_data_directory_counts_for_the_next_reign_only() {
    for (last, restores) in [(Some(4), true), (Some(5), false), (None, false)] {
        let mut script = Script::new(EtcdOptions {
            last_epoch: Some(epoch(4)),
            had_election: true,
            stored_ledger: Some((epoch(4), true)),
            ..options()
        });
        script.win(last, &[], None);
        let fetches = |effect: &Effect<_>| matches!(effect, Effect::FetchLedger { .. });
        let fetched = script.effects.iter().any(fetches);
        assert_eq!(fetched, restores, "{last:?}");
    }
}

#[test]
fn server_that_was_alone_restores_its_ledger_or_learns_its_bound() {
    let alone = EtcdOptions {
        last_epoch: Some(epoch(4)),
        earlier_leases: Some(START.after_seconds(40.0)),
        ..options()
    };
    let mut script = Script::new(alone.clone());
    script.win(None, &[], None);
    let learn = script.begun().unwrap().learn;
    assert_eq!(learn, Learn::Until(START.after_seconds(40.0)));

    let mut script = Script::new(EtcdOptions {
        stored_ledger: Some((epoch(4), false)),
        ..alone
    });
    script.win(None, &[], None);
    script.fetch_ledger();
    assert!(script.begun().unwrap().inherits);
}

/// Executes the write of a bound. Returns the operations of its transaction.
fn write_bound(script: &mut Script, id: i64) -> Vec<Op> {
    let (call, grant) = script.take(is_grant);
    let EtcdCall::GrantLease { ttl } = grant else {
        panic!()
    };
    let lease = LeaseId(id);
    script.answer(call, EtcdReply::LeaseGranted { lease, ttl });
    let (call, EtcdCall::Txn(put)) = script.take(is_txn) else {
        panic!()
    };
    script.answer(call, txn(true, 11, vec![Vec::new(); put.success.len()]));
    put.success
}

fn put(key: &str) -> Op {
    Op::Put {
        key: key.to_owned(),
        value: Vec::new(),
        lease: None,
    }
}

#[test]
fn longer_lease_is_stored_before_it_is_reported() {
    const SECOND: u64 = 1_000_000_000;
    let mut script = Script::new(options());
    script.win(None, &[], None);
    let due = |script: &Script, longest| Bound {
        longest: longest * SECOND,
        ..due(script, 66.0)
    };
    let longest = |script: &Script| {
        script.effects.iter().rev().find_map(|effect| match effect {
            Effect::Reign(ReignEffect::BoundWritten(written)) => Some(written.longest / SECOND),
            _ => None,
        })
    };
    script.handle(Event::BoundDue(due(&script, 63)));
    let written = write_bound(&mut script, 2);
    let key = |seconds: u64| format!("p/longest/{UNIX}/{}", seconds * SECOND);
    assert!(written.contains(&put(&key(63))), "{written:?}");
    assert_eq!(longest(&script), Some(63));

    // The lease of the bound lasts long enough, but nothing says how long leases are.
    script.handle(Event::BoundDue(due(&script, 65)));
    let written = write_bound(&mut script, 3);
    assert!(written.contains(&put(&key(65))), "{written:?}");
    assert_eq!(longest(&script), Some(65));
    script.handle(Event::BoundDue(due(&script, 65)));
    script.take(|call| *call == EtcdCall::KeepAlive(LeaseId(3)));
    // Others hear of it.
    assert_eq!(script.election.view().longest, Some(65 * SECOND));
}

#[test]
fn longest_lease_of_earlier_reigns_goes_with_the_first_of_this_one() {
    let mut script = Script::new(options());
    script.pass(0.0);
    script.find_no_master(Some(UNIX - 9));
    script.reply(is_grant, granted(1));
    let old = format!("p/longest/{}/630000000000", UNIX - 9);
    let mut results = vec![Vec::new(); 7];
    results[2] = vec![kv("p/leases/1/7", b"", Some(7))];
    results[5] = vec![kv(&old, b"", None)];
    script.reply(is_txn, txn(true, 10, results));
    script.reply(is_time_to_live, EtcdReply::TimeLeft(Some(99)));
    let term = script.begun().unwrap().clone();
    assert_eq!(term.longest, Some(630_000_000_000));
    // What is left of the earlier leases is all that counts from now on, or their length.
    let due = |term: &Term| {
        let mut bound = term.new_bound(Seconds::saturating(10.0), None, script.now);
        bound.require_until(script.now.after_seconds(10.5));
        bound.due().unwrap()
    };
    let shorter = Term {
        longest: Some(63_000_000_000),
        ..term.clone()
    };
    assert_eq!(due(&shorter).longest, 63_000_000_000);
    let due = due(&term);
    assert_eq!(due.longest, 105_000_000_000);
    script.handle(Event::BoundDue(due));
    let written = write_bound(&mut script, 2);
    assert!(written.contains(&Op::Delete(old)), "{written:?}");
}

#[test]
fn standby_remembers_the_longest_lease_when_etcd_loses_it() {
    let mut script = Script::new(EtcdOptions {
        is_first: false,
        ..options()
    });
    script.pass(0.0);
    let record = Record {
        server_id: "b".to_owned(),
        address: "http://b".to_owned(),
        epoch: epoch(UNIX),
        instance: 2,
    };
    let master = kv("p/master", &serde_json::to_vec(&record).unwrap(), Some(9));
    let longest = kv("p/longest/1/630000000000", b"", None);
    let results = vec![vec![master], Vec::new(), Vec::new(), vec![longest]];
    script.reply(is_poll, txn(true, 9, results));
    assert_eq!(script.election.view().longest, Some(630_000_000_000));

    script.pass(0.3);
    script.find_no_master(None);
    script.reply(is_grant, granted(1));
    let (call, EtcdCall::Txn(campaign)) = script.take(is_txn) else {
        panic!()
    };
    // The next master may remember less.
    let key = format!("p/longest/{}/630000000000", UNIX + 1);
    assert!(campaign.success.contains(&put(&key)), "{campaign:?}");
    script.answer(call, txn(true, 10, vec![Vec::new(); 9]));
    script.outwait_forgotten_master();
    let term = script.begun().unwrap();
    assert!(!term.is_longest_unknown());
    let learns = term.predecessor(Seconds::saturating(10.0), script.now);
    assert_eq!(learns, Predecessor::Until(script.now.after_seconds(630.0)));
}

#[test]
fn unknown_length_of_lost_leases_is_that_of_the_document() {
    let mut script = Script::new(EtcdOptions {
        is_first: false,
        ..options()
    });
    script.win(None, &[], None);
    script.outwait_forgotten_master();
    let term = script.begun().unwrap();
    assert!(term.is_longest_unknown());
    let learns = term.predecessor(Seconds::saturating(10.0), script.now);
    assert_eq!(learns, Predecessor::Until(script.now.after_seconds(10.5)));
}

fn generation(templates: usize) -> TermsGeneration {
    let template = |index| EarlierTemplate {
        identifier_glob: format!("tenant/{index}"),
        capacity: Capacity::new(10.0).unwrap(),
        unit: Unit::Rate,
        per: Seconds::new(60.0).unwrap(),
        is_divided: true,
    };
    (0..templates).map(template).collect()
}

#[test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn terms_are_written_in_parts_and_found_by_the_next_master() {
    let due = |version, templates| DueTerms {
        version,
        generations: vec![generation(templates), generation(1)],
    };
    let mut script = Script::new(options());
    script.win(None, &[], None);
    let mut stored = BTreeMap::new();
    for (version, templates) in [(1, 10), (2, 10_000)] {
        script.handle(Event::TermsDue(due(version, templates)));
        // Only one at a time.
        script.handle(Event::TermsDue(due(9, 1)));
        while let Some(at) = script.open.iter().position(|(_, call)| is_txn(call)) {
            let written = ReignEffect::TermsWritten(due(version, templates)).into();
            assert!(!script.effects.contains(&written));
            let (call, EtcdCall::Txn(put)) = script.open.remove(at) else {
                panic!()
            };
            let [Compare::Created { revision: 10, .. }] = &put.compare[..] else {
                panic!("{put:?}")
            };
            for op in put.success {
                match op {
                    Op::Put { key, value, .. } if key == "p/terms/newest" => {
                        assert_eq!(value, format!("{UNIX}/{version}").into_bytes());
                    }
                    Op::Put { key, value, .. } => {
                        assert!(value.len() <= TERMS_PART);
                        stored.insert(key, value);
                    }
                    Op::DeletePrefix(prefix) => stored.retain(|key, _| !key.starts_with(&prefix)),
                    other => panic!("{other:?}"),
                }
            }
            script.answer(call, txn(true, 11, vec![Vec::new(); 2]));
        }
        let written = ReignEffect::TermsWritten(due(version, templates)).into();
        assert!(script.effects.contains(&written));
    }
    assert!(
        stored
            .keys()
            .all(|key| key.starts_with(&format!("p/terms/{UNIX}/2/")))
    );
    assert!(stored.len() > 1);

    // The first version is executed again, late, and a third one is incomplete.
    let mut keys: Vec<_> = stored
        .iter()
        .map(|(key, value)| kv(key, value, None))
        .collect();
    keys.push(kv(&format!("p/terms/{UNIX}/1/0/1"), b"[]", None));
    keys.push(kv(&format!("p/terms/{UNIX}/3/0/2"), b"[", None));
    let mut next = Script::new(options());
    next.pass(0.0);
    next.find_no_master(Some(UNIX));
    next.reply(is_grant, granted(1));
    let mut results = vec![Vec::new(); 7];
    results[6] = keys;
    next.reply(is_txn, txn(true, 10, results));
    assert_eq!(next.begun().unwrap().terms, due(2, 10_000).generations);

    // Its own terms replace them.
    next.handle(Event::TermsDue(due(1, 1)));
    let (_, EtcdCall::Txn(put)) = next.take(is_txn) else {
        panic!()
    };
    let deleted = put.success.iter().filter_map(|op| match op {
        Op::DeletePrefix(prefix) => Some(prefix.clone()),
        _ => None,
    });
    let old = [1, 2, 3].map(|version| format!("p/terms/{UNIX}/{version}/"));
    assert_eq!(deleted.collect::<Vec<_>>(), old);
}

#[test]
fn failed_write_of_terms_is_repeated() {
    let mut script = Script::new(options());
    script.win(None, &[], None);
    let due = || DueTerms {
        version: 1,
        generations: vec![generation(1)],
    };
    script.handle(Event::TermsDue(due()));
    script.fail(is_txn);
    assert!(script.effects.contains(&ReignEffect::TermsFailed.into()));
    script.handle(Event::TermsDue(due()));
    assert!(!script.open.iter().any(|(_, call)| is_txn(call)));
    script.pass(0.3);
    script.handle(Event::TermsDue(due()));
    script.reply(is_txn, txn(true, 11, vec![Vec::new()]));
    assert!(
        script
            .effects
            .contains(&ReignEffect::TermsWritten(due()).into())
    );
}

/// The terms that a standby has after it has heard of some in etcd.
fn heard_by_standby(
    script: &mut Script,
    epoch: Option<&[u8]>,
    heard: &[TermsGeneration],
) -> Vec<TermsGeneration> {
    script.pass(0.0);
    let version = kv("p/terms/newest", b"7/1", None);
    let mut results = vec![Vec::new(); 5];
    results[1] = epoch
        .map(|it| kv("p/epoch", it, None))
        .into_iter()
        .collect();
    results[4] = vec![version.clone()];
    script.reply(is_poll, txn(true, 9, results));
    let text = serde_json::to_vec(&earlier_terms(heard)).unwrap();
    let found = vec![kv("p/terms/7/1/0/1", &text, None), version];
    let reads_terms = |call: &EtcdCall| {
        let prefix = Op::GetPrefix("p/terms/".to_owned());
        matches!(call, EtcdCall::Txn(txn) if txn.success == [prefix])
    };
    script.reply(reads_terms, txn(true, 9, vec![found]));
    let mut effects = script.effects.iter();
    let terms = effects.find_map(|it| match it {
        Effect::TermsHeard(terms) => Some(terms.clone()),
        _ => None,
    });
    terms.unwrap()
}

#[test]
fn standby_remembers_the_terms_when_etcd_loses_them() {
    let mut script = Script::new(EtcdOptions {
        is_first: false,
        ..options()
    });
    let heard = vec![generation(2)];
    assert_eq!(heard_by_standby(&mut script, None, &heard), heard);

    // etcd is empty now: the campaign finds neither leases nor terms.
    script.reply(is_grant, granted(1));
    script.reply(is_txn, txn(true, 10, vec![Vec::new(); 8]));
    script.outwait_forgotten_master();
    let term = script.begun().unwrap();
    assert_eq!((&term.terms, &term.other_terms), (&Vec::new(), &heard));
    let mut bound = term.new_bound(Seconds::saturating(60.0), None, script.now);
    let due = bound.terms_mut().unwrap().due(script.now).unwrap();
    assert_eq!(due.generations, heard);
}

#[test]
fn standby_keeps_the_terms_of_leases_that_etcd_does_not_know() {
    let (own, heard) = (generation(1), generation(2));
    let both = vec![heard.clone(), own.clone()];
    let alone = |seconds| EtcdOptions {
        earlier_leases: Some(START.after_seconds(seconds)),
        ..options()
    };
    let elected = |last| EtcdOptions {
        last_epoch: Some(epoch(last)),
        had_election: true,
        ..options()
    };
    for (options, expected) in [
        (alone(40.0), both.clone()),
        (alone(0.0), vec![heard.clone()]),
        // etcd was restored from a backup.
        (elected(8), both),
        (elected(7), vec![heard.clone()]),
    ] {
        let mut script = Script::new(EtcdOptions {
            terms: vec![own.clone()],
            ..options
        });
        let heard = [heard.clone()];
        assert_eq!(heard_by_standby(&mut script, Some(b"7"), &heard), expected);
    }
}

/// A master that learns all leases, whose terms etcd does not have.
fn master_without_terms() -> Script {
    let mut script = Script::new(EtcdOptions {
        terms: vec![generation(1)],
        is_first: false,
        ..options()
    });
    script.win(None, &[], None);
    script.outwait_forgotten_master();
    script
}

fn terms_due(script: &mut Script) {
    script.handle(Event::TermsDue(DueTerms {
        version: 1,
        generations: vec![generation(1)],
    }));
}

fn bound_due(script: &mut Script) {
    script.handle(Event::BoundDue(due(script, 66.0)));
}

fn write_terms(script: &mut Script) -> Vec<Op> {
    let (call, EtcdCall::Txn(put)) = script.take(is_txn) else {
        panic!()
    };
    script.answer(call, txn(true, 11, vec![Vec::new(); put.success.len()]));
    put.success
}

#[test]
fn lost_leases_stay_unknown_until_their_terms_are_stored() {
    let unknown = Op::Delete("p/leases/unknown".to_owned());
    for terms_first in [true, false] {
        let mut script = master_without_terms();
        let store_terms = |script: &mut Script| {
            terms_due(script);
            write_terms(script)
        };
        let store_bound = |script: &mut Script| {
            bound_due(script);
            write_bound(script, 2)
        };
        let (first, second) = if terms_first {
            (store_terms(&mut script), store_bound(&mut script))
        } else {
            (store_bound(&mut script), store_terms(&mut script))
        };
        assert!(!first.contains(&unknown), "{first:?}");
        assert!(second.contains(&unknown), "{second:?}");
    }
}

#[test]
fn bound_waits_for_the_terms_while_leases_are_unknown() {
    let mut script = master_without_terms();
    terms_due(&mut script);
    bound_due(&mut script);
    assert!(!script.open.iter().any(|(_, call)| is_grant(call)));
    write_terms(&mut script);
    bound_due(&mut script);
    let put = write_bound(&mut script, 2);
    assert!(put.contains(&Op::Delete("p/leases/unknown".to_owned())));
}

#[test]
fn terms_wait_for_the_bound_while_leases_are_unknown() {
    let mut script = master_without_terms();
    bound_due(&mut script);
    terms_due(&mut script);
    assert!(!script.open.iter().any(|(_, call)| is_txn(call)));
    write_bound(&mut script, 2);
    terms_due(&mut script);
    let put = write_terms(&mut script);
    assert!(put.contains(&Op::Delete("p/leases/unknown".to_owned())));
}

#[test]
fn bound_is_written_after_the_terms_have_failed() {
    let mut script = master_without_terms();
    terms_due(&mut script);
    script.fail(is_txn);
    bound_due(&mut script);
    let put = write_bound(&mut script, 2);
    assert!(!put.contains(&Op::Delete("p/leases/unknown".to_owned())));
    script.pass(1.0);
    terms_due(&mut script);
    let put = write_terms(&mut script);
    assert!(put.contains(&Op::Delete("p/leases/unknown".to_owned())));
}

fn header(raft_term: u64, revision: u64) -> ReplyHeader {
    ReplyHeader {
        cluster: 1,
        raft_term,
        revision,
    }
}

#[test]
fn renewal_of_deposed_leader_is_ignored() {
    let mut script = Script::new(options());
    script.win(None, &[], None);
    script.pass(1.0);
    script.header = header(4, 10);
    script.reply(is_keep_alive, EtcdReply::KeptAlive(Some(5)));
    script.effects.clear();
    script.pass(1.0);
    script.header = HEADER;
    script.reply(is_keep_alive, EtcdReply::KeptAlive(Some(5)));
    script.reply(is_poll, txn(true, 10, vec![Vec::new(); 2]));
    assert_eq!(script.effects, []);
    // Both are tried again.
    script.pass(0.2);
    script.take(is_keep_alive);
    script.take(is_poll);
}

#[test]
fn bound_is_not_read_from_deposed_leader() {
    for stale in [header(3, 9), header(2, 10), header(0, 0)] {
        let mut script = Script::new(options());
        script.win(Some(1), &[7], None);
        script.header = stale;
        script.reply(is_time_to_live, EtcdReply::TimeLeft(None));
        assert_eq!(script.begun(), None, "{stale:?}");
        script.header = HEADER;
        script.pass(0.3);
        script.reply(is_time_to_live, EtcdReply::TimeLeft(Some(20)));
        let learn = script.begun().map(|it| it.learn);
        assert!(matches!(learn, Some(Learn::Until(_))), "{learn:?}");
    }
}

#[test]
fn bound_renewed_at_deposed_leader_is_not_written() {
    let mut script = Script::new(options());
    script.win(None, &[], None);
    script.handle(Event::BoundDue(due(&script, 66.0)));
    script.reply(is_grant, granted(2));
    script.header = header(2, 12);
    script.reply(is_txn, txn(true, 12, vec![Vec::new()]));
    assert_eq!(
        script.effects.last(),
        Some(&ReignEffect::BoundFailed.into())
    );
}

#[test]
fn other_cluster_counts_for_nothing_in_a_reign() {
    let mut script = Script::new(options());
    script.win(None, &[], None);
    let ends = seconds(script.begun().unwrap().deadline);
    script.pass(1.0);
    script.header.cluster = 2;
    script.header.raft_term += 1;
    script.reply(is_keep_alive, EtcdReply::KeptAlive(Some(5)));
    // The other cluster has no key of this master.
    script.reply(is_poll, txn(true, 99, vec![Vec::new(); 5]));
    assert_eq!(script.ended(), None);
    script.pass(ends - 1.0);
    assert_eq!(script.ended(), Some(EndReason::Deadline));
}

#[test]
fn renewal_is_no_longer_than_granted() {
    let mut script = Script::new(options());
    script.win(None, &[], None);
    script.pass(1.0);
    let sent = script.now;
    script.reply(is_keep_alive, EtcdReply::KeptAlive(Some(500)));
    let deadline = sent.after_seconds(4.75);
    assert_eq!(
        script.effects.last(),
        Some(&ReignEffect::Extend(deadline).into())
    );
}

#[test]
fn etcd_that_begins_anew_is_heard_after_the_reign() {
    let mut script = Script::new(options());
    script.win(None, &[], None);
    script.header = header(2, 1);
    script.pass(5.0);
    assert_eq!(script.ended(), Some(EndReason::Deadline));
    script.effects.clear();
    script.pass(5.0);
    // Earlier ones are overdue.
    script.open.drain(..script.open.len() - 1);
    script.find_no_master(None);
    script.reply(is_grant, granted(3));
    script.reply(is_txn, txn(true, 2, vec![Vec::new(); 4]));
    script.outwait_forgotten_master();
    assert!(script.begun().is_some());
}

#[test]
fn view_has_the_time_of_the_first_poll_that_failed() {
    let mut script = Script::new(options());
    script.pass(0.0);
    let view = script.election.view();
    assert_eq!((view.unread_since, view.has_read), (None, false));
    script.fail(is_poll);
    script.pass(0.5);
    script.fail(is_poll);
    let view = script.election.view();
    assert_eq!((view.unread_since, view.has_read), (Some(START), false));
    script.pass(0.5);
    script.find_no_master(None);
    let view = script.election.view();
    assert_eq!((view.unread_since, view.has_read), (None, true));
}

/// The longest pause is longer than the age from which on it would be shown.
#[test]
fn pause_after_lost_campaigns_is_no_unread_election() {
    let mut script = Script::new(EtcdOptions {
        instance: 1023,
        ..options()
    });
    for _ in 0..10 {
        script.open.clear();
        while !script.open.iter().any(|(_, call)| is_poll(call)) {
            script.now = script.now.max(script.election.wake_at());
            script.handle(Event::Wake);
        }
        script.find_no_master(None);
        script.fail(is_grant);
    }
    let pause = script.election.wake_at().seconds_since(script.now);
    assert!(pause > 3.0, "{pause}");
    assert_eq!(script.election.view().unread_since, None);
}
