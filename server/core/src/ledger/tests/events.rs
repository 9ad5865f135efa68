//! Events for the log.

use std::time::Duration;

use doorman_openapi::Seconds;

use super::*;

fn refresh_resource(world: &mut World, resource: &str) {
    let mut request = request("a", None, 1.0, None);
    request.resources[0].resource_id = ResourceId::new(resource).unwrap();
    world.send(&request);
}

#[test]
fn rejected_holders_are_counted_without_an_event() {
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
        full: 2,
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
    assert_eq!(
        world.ledger.take_events().events,
        vec![LedgerEvent::SharesBelowOne(db())]
    );
    world.ledger.reconfigure(document("SHARED_BUCKET", 1.0));
    world.refresh("8", 1.0, None);
    assert_eq!(world.view().unwrap().warning, None);
}

#[test]
fn small_shares_without_requests_raise_no_warning() {
    for kind in ["FAIR_SHARE", "PRIORITY_SHARE"] {
        let mut world = World::new(document(kind, 1.0));
        for client in 0..20 {
            world.refresh(&format!("idle {client}"), 0.0, None);
        }
        for client in 0..5 {
            world.refresh(&format!("active {client}"), 1.0, None);
        }
        assert_eq!(
            world.view().unwrap().warning,
            None,
            "{kind}: five make requests"
        );
        // All make requests, but few of them.
        for client in 0..5 {
            world.refresh(&format!("active {client}"), 0.0, None);
        }
        for client in 0..20 {
            world.refresh(&format!("idle {client}"), 0.02, None);
        }
        assert_eq!(
            world.view().unwrap().warning,
            None,
            "{kind}: 0.4 of 1 a second"
        );
        assert_eq!(world.ledger.take_events().events, vec![], "{kind}");
        for client in 0..20 {
            world.refresh(&format!("idle {client}"), 0.03, None);
        }
        assert!(world.view().unwrap().warning.is_some(), "{kind}");
        let expected = [LedgerEvent::SharesBelowOne(db())];
        assert_eq!(world.ledger.take_events().events, expected, "{kind}");
    }
}

#[test]
fn fading_demand_of_earlier_requests_raises_no_warning() {
    let mut world = World::new(document("FAIR_SHARE", 10.0));
    world.refresh("busy", 8.0, None);
    for client in 0..59 {
        world.refresh(&format!("quiet {client}"), 0.01, None);
    }
    assert_eq!(world.view().unwrap().warning, None);
    assert_eq!(world.ledger.take_events().events, vec![]);
    // One request within the ten seconds that a client measures.
    for client in 0..59 {
        world.refresh(&format!("quiet {client}"), 0.1, None);
    }
    assert!(world.view().unwrap().warning.is_some());
}

#[test]
fn lasting_unmet_demand_is_reported_with_its_end() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    let mut step = |wants: f64| {
        world.wait(10.0);
        world.refresh("a", wants, None);
        let unmet = world.ledger.unmet_for_a_minute();
        let (resources, since) = (unmet.resources(), unmet.since());
        let oldest = since.map(|since| world.now.seconds_since(since));
        assert_eq!(oldest.is_some(), resources > 0);
        assert!(oldest.is_none_or(|oldest| oldest >= 60.0), "{oldest:?}");
        let events = world.ledger.take_events().events;
        let seconds = world.view().unwrap().unmet_for;
        (events, seconds.map(Seconds::get), resources)
    };
    for second in 0..6 {
        assert_eq!(step(150.0), (vec![], Some(f64::from(second) * 10.0), 0));
    }
    let unmet = vec![LedgerEvent::Unmet(db())];
    assert_eq!(step(150.0), (unmet, Some(60.0), 1));
    // A short pause does not end it.
    assert_eq!(step(100.0), (vec![], None, 1));
    assert_eq!(step(150.0), (vec![], Some(80.0), 1));
    for _ in 0..3 {
        assert_eq!(step(100.0), (vec![], None, 1));
    }
    let met = vec![LedgerEvent::MetAgain(db(), Duration::from_secs(90))];
    assert_eq!(step(100.0), (met, None, 0));
    // Short overloads are not reported.
    assert_eq!(step(150.0), (vec![], Some(0.0), 0));
    for _ in 0..9 {
        assert_eq!(step(100.0).0, vec![]);
    }
}

#[test]
fn unmet_demand_ends_with_its_resource() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    for _ in 0..8 {
        world.refresh("a", 150.0, None);
        world.wait(10.0);
    }
    assert_eq!(
        world.ledger.take_events().events,
        vec![LedgerEvent::Unmet(db())]
    );
    assert_eq!(world.ledger.unmet_for_a_minute().resources(), 1);
    world.release("a", None);
    assert_eq!(world.ledger.unmet_for_a_minute().resources(), 0);
    assert_eq!(
        world.ledger.take_events().events,
        vec![LedgerEvent::MetAgain(db(), Duration::from_secs(80))]
    );
}

/// `docs/OPERATIONS.md` warns of it: `doorman release` does not tell the client.
#[test]
fn released_client_that_lives_claims_too_much_at_its_refresh() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.refresh("a", 60.0, None);
    world.release("a", None);
    assert_eq!(world.refresh("b", 100.0, None).capacity.get(), 100.0);
    let granted = world.refresh("a", 60.0, Some(60.0));
    assert_eq!(granted.capacity.get(), 0.0);
    assert_eq!(world.ledger.stats().excess_claims, 1);
}
