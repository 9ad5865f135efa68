//! Learning mode.

use std::collections::BTreeMap;

use doorman_openapi::{Epoch, Reason, Seconds};

use super::*;

/// The last lease of the predecessor ends 21 s after the start.
const SUCCESSOR: Settings = successor(21);

const fn successor(seconds: u64) -> Settings {
    Settings {
        predecessor: Predecessor::Until(Moment::from_nanos((3600 + seconds) * 1_000_000_000)),
        ..SETTINGS
    }
}

/// A request from a client that has heard from this server.
fn echoing(client: &str, seq: Option<u64>, wants: f64, has: Option<f64>) -> CapacityRequest {
    CapacityRequest {
        heard_epoch: Some(SUCCESSOR.epoch),
        polls: false,
        replaces: Vec::new(),
        ..request(client, seq, wants, has)
    }
}

/// Sends a request that confirms its claim.
fn confirm(
    world: &mut World,
    client: &str,
    seq: u64,
    wants: f64,
    has: Option<f64>,
) -> (f64, Reason) {
    let grant = world.send(&echoing(client, Some(seq), wants, has));
    (grant.capacity.get(), grant.reason)
}

#[test]
fn learning_keeps_claims_and_new_holders_wait() {
    let mut world = World::with(document("FAIR_SHARE", 100.0), SUCCESSOR);
    let kept = world.refresh("a", 100.0, Some(60.0));
    assert_eq!((kept.capacity.get(), kept.reason), (60.0, Reason::Pending));
    assert_eq!(world.refresh("b", 40.0, Some(40.0)).reason, Reason::Granted);
    let new_holder = world.refresh("c", 10.0, None);
    assert_eq!(
        (new_holder.capacity.get(), new_holder.reason),
        (0.0, Reason::Pending)
    );
    assert!(world.view().unwrap().in_learning_mode);
}

#[test]
fn zero_is_no_lease_in_learning_mode_only() {
    let mut world = World::with(document("FAIR_SHARE", 100.0), SUCCESSOR);
    assert_eq!(world.refresh("a", 100.0, Some(100.0)).capacity.get(), 100.0);
    let newcomer = echoing("b", Some(1), 10.0, None);
    let without_demand = echoing("c", Some(1), 0.0, None);
    let grant = world.send(&without_demand);
    assert_eq!(
        (grant.lease_length, grant.reason),
        (Seconds::ZERO, Reason::Granted)
    );
    for time in ["first", "repeated"] {
        let grant = world.send(&newcomer);
        assert_eq!(
            (grant.capacity, grant.lease_length, grant.reason),
            (Capacity::ZERO, Seconds::ZERO, Reason::Pending),
            "{time}"
        );
    }
    world.wait(19.0);
    assert_eq!(world.refresh("a", 100.0, Some(100.0)).capacity.get(), 100.0);
    world.wait(2.1);
    let grant = world.send(&echoing("b", Some(2), 10.0, None));
    assert_eq!(
        (grant.capacity, grant.reason),
        (Capacity::ZERO, Reason::Pending)
    );
    assert_eq!(grant.lease_length.get(), 20.0);
    assert_eq!(grant.refresh_interval.get(), 1.0);
}

#[test]
fn learning_ends_with_the_last_old_lease() {
    let mut world = World::with(document("FAIR_SHARE", 100.0), SUCCESSOR);
    world.wait(20.9);
    assert_eq!(world.refresh("a", 10.0, None).reason, Reason::Pending);
    world.wait(0.1);
    assert_eq!(world.refresh("a", 10.0, None).reason, Reason::Granted);
}

#[test]
fn new_document_does_not_end_learning() {
    let mut world = World::with(document("FAIR_SHARE", 100.0), SUCCESSOR);
    assert_eq!(world.refresh("a", 10.0, None).reason, Reason::Pending);
    world.wait(20.9);
    world
        .ledger
        .reconfigure(document("PROPORTIONAL_SHARE", 50.0));
    assert_eq!(world.refresh("a", 10.0, None).reason, Reason::Pending);
    world.wait(0.1);
    assert_eq!(world.refresh("a", 10.0, None).reason, Reason::Granted);
}

