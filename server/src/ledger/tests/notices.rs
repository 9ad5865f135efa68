//! What operators are told, once, and not more than they can read.

use super::*;

fn ask_for(world: &mut World, resource: &str) {
    let mut request = request("a", None, 1.0, None);
    request.resources[0].resource_id = ResourceId::new(resource).unwrap();
    world.send(&request);
}

#[test]
fn a_newcomer_without_room_is_not_worth_a_notice() {
    let settings = Settings {
        max_leases: 1,
        ..SETTINGS
    };
    let mut world = World::with(document("FAIR_SHARE", 100.0), settings);
    for resource in ["first", "second", "third", "first"] {
        ask_for(&mut world, resource);
    }
    let first = ResourceId::new("first").unwrap();
    let expected = LedgerEvents {
        events: vec![LedgerEvent::Unmatched(first)],
        dropped: 0,
    };
    assert_eq!(world.core.take_events(), expected);
}

#[test]
fn notices_that_nobody_takes_are_counted() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    for n in 0..1000 {
        ask_for(&mut world, &format!("r/{n}"));
    }
    let notices = world.core.take_events();
    assert_eq!((notices.events.len(), notices.dropped), (256, 744));
    assert_eq!(world.core.take_events(), LedgerEvents::default());
}

#[test]
fn a_rate_that_is_split_too_small_is_warned_of() {
    let mut world = World::new(document("FAIR_SHARE", 1.0));
    for client in 0..6 {
        world.ask(&client.to_string(), 1.0, None);
        let warned = world.view().unwrap().warning.is_some();
        assert_eq!(
            warned,
            client == 5,
            "five may have one in five seconds each"
        );
    }
    world.ask("7", 1.0, None);
    assert_eq!(
        world.core.take_events().events,
        vec![LedgerEvent::SharesBelowOne(db())]
    );
    world.core.reconfigure(document("SHARED_BUCKET", 1.0));
    world.ask("8", 1.0, None);
    assert_eq!(world.view().unwrap().warning, None);
}
