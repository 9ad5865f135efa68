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
    Refresh {
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
            .prop_map(|(client, seq, wants, has, used)| Step::Refresh { client, seq, wants, has, used }),
        1 => (0..6u8, 0..40u64).prop_map(|(client, seq)| Step::Release(client, seq)),
        3 => (0.0..9.0f64).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 0..most)
}

fn take(world: &mut World, step: &Step) -> Option<Grant> {
    match step {
        Step::Refresh {
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
fn assert_same_grant(old: &World, original: &Grant, new: &World, restored: &Grant) {
    close(restored.capacity.get(), original.capacity.get());
    let nearly = |one: f64, other: f64| {
        assert!(
            (one - other).abs() < 1e-6,
            "{restored:?} is not {original:?}"
        );
    };
    nearly(restored.lease_length.get(), original.lease_length.get());
    let booked = |world: &World, original: &Grant| original.booked_until.seconds_since(world.now);
    nearly(booked(new, restored), booked(old, original));
    assert_eq!(
        (
            restored.reason,
            restored.refresh_interval,
            restored.safe_capacity
        ),
        (
            original.reason,
            original.refresh_interval,
            original.safe_capacity
        )
    );
    let numbers = |original: &Grant| {
        let balance = original.signal.balance().map(Balance::get);
        let probability = original.signal.admission_probability();
        (balance, probability.map(Probability::get))
    };
    match (numbers(restored), numbers(original)) {
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
                (Some(original), Some(restored)) => assert_same_grant(&old, &original, &new, &restored),
                (original, restored) => prop_assert!(original.is_none() && restored.is_none()),
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
    old.refresh("a", 80.0, None);
    old.wait(3.0);
    let mut new = successor(&old, "FAIR_SHARE", old.now);
    // The new holder gets what is free, and the other shrinks to its share.
    let new_holder = new.refresh("b", 80.0, None);
    close(new_holder.capacity.get(), 20.0);
    close(new.refresh("a", 80.0, Some(80.0)).capacity.get(), 50.0);
}

#[test]
fn snapshot_keeps_bands_of_a_client() {
    for kind in ["FAIR_SHARE", "PRIORITY_SHARE"] {
        let mut old = World::new(document(kind, 100.0));
        old.refresh_in_bands("a", &[(0, 70.0), (5, 30.0)], None);
        old.refresh("b", 50.0, None);
        let mut new = successor(&old, kind, old.now);
        assert_eq!(new.view(), old.view(), "{kind}");
        assert_eq!(new.view().unwrap().clients, 2, "{kind}");
        let bands = new.holder("a").bands;
        assert_eq!(bands, old.holder("a").bands, "{kind}");
        assert_eq!(bands.len(), 2, "{kind}");
        let shares: Vec<_> = [&mut old, &mut new]
            .into_iter()
            .map(|world| world.refresh("b", 50.0, None).capacity)
            .collect();
        assert_eq!(shares[0], shares[1], "{kind}");
    }
}

#[test]
fn many_holders_take_several_records() {
    let mut old = World::new(document("FAIR_SHARE", 5000.0));
    for client in 0..2500 {
        old.refresh(&client.to_string(), 1.0, None);
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
    old.refresh("a", 80.0, None);
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
    assert_eq!(new.refresh("b", 100.0, None).capacity.get(), 100.0);
}

#[test]
fn invalid_holder_id_is_an_error() {
    let mut old = World::new(document("FAIR_SHARE", 100.0));
    old.refresh("a", 80.0, None);
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
    world.refresh("a", 10.0, None);
    world.refresh("b", 10.0, None);
    world.ledger.reconfigure(parse(
        "resources: [{identifier_glob: db, capacity: 100, \
         algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 9}}]",
    ));
    world.wait(4.0);
    world.refresh("a", 10.0, Some(10.0));
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