#[test]
fn learning_resources_are_counted_while_they_live() {
    let with_learning = |seconds: u32| {
        parse(&format!(
            "resources: [{{identifier_glob: db, capacity: 1, algorithm: {{kind: FAIR_SHARE, \
             lease_length: 20, refresh_interval: 5, learning_mode_duration: {seconds}}}}}, \
             {{identifier_glob: '*', capacity: 1, algorithm: {{kind: FAIR_SHARE, \
             lease_length: 20, refresh_interval: 5}}}}]"
        ))
    };
    let mut world = World::with(with_learning(10), SUCCESSOR);
    let learning = |world: &World| world.ledger.resources_learning(world.now);
    assert_eq!(learning(&world), 0);
    world.refresh("a", 1.0, None);
    let mut other = request("a", None, 1.0, None);
    other.resources[0].resource_id = ResourceId::new("other").unwrap();
    world.send(&other);
    assert_eq!(learning(&world), 2);
    world.wait(9.9);
    world.refresh("a", 1.0, Some(1.0));
    world.send(&other);
    assert_eq!(learning(&world), 2);
    world.wait(0.1);
    assert_eq!(learning(&world), 1);
    world.ledger.reconfigure(with_learning(15));
    world.refresh("a", 1.0, Some(1.0));
    assert_eq!(learning(&world), 2);
    world.wait(11.0);
    assert_eq!(learning(&world), 0);
    world.wait(100.0);
    assert_eq!((learning(&world), world.ledger.stats().resources), (0, 0));

    let mut world = World::with(with_learning(10), SUCCESSOR);
    world.refresh("a", 0.0, None);
    assert_eq!(learning(&world), 1);
    world.release("a", None);
    assert_eq!((learning(&world), world.ledger.stats().resources), (0, 0));

    let mut world = World::with(with_learning(10), SUCCESSOR);
    world.refresh("a", 1.0, None);
    world.ledger.reconfigure(document("STATIC", 1.0));
    world.refresh("a", 1.0, None);
    assert_eq!(learning(&world), 0);
}

#[test]
fn configured_duration_replaces_the_bound() {
    let text = "resources: [{identifier_glob: db, capacity: 100, \
        algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 5, learning_mode_duration: 3}}]";
    let mut world = World::with(parse(text), SUCCESSOR);
    assert_eq!(world.refresh("a", 10.0, None).reason, Reason::Pending);
    assert_eq!(world.ledger.stats().short_learning, 1);
    world.wait(3.0);
    assert_eq!(world.refresh("a", 10.0, None).reason, Reason::Granted);
}

#[test]
fn reload_to_short_learning_is_counted_once() {
    let text = |duration: u32| {
        format!(
            "resources: [{{identifier_glob: db, capacity: 100, \
             algorithm: {{kind: FAIR_SHARE, lease_length: 20, refresh_interval: 5, learning_mode_duration: {duration}}}}}]"
        )
    };
    let mut world = World::with(parse(&text(40)), SUCCESSOR);
    assert_eq!(world.refresh("a", 10.0, None).reason, Reason::Pending);
    assert_eq!(world.ledger.stats().short_learning, 0);
    for duration in [3, 4] {
        world.ledger.reconfigure(parse(&text(duration)));
        world.refresh("a", 10.0, None);
        assert_eq!(world.ledger.stats().short_learning, 1);
    }
    // By then all leases of the predecessor have ended.
    world.ledger.reconfigure(parse(&text(40)));
    world.refresh("a", 10.0, None);
    world.wait(30.0);
    world.ledger.reconfigure(parse(&text(3)));
    world.refresh("a", 10.0, None);
    assert_eq!(world.ledger.stats().short_learning, 1);
}

#[test]
fn longer_learning_is_not_counted_as_short() {
    let text = "resources: [{identifier_glob: db, capacity: 100, \
        algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 5, learning_mode_duration: 40}}]";
    let mut world = World::with(parse(text), SUCCESSOR);
    world.wait(39.9);
    assert_eq!(world.refresh("a", 10.0, None).reason, Reason::Pending);
    assert_eq!(world.ledger.stats().short_learning, 0);
    world.wait(0.1);
    assert_eq!(world.refresh("a", 10.0, None).reason, Reason::Granted);
}

