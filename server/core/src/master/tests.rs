//! Requests that wait for what is durable, at the end of a reign, and in parts.

use doorman_openapi::CapacityRequest;

use super::*;
use crate::reign::{Bound, DurableBound, DurableTerms};

const NOW: Moment = Moment::from_nanos(1_000_000_000_000);
/// The booking of a lease of a minute, in nanoseconds.
const LONGEST: u64 = 63_000_000_000;

fn document(per: f64) -> Arc<Document> {
    let text = format!(
        "resources: [{{identifier_glob: db, capacity: {}, per: {per}, \
         algorithm: {{kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}}}}, \
         {{identifier_glob: '*', capacity: 10, \
         algorithm: {{kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}}}}]",
        10.0 * per
    );
    Arc::new(Document::parse(&text).unwrap())
}

/// A master with this bound.
fn master(bound: DurableBound) -> Master {
    let settings = MasterSettings {
        max_leases: 10_000,
        unmatched: UnmatchedPolicy::Grant,
        logs_usage: false,
        longest: Seconds::ZERO,
        tuning: &Tuning::DEFAULT,
    };
    let mut master = Master::new(settings, document(1.0));
    let ledger = master.new_ledger(Epoch::ZERO, NOW);
    let reign = Reign::new(Epoch::ZERO, Moment::NEVER, ledger, bound);
    assert!(master.install(reign).is_none());
    master
}

