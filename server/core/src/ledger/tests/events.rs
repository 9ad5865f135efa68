//! Events for the log.

use super::*;

fn refresh_resource(world: &mut World, resource: &str) {
    let mut request = request("a", None, 1.0, None);
    request.resources[0].resource_id = ResourceId::new(resource).unwrap();
    world.send(&request);
}

#[test]
fn rejected_holder_causes_no_event() {
    let settings = Settings {
        max_leases: 1,
        ..SETTINGS
    };
    let mut world = World::with(document("FAIR_SHARE", 100.0), settings);
    for resource in ["first", "second", "third", "first"] {
        refresh_resource(&mut world, resource);
    }
    let first = ResourceId::new("first").unwrap();
    let expected = LedgerEvents {
        events: vec![LedgerEvent::Unmatched(first)],
        ..LedgerEvents::default()
    };
    assert_eq!(world.ledger.take_events(), expected);
}

#[test]
fn excess_events_are_counted() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    for n in 0..1000 {
        refresh_resource(&mut world, &format!("r/{n}"));
    }
    let events = world.ledger.take_events();
    assert_eq!((events.events.len(), events.dropped), (256, 744));
    assert_eq!(world.ledger.take_events(), LedgerEvents::default());
}

#[test]
fn end_of_learning_mode_is_reported_once() {
    let learns_for = |seconds: f64| Settings {
        predecessor: Predecessor::Until(Moment::ORIGIN.after_seconds(3600.0 + seconds)),
        ..SETTINGS
    };
    let mut world = World::with(document("FAIR_SHARE", 100.0), learns_for(21.0));
    let mut ended = |seconds: f64| {
        world.wait(seconds);
        world.ledger.take_events().learning_ended
    };
    assert_eq!(
        [20.0, 0.9, 0.1, 1.0].map(&mut ended),
        [false, false, true, false]
    );

    // Grants of STATIC do not depend on each other.
    let mut world = World::with(document("STATIC", 100.0), learns_for(21.0));
    assert!(world.ledger.learning_until() <= world.now);
    world.ledger.reconfigure(document("FAIR_SHARE", 100.0));
    assert!(world.ledger.learning_until() > world.now);
}

#[test]
fn shares_below_one_request_raise_a_warning() {
    let mut world = World::new(document("FAIR_SHARE", 1.0));
    for client in 0..6 {
        world.refresh(&client.to_string(), 1.0, None);
        let warned = world.view().unwrap().warning.is_some();
        assert_eq!(
            warned,
            client == 5,
            "five clients get one request per interval each"
        );
    }
    world.refresh("7", 1.0, None);
    assert_eq!(
        world.ledger.take_events().events,
        vec![LedgerEvent::SharesBelowOne(db())]
    );
    world.ledger.reconfigure(document("SHARED_BUCKET", 1.0));
    world.refresh("8", 1.0, None);
    assert_eq!(world.view().unwrap().warning, None);
}