#[test]
fn claims_above_the_capacity_are_scaled_down() {
    let mut world = World::with(document("FAIR_SHARE", 100.0), SUCCESSOR);
    let mut has = [150.0, 90.0, 60.0];
    for _ in 0..8 {
        for (client, has) in has.iter_mut().enumerate() {
            *has = world
                .refresh(&client.to_string(), 200.0, Some(*has))
                .capacity
                .get();
            assert!(*has > 5.0, "{has}");
        }
    }
    assert!((60.0..=100.0).contains(&has.iter().sum::<f64>()), "{has:?}");
}

#[test]
fn undivided_resources_do_not_learn() {
    for kind in ["STATIC", "NO_ALGORITHM"] {
        let mut world = World::with(document(kind, 100.0), SUCCESSOR);
        assert_eq!(world.refresh("a", 10.0, None).reason, Reason::Granted);
    }
}

#[test]
fn claim_of_a_late_request_does_not_last() {
    let text = "resources: [{identifier_glob: db, capacity: 100, minimum_refresh_interval: 5, \
        algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 5}}]";
    let mut world = World::with(parse(text), SUCCESSOR);
    // Sent before its holder's lease expired, received after.
    assert_eq!(
        world
            .send(&request("a", Some(2), 100.0, Some(100.0)))
            .capacity
            .get(),
        100.0
    );
    let now = world.send(&request("a", Some(3), 100.0, None));
    assert_eq!((now.capacity.get(), now.reason), (0.0, Reason::Pending));
}

#[test]
fn confirmed_capacity_is_shared_with_new_holders() {
    let mut world = World::with(document("FAIR_SHARE", 100.0), SUCCESSOR);
    assert_eq!(
        confirm(&mut world, "a", 9, 100.0, Some(100.0)),
        (100.0, Reason::Granted)
    );
    assert_eq!(
        confirm(&mut world, "b", 2, 100.0, None),
        (0.0, Reason::Pending)
    );
    assert_eq!(
        confirm(&mut world, "a", 10, 100.0, Some(100.0)),
        (50.0, Reason::Share)
    );
    assert_eq!(
        confirm(&mut world, "b", 3, 100.0, None),
        (0.0, Reason::Pending)
    );
    assert_eq!(
        confirm(&mut world, "a", 11, 100.0, Some(50.0)),
        (50.0, Reason::Share)
    );
    assert_eq!(
        confirm(&mut world, "b", 4, 100.0, None),
        (50.0, Reason::Share)
    );
    assert!(world.view().unwrap().in_learning_mode);
}

#[test]
fn holders_are_hinted_once_all_capacity_is_confirmed() {
    for (unheard, hints) in [(0.0, 1), (10.0, 0)] {
        let mut world = World::with(document("FAIR_SHARE", 100.0), SUCCESSOR);
        world.poll("a", 0);
        confirm(&mut world, "a", 9, 100.0, Some(100.0 - unheard));
        world.wait(1.0);
        confirm(&mut world, "b", 2, 100.0, None);
        // `a` has to give up half.
        assert_eq!(world.ledger.take_hints(world.now).len(), hints, "{unheard}");
        assert!(world.view().unwrap().in_learning_mode);
    }
}

#[test]
fn capacity_of_unheard_holders_is_not_granted() {
    let mut world = World::with(document("FAIR_SHARE", 100.0), SUCCESSOR);
    confirm(&mut world, "a", 9, 10.0, Some(40.0));
    confirm(&mut world, "a", 10, 10.0, Some(10.0));
    assert_eq!(
        confirm(&mut world, "b", 2, 80.0, None),
        (30.0, Reason::Pending)
    );
    // It keeps its lease, of which nobody has got anything.
    let unheard = world.refresh("c", 60.0, Some(60.0));
    assert_eq!(
        (unheard.capacity.get(), unheard.reason),
        (60.0, Reason::Granted)
    );
    assert_eq!(
        confirm(&mut world, "b", 3, 80.0, Some(30.0)),
        (30.0, Reason::Pending)
    );
}