fn call(resources: &[&str]) -> LeaseCall {
    let asked = resources.iter();
    let asked = asked.map(|id| format!(r#"{{"resource_id":"{id}","wants":5}}"#));
    let asked = asked.collect::<Vec<_>>().join(",");
    let request = format!(r#"{{"client_id":"c","resources":[{asked}]}}"#);
    let request: CapacityRequest = serde_json::from_str(&request).unwrap();
    request.into()
}

fn bound(ends: f64, longest: u64) -> DurableBound {
    DurableBound::new(NOW.after_seconds(ends), longest)
}

/// The lengths of the leases of the only request that was answered.
fn answered(master: &mut Master, now: Moment) -> Option<Result<Vec<f64>, NotGranted>> {
    if master.wake_at() <= now {
        master.tick(now);
    }
    let outcome = master.settle(now).into_iter().find_map(|it| match it {
        Effect::Resume {
            progress: Progress::Done(outcome),
            ..
        } => Some(outcome),
        _ => None,
    });
    let lengths = |granted: Granted| {
        let grants = granted.grants.into_iter();
        grants.map(|it| it.lease_length.get().round()).collect()
    };
    Some(outcome?.map(lengths))
}

fn waits(master: &mut Master, call: LeaseCall) {
    let progress = master.request(call, NOW);
    assert!(matches!(progress, Progress::Waits(_)), "{progress:?}");
    let is_urgent = |it: &Effect| matches!(it, Effect::BoundUrgent);
    assert!(master.settle(NOW).iter().any(is_urgent));
}

/// The outcome after a second without a write.
fn unwritten(bound: DurableBound) -> Result<Vec<f64>, NotGranted> {
    let mut master = master(bound);
    waits(&mut master, call(&["db"]));
    let end = NOW.after_seconds(1.0);
    assert_eq!(master.wake_at(), end);
    assert!(answered(&mut master, NOW.after_seconds(0.999)).is_none());
    answered(&mut master, end).unwrap()
}

#[test]
fn covered_lease_is_reported_immediately() {
    let mut master = master(bound(63.0, LONGEST));
    let progress = master.request(call(&["db"]), NOW);
    assert!(matches!(progress, Progress::Done(Ok(_))), "{progress:?}");
    // The latest lease: the bound is written further ahead.
    let due = Bound {
        until: NOW.after_seconds(66.0),
        longest: LONGEST,
    };
    assert_eq!(master.due_bound(), Some(due));
}

#[test]
fn uncovered_lease_waits_for_the_storage() {
    let mut master = master(bound(0.0, 0));
    // A server that grants nothing writes nothing.
    assert_eq!(master.due_bound(), None);
    waits(&mut master, call(&["db"]));
    let due = master.due_bound().unwrap();
    assert_eq!(due.until, NOW.after_seconds(66.0));
    assert!(answered(&mut master, NOW).is_none());
    let written = Bound {
        until: due.until,
        longest: LONGEST,
    };
    master.apply(ReignEffect::BoundWritten(written), NOW);
    assert_eq!(answered(&mut master, NOW), Some(Ok(vec![60.0])));
    assert_eq!(master.due_bound(), None);
}

#[test]
fn leases_shorten_then_expire_when_writes_fail() {
    assert_eq!(unwritten(bound(21.0, LONGEST)), Ok(vec![20.0]));
    // The holder keeps the lease that it has.
    let nothing = Err(NotGranted::NotDurable);
    assert_eq!(unwritten(bound(0.0, LONGEST)), nothing);
}

#[test]
fn lease_longer_than_all_before_waits_for_the_storage() {
    // The end is covered, by another lease that ends later.
    let mut master = master(bound(300.0, 21_000_000_000));
    waits(&mut master, call(&["db"]));
    // The write replaces the bound, whose end stays.
    let due = Bound {
        until: NOW.after_seconds(300.0),
        longest: LONGEST,
    };
    assert_eq!(master.due_bound(), Some(due));
    let written = Bound {
        until: Moment::ORIGIN,
        longest: LONGEST,
    };
    master.apply(ReignEffect::BoundWritten(written), NOW);
    assert_eq!(answered(&mut master, NOW), Some(Ok(vec![60.0])));

    // It is shortened to the longest that is durable, or withheld.
    assert_eq!(unwritten(bound(300.0, 21_000_000_000)), Ok(vec![20.0]));
    assert_eq!(unwritten(bound(300.0, 0)), Err(NotGranted::NotDurable));
}

/// A master whose unit of `db` has changed, which is not stored yet.
fn changed() -> Master {
    let terms = DurableTerms::new(&[], &[], NOW);
    let mut master = master(DurableBound::new(Moment::NEVER, u64::MAX).with_terms(terms));
    let due = master.due_terms(NOW).unwrap();
    master.apply(ReignEffect::TermsWritten(due), NOW);
    master.reconfigure(&document(60.0));
    master.settle(NOW);
    master
}

#[test]
fn lease_in_a_new_unit_waits_until_that_is_stored() {
    let mut master = changed();
    waits(&mut master, call(&["db"]));
    let due = master.due_terms(NOW).unwrap();
    master.apply(ReignEffect::TermsWritten(due), NOW);
    assert_eq!(answered(&mut master, NOW), Some(Ok(vec![60.0])));

    // It is not stored within a second. Other leases do not need it.
    let mut master = changed();
    waits(&mut master, call(&["db"]));
    let end = NOW.after_seconds(1.0);
    let nothing = Err(NotGranted::NotDurable);
    assert_eq!(answered(&mut master, end), Some(nothing));
    let mut master = changed();
    let progress = master.request(call(&["other"]), NOW);
    assert!(matches!(progress, Progress::Done(Ok(_))), "{progress:?}");
}

#[test]
fn request_that_waits_is_answered_at_the_end_of_the_reign() {
    let mut master = master(bound(21.0, LONGEST));
    waits(&mut master, call(&["db"]));
    let ended = master.apply(ReignEffect::End(EndReason::Deposed), NOW);
    assert!(matches!(ended, Applied::Ended { .. }), "{ended:?}");
    assert_eq!(answered(&mut master, NOW), Some(Ok(vec![20.0])));
}

#[test]
fn long_request_is_decided_in_parts_of_one_reign() {
    let ids: Vec<_> = (0..2000).map(|it| format!("r{it}")).collect();
    let ids: Vec<_> = ids.iter().map(String::as_str).collect();
    let endless = || DurableBound::new(Moment::NEVER, u64::MAX);
    let mut master = master(endless());
    let mut progress = master.request(call(&ids), NOW);
    let mut parts = 1;
    while let Progress::Again(request) = progress {
        parts += 1;
        progress = master.proceed(request, NOW);
    }
    let Progress::Done(Ok(granted)) = progress else {
        panic!("{progress:?}");
    };
    assert_eq!(granted.grants.len(), ids.len());
    assert!(parts > 1);

    let mut master = self::master(endless());
    let Progress::Again(request) = master.request(call(&ids), NOW) else {
        panic!("decided at once");
    };
    let next = master.new_ledger(Epoch::new(1).unwrap(), NOW);
    let next = Reign::new(Epoch::new(1).unwrap(), Moment::NEVER, next, endless());
    assert!(master.install(next).is_some());
    let progress = master.proceed(request, NOW);
    let is_lost = matches!(progress, Progress::Done(Err(NotGranted::NotMaster)));
    assert!(is_lost, "{progress:?}");
}

/// A master below a parent, with a request that waits for it, and the request to the parent.
fn below_parent() -> (Master, upstream::Effect) {
    let mut master = master(DurableBound::new(Moment::NEVER, u64::MAX));
    master.lease_from(ParentLink {
        node: "eu".parse().unwrap(),
        endpoints: 1,
        seed: 7,
        polls: false,
    });
    let ledger = master.new_ledger(Epoch::ZERO, NOW);
    let bound = DurableBound::new(Moment::NEVER, u64::MAX);
    let reign = Reign::new(Epoch::ZERO, Moment::NEVER, ledger, bound);
    assert!(master.install(reign).is_some());
    let progress = master.request(call(&["db"]), NOW);
    assert!(matches!(progress, Progress::Waits(_)), "{progress:?}");
    let told = master.tell_upstream(Epoch::ZERO, upstream::Event::Wake, NOW);
    let is_request = |it: &upstream::Effect| matches!(it, upstream::Effect::Send { .. });
    let asked = told.unwrap().into_iter().find(is_request);
    (master, asked.unwrap())
}

#[test]
fn request_that_waits_for_the_parent_goes_on_at_its_answer() {
    let (mut master, asked) = below_parent();
    let upstream::Effect::Send { seq, request, .. } = asked else {
        unreachable!("it is a request");
    };
    assert!(answered(&mut master, NOW).is_none());
    let settings = Settings {
        max_leases: 10,
        unmatched: UnmatchedPolicy::Grant,
        predecessor: Predecessor::None,
        epoch: Epoch::ZERO,
    };
    let mut root = Ledger::new(document(1.0), settings, NOW);
    let grants = root.refresh(&request.into(), NOW).into_iter();
    let response = doorman_openapi::ServerCapacityResponse {
        warnings: Vec::new(),
        node: "root".parse().unwrap(),
        epoch: Epoch::ZERO,
        level: 0,
        resources: grants.map(|it| it.into_server_response(0)).collect(),
    };
    let event = upstream::Event::Answered { seq, response };
    // An answer to a request of an earlier reign counts for nothing.
    let other = Epoch::new(1).unwrap();
    assert!(master.tell_upstream(other, event.clone(), NOW).is_none());
    assert!(answered(&mut master, NOW).is_none());
    master.tell_upstream(Epoch::ZERO, event, NOW).unwrap();
    let lengths = answered(&mut master, NOW).unwrap().unwrap();
    assert!(lengths[0] > 50.0, "{lengths:?}");
}

#[test]
fn request_without_an_answer_of_the_parent_ends_after_a_second() {
    let (mut master, _) = below_parent();
    assert!(answered(&mut master, NOW.after_seconds(0.999)).is_none());
    // Nobody has leases of an earlier master, so the holder is told that it has none.
    let end = NOW.after_seconds(1.0);
    assert_eq!(answered(&mut master, end), Some(Ok(vec![0.0])));
}
