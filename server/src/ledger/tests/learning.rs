//! Learning mode.

use doorman_openapi::Reason;

use super::*;

/// The last lease of the predecessor ends 21 s after the start.
const SUCCESSOR: Settings = Settings {
    predecessor: Predecessor::Until(Moment::from_nanos(3_621_000_000_000)),
    ..SETTINGS
};

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