#[test]
fn claim_is_to_be_confirmed_within_a_second() {
    let mut world = World::with(document("FAIR_SHARE", 100.0), SUCCESSOR);
    let interval = |grant: Grant| grant.refresh_interval.get();
    let claim = |seq| request("a", Some(seq), 40.0, Some(60.0));
    assert_eq!(interval(world.send(&claim(1))), 1.0);
    assert_eq!(interval(world.send(&claim(2))), 5.0, "it knows no epochs");
    let confirmed = echoing("a", Some(3), 40.0, Some(60.0));
    assert_eq!(interval(world.send(&confirmed)), 5.0);
}

#[test]
fn claim_without_the_echo_is_not_confirmed() {
    let mut world = World::with(document("FAIR_SHARE", 100.0), SUCCESSOR);
    let other = Epoch::new(SUCCESSOR.epoch.get() + 1).unwrap();
    for (new_holder, heard_epoch) in [("b", None), ("c", Some(other))] {
        world.send(&CapacityRequest {
            heard_epoch,
            ..request("a", None, 0.0, Some(100.0))
        });
        world.refresh("a", 0.0, None);
        let grant = confirm(&mut world, new_holder, 2, 100.0, None);
        assert_eq!(grant, (0.0, Reason::Pending));
    }
}

#[test]
fn late_copy_of_a_claim_does_not_grow_the_pool() {
    // The release and the end of the leases come before the end of learning mode.
    let mut world = World::with(document("FAIR_SHARE", 100.0), successor(90));
    confirm(&mut world, "a", 9, 50.0, Some(50.0));
    world.release("a", Some(10));
    assert_eq!(
        confirm(&mut world, "b", 2, 50.0, None),
        (50.0, Reason::Granted)
    );
    let copy_of_b = echoing("b", Some(3), 50.0, Some(50.0));
    world.send(&copy_of_b);
    for pause in [0.0, 25.0, 60.0] {
        world.wait(pause);
        assert_eq!(confirm(&mut world, "a", 9, 50.0, Some(50.0)).0, 0.0);
        let repeated = world.send(&copy_of_b).capacity.get();
        assert_eq!(repeated, if pause == 0.0 { 50.0 } else { 0.0 });
    }
    // All of the pool is free again, and no more.
    assert_eq!(
        confirm(&mut world, "c", 2, 80.0, None),
        (50.0, Reason::Pending)
    );
    world.wait(5.0);
    assert_eq!(world.ledger.stats().leases, 1);
}

#[test]
fn expired_holder_has_no_share_of_the_pool() {
    let mut world = World::with(document("FAIR_SHARE", 100.0), successor(90));
    confirm(&mut world, "a", 9, 100.0, Some(100.0));
    world.release("a", Some(10));
    assert_eq!(
        confirm(&mut world, "b", 2, 100.0, None),
        (100.0, Reason::Granted)
    );
    world.wait(21.0);
    assert_eq!(world.view().unwrap().sum_wants, 0.0);
    assert_eq!(
        confirm(&mut world, "c", 2, 100.0, None),
        (100.0, Reason::Granted)
    );
}

#[test]
fn unordered_late_copies_of_a_confirmed_holder_are_ignored() {
    let mut world = World::with(document("FAIR_SHARE", 100.0), SUCCESSOR);
    world.send(&echoing("a", None, 40.0, Some(40.0)));
    let restated = world.refresh("a", 90.0, Some(90.0));
    assert_eq!(restated.capacity.get(), 40.0);
    world.release("a", None);
    assert_eq!(world.view().unwrap().sum_has, 40.0);
    world.send(&echoing("a", None, 40.0, None));
    let release = ReleaseRequest {
        client_id: ClientId::new("a").unwrap(),
        run: None,
        seq: None,
        heard_epoch: Some(SUCCESSOR.epoch),
        resource_ids: None,
        tokens: BTreeMap::new(),
    };
    world.ledger.release(&release.into(), world.now);
    assert_eq!(world.view().unwrap().sum_has, 0.0);
    world.refresh("a", 90.0, Some(90.0));
    assert_eq!(world.view().unwrap().sum_has, 0.0);
}

#[test]
fn claims_of_confirmed_holders_are_limited_to_the_pool() {
    let mut world = World::with(document("FAIR_SHARE", 100.0), SUCCESSOR);
    confirm(&mut world, "a", 9, 20.0, Some(20.0));
    confirm(&mut world, "b", 9, 30.0, Some(30.0));
    assert_eq!(confirm(&mut world, "a", 10, 90.0, Some(90.0)).0, 20.0);
    assert_eq!(world.ledger.stats().excess_claims, 1);
}

