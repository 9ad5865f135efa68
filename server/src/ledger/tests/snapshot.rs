//! Snapshots, from one server to its successor.

use doorman_openapi::{Balance, Probability};
use proptest::prelude::*;

use super::*;
use crate::ledger::{LearningRecord, PageQuery, ResourceRecord};

const KINDS: [&str; 6] = [
    "NO_ALGORITHM",
    "STATIC",
    "PROPORTIONAL_SHARE",
    "FAIR_SHARE",
    "SHARED_BUCKET",
    "SUPPRESSION",
];

/// The content of a snapshot file.
fn written(ledger: &Ledger, now: Moment) -> (Option<LearningRecord>, String) {
    let records: Vec<ResourceRecord> = ledger.snapshot(now).collect();
    (
        ledger.learning_snapshot(now),
        serde_json::to_string(&records).unwrap(),
    )
}

/// A ledger restored from a snapshot, possibly on another clock.
fn successor(world: &World, kind: &str, now: Moment) -> World {
    let (learning, text) = written(&world.ledger, world.now);
    let mut ledger = Ledger::new(document(kind, 100.0), SETTINGS, now);
    if let Some(learning) = learning {
        ledger.restore_learning(learning, now);
    }
    for record in serde_json::from_str::<Vec<ResourceRecord>>(&text).unwrap() {
        ledger.restore(&record, now).unwrap();
    }
    World { ledger, now }
}

#[derive(Debug, Clone)]
enum Step {
    Ask {
        client: u8,
        seq: u64,
        wants: f64,
        has: Option<f64>,
        used: Option<f64>,
    },
    Release(u8, u64),
    Wait(f64),
}

fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..6u8, 0..40u64, 0.0..90.0f64, prop::option::of(0.0..60.0f64), prop::option::of(0.0..900.0f64))
            .prop_map(|(client, seq, wants, has, used)| Step::Ask { client, seq, wants, has, used }),
        1 => (0..6u8, 0..40u64).prop_map(|(client, seq)| Step::Release(client, seq)),
        3 => (0.0..9.0f64).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 0..most)
}

fn take(world: &mut World, step: &Step) -> Option<Grant> {
    match step {
        Step::Ask {
            client,
            seq,
            wants,
            has,
            used,
        } => {
            let mut request = request(&client.to_string(), Some(*seq), *wants, *has);
            request.resources[0].used = used.map(|used| Capacity::new(used).unwrap());
            Some(world.send(&request))
        }
        Step::Release(client, seq) => {
            world.release(&client.to_string(), Some(*seq));
            None
        }
        Step::Wait(seconds) => {
            world.wait(*seconds);
            None
        }
    }
}

/// Compares all but the time of day and the clock.
fn assert_same_grant(old: &World, told: &Grant, new: &World, anew: &Grant) {
    close(anew.capacity.get(), told.capacity.get());
    let nearly =
        |one: f64, other: f64| assert!((one - other).abs() < 1e-6, "{anew:?} is not {told:?}");
    nearly(anew.lease_length.get(), told.lease_length.get());
    let booked = |world: &World, told: &Grant| told.booked_until.seconds_since(world.now);
    nearly(booked(new, anew), booked(old, told));
    assert_eq!(
        (anew.reason, anew.refresh_interval, anew.safe_capacity),
        (told.reason, told.refresh_interval, told.safe_capacity)
    );
    let numbers = |told: &Grant| {
        let balance = told.feedback.balance().map(Balance::get);
        let probability = told.feedback.admission_probability();
        (balance, probability.map(Probability::get))
    };
    match (numbers(anew), numbers(told)) {
        ((Some(one), None), (Some(other), None)) | ((None, Some(one)), (None, Some(other))) => {
            nearly(one, other);
        }
        (one, other) => assert_eq!(one, other),
    }
}