#[test]
fn operations_beside_a_lease_are_not_shared() {
    let mut world = World::with(document("FAIR_SHARE", 100.0), SUCCESSOR);
    let mut ask = echoing("a", Some(9), 10.0, Some(10.0));
    ask.resources[0].outstanding = Capacity::new(60.0).unwrap();
    world.send(&ask);
    confirm(&mut world, "a", 10, 0.0, None);
    assert_eq!(confirm(&mut world, "b", 2, 80.0, None).0, 10.0);
}

#[test]
fn unconfirmed_holder_keeps_its_lease_without_operations_beside() {
    let mut world = World::with(document("FAIR_SHARE", 100.0), SUCCESSOR);
    let mut ask = request("a", Some(9), 60.0, Some(10.0));
    ask.resources[0].outstanding = Capacity::new(60.0).unwrap();
    // It would claim 60 as its lease next, and that would be in the pool.
    assert_eq!(world.send(&ask).capacity.get(), 10.0);
    assert_eq!(
        world.ledger.resource(&db(), world.now).unwrap().sum_has,
        10.0
    );
}

#[test]
fn cut_applies_to_confirmed_holders() {
    let mut world = World::with(document("FAIR_SHARE", 100.0), SUCCESSOR);
    confirm(&mut world, "a", 9, 50.0, Some(50.0));
    confirm(&mut world, "b", 9, 50.0, Some(50.0));
    world.ledger.reconfigure(document("FAIR_SHARE", 40.0));
    assert_eq!(confirm(&mut world, "a", 10, 50.0, Some(50.0)).0, 20.0);
    assert_eq!(confirm(&mut world, "b", 10, 50.0, Some(50.0)).0, 20.0);
    assert_eq!(confirm(&mut world, "a", 11, 50.0, Some(20.0)).0, 20.0);
    assert_eq!(confirm(&mut world, "b", 11, 50.0, Some(20.0)).0, 20.0);
    assert_eq!(world.view().unwrap().sum_has, 40.0);
    // A raise does not tell what others hold.
    world.ledger.reconfigure(document("FAIR_SHARE", 200.0));
    assert_eq!(
        confirm(&mut world, "c", 2, 200.0, None),
        (60.0, Reason::Pending)
    );
}

#[test]
fn moved_end_of_learning_stops_confirmation() {
    let text = |duration: u32| {
        parse(&format!(
            "resources: [{{identifier_glob: db, capacity: 100, \
             algorithm: {{kind: FAIR_SHARE, lease_length: 20, refresh_interval: 5, learning_mode_duration: {duration}}}}}]"
        ))
    };
    let mut world = World::with(text(30), SUCCESSOR);
    confirm(&mut world, "a", 9, 60.0, Some(60.0));
    world.ledger.reconfigure(text(40));
    confirm(&mut world, "a", 10, 0.0, Some(60.0));
    confirm(&mut world, "a", 11, 0.0, None);
    assert_eq!(
        confirm(&mut world, "b", 2, 60.0, None),
        (0.0, Reason::Pending)
    );
    world.wait(40.0);
    assert_eq!(
        confirm(&mut world, "b", 3, 60.0, None),
        (60.0, Reason::Granted)
    );
}

/// The next server after a clean restart while learning, and its epoch.
fn restarted(world: &World) -> (World, Epoch) {
    let records: Vec<_> = world.ledger.snapshot(world.now).collect();
    let learning = world.ledger.learning_snapshot(world.now).unwrap();
    let epoch = Epoch::new(SUCCESSOR.epoch.get() + 1).unwrap();
    let settings = Settings { epoch, ..SETTINGS };
    let mut next = World::with(document("FAIR_SHARE", 100.0), settings);
    next.ledger.restore_learning(learning, world.now);
    for record in &records {
        next.ledger.restore(record, world.now).unwrap();
    }
    (next, epoch)
}

#[test]
fn clean_restart_while_learning_confirms_again() {
    let mut world = World::with(document("FAIR_SHARE", 100.0), SUCCESSOR);
    confirm(&mut world, "a", 9, 100.0, Some(100.0));
    let (mut next, epoch) = restarted(&world);
    // This echo is of the last server.
    assert_eq!(confirm(&mut next, "a", 10, 0.0, Some(100.0)).0, 100.0);
    let mut echo = echoing("b", Some(2), 100.0, None);
    echo.heard_epoch = Some(epoch);
    assert_eq!(next.send(&echo).capacity.get(), 0.0);
    let mut echo = echoing("a", Some(11), 0.0, Some(100.0));
    echo.heard_epoch = Some(epoch);
    assert_eq!(next.send(&echo).capacity.get(), 0.0);
    next.send(&CapacityRequest {
        seq: Some(Seq::new(12).unwrap()),
        ..echoing("a", None, 0.0, None)
    });
    let mut echo = echoing("b", Some(3), 100.0, None);
    echo.heard_epoch = Some(epoch);
    assert_eq!(next.send(&echo).capacity.get(), 100.0);
}

#[test]
fn outstanding_leases_that_were_handed_over_stay_booked_after_learning() {
    let mut world = World::with(document("FAIR_SHARE", 100.0), successor(5));
    assert_eq!(confirm(&mut world, "a", 9, 80.0, Some(80.0)).0, 80.0);
    let (mut next, epoch) = restarted(&world);
    for (seq, heard) in [(10, SUCCESSOR.epoch), (11, epoch)] {
        let mut ask = echoing("a", Some(seq), 20.0, Some(20.0));
        ask.heard_epoch = Some(heard);
        ask.resources[0].outstanding = Capacity::new(80.0).unwrap();
        next.send(&ask);
    }
    next.wait(6.0);
    assert_eq!(next.refresh("b", 100.0, None).capacity.get(), 20.0);
}

#[test]
fn claim_above_a_lowered_capacity_stays_booked_when_it_is_raised() {
    let mut world = World::with(document("FAIR_SHARE", 100.0), successor(5));
    let grant = world.send(&request("a", Some(9), 80.0, Some(80.0)));
    assert_eq!(grant.capacity.get(), 80.0);
    world.ledger.reconfigure(document("FAIR_SHARE", 40.0));
    confirm(&mut world, "a", 10, 80.0, Some(80.0));
    world.ledger.reconfigure(document("FAIR_SHARE", 100.0));
    world.wait(6.0);
    assert_eq!(world.refresh("b", 100.0, None).capacity.get(), 20.0);
}

#[test]
fn surplus_is_kept_until_another_holder_lacks_capacity() {
    let mut world = World::with(document("FAIR_SHARE", 100.0), SUCCESSOR);
    confirm(&mut world, "b", 2, 0.0, None);
    // It keeps what it would get outside of learning mode.
    assert_eq!(confirm(&mut world, "a", 9, 30.0, Some(80.0)).0, 56.25);
    assert_eq!(confirm(&mut world, "a", 10, 30.0, Some(56.25)).0, 56.25);
    let (granted, reason) = confirm(&mut world, "b", 3, 60.0, None);
    assert_eq!((granted, reason), (23.75, Reason::Pending));
    assert_eq!(confirm(&mut world, "a", 11, 30.0, Some(56.25)).0, 30.0);
    confirm(&mut world, "a", 12, 30.0, Some(30.0));
    assert_eq!(confirm(&mut world, "b", 4, 60.0, Some(23.75)).0, 50.0);
}

#[test]
fn free_capacity_is_unknown_until_old_leases_are_known() {
    let mut world = World::with(document("FAIR_SHARE", 100.0), SUCCESSOR);
    confirm(&mut world, "a", 1, 60.0, Some(60.0));
    let view = world.view().unwrap();
    assert_eq!((view.in_learning_mode, view.free), (true, None));
    // All of the capacity is confirmed.
    confirm(&mut world, "b", 1, 40.0, Some(40.0));
    let view = world.view().unwrap();
    assert_eq!((view.in_learning_mode, view.free), (true, Some(0.0)));
    world.wait(22.0);
    confirm(&mut world, "a", 2, 60.0, Some(60.0));
    assert_eq!(world.view().unwrap().free, Some(40.0));
}