proptest! {
    #[test]
    fn restored_ledger_decides_like_the_original(
        kind in prop::sample::select(KINDS.to_vec()),
        before in steps(40),
        after in steps(30),
        learns in any::<bool>(),
        other_clock in prop::option::of(1.0..10_000.0f64),
    ) {
        let until = Moment::ORIGIN.after_seconds(3630.0);
        let predecessor = if learns { Predecessor::Until(until) } else { Predecessor::None };
        let settings = Settings { predecessor, ..SETTINGS };
        let mut old = World::with(document(kind, 100.0), settings);
        for step in &before {
            take(&mut old, step);
        }
        // The clock of another boot starts again.
        let now = other_clock.map_or(old.now, |now| Moment::ORIGIN.after_seconds(now));
        let mut new = successor(&old, kind, now);
        prop_assert_eq!(old.ledger.stats().leases, new.ledger.stats().leases);
        prop_assert_eq!(old.ledger.stats().resources, new.ledger.stats().resources);
        for step in &after {
            match (take(&mut old, step), take(&mut new, step)) {
                (Some(told), Some(anew)) => assert_same_grant(&old, &told, &new, &anew),
                (told, anew) => prop_assert!(told.is_none() && anew.is_none()),
            }
        }
        for world in [&mut old, &mut new] {
            world.wait(100.0);
            prop_assert_eq!(world.ledger.stats().leases, 0);
            prop_assert_eq!(world.ledger.stats().resources, 0);
        }
    }
}

#[test]
fn restored_leases_are_not_granted_again() {
    let mut old = World::new(document("FAIR_SHARE", 100.0));
    old.ask("a", 80.0, None);
    old.wait(3.0);
    let mut new = successor(&old, "FAIR_SHARE", old.now);
    // The new holder gets what is free, and the other shrinks to its share.
    let newcomer = new.ask("b", 80.0, None);
    close(newcomer.capacity.get(), 20.0);
    close(new.ask("a", 80.0, Some(80.0)).capacity.get(), 50.0);
}

#[test]
fn many_holders_take_several_records() {
    let mut old = World::new(document("FAIR_SHARE", 5000.0));
    for client in 0..2500 {
        old.ask(&client.to_string(), 1.0, None);
    }
    let parts: Vec<_> = old
        .ledger
        .snapshot(old.now)
        .map(|it| it.holders.len())
        .collect();
    assert_eq!(parts, [1000, 1000, 500]);
    let new = successor(&old, "FAIR_SHARE", old.now);
    old.ledger.reconfigure(document("FAIR_SHARE", 100.0));
    assert_eq!(new.view(), old.view());
}

#[test]
fn lease_expired_while_stopped_is_free() {
    let mut old = World::new(document("FAIR_SHARE", 100.0));
    old.ask("a", 80.0, None);
    let (_, text) = written(&old.ledger, old.now);
    let started = old.now.after_seconds(30.0);
    let mut ledger = Ledger::new(document("FAIR_SHARE", 100.0), SETTINGS, started);
    for record in serde_json::from_str::<Vec<ResourceRecord>>(&text).unwrap() {
        ledger.restore(&record, old.now).unwrap();
    }
    let mut new = World {
        ledger,
        now: started,
    };
    new.wait(0.0);
    assert_eq!(new.ledger.stats().leases, 0);
    assert_eq!(new.ask("b", 100.0, None).capacity.get(), 100.0);
}

#[test]
fn invalid_holder_id_is_an_error() {
    let mut old = World::new(document("FAIR_SHARE", 100.0));
    old.ask("a", 80.0, None);
    let mut record = old.ledger.snapshot(old.now).next().unwrap();
    record.holders[0].id = String::new();
    assert!(
        World::new(document("FAIR_SHARE", 100.0))
            .ledger
            .restore(&record, old.now)
            .is_err()
    );
}

#[test]
fn snapshot_keeps_due_times() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.ask("a", 10.0, None);
    world.ask("b", 10.0, None);
    world.ledger.reconfigure(parse(
        "resources: [{identifier_glob: db, capacity: 100, \
         algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 9}}]",
    ));
    world.wait(4.0);
    world.ask("a", 10.0, Some(10.0));
    world.wait(8.0);
    let successor = successor(&world, "FAIR_SHARE", world.now);
    for world in [&world, &successor] {
        let page = world
            .ledger
            .holders(&db(), &PageQuery::unfiltered(10), None, world.now);
        let due: Vec<_> = page.unwrap().holders.iter().map(|it| it.due_in).collect();
        assert_eq!(due, [Some(1.0), Some(-7.0)]);
    }
}
