//! A server that may have a predecessor.

use doorman_openapi::Reason;

use super::*;

const SUCCESSOR: Settings = Settings {
    predecessor: Predecessor::Possible,
    ..SETTINGS
};

#[test]
fn holders_keep_what_they_have_and_newcomers_wait() {
    let mut world = World::with(document("FAIR_SHARE", 100.0), SUCCESSOR);
    let kept = world.ask("a", 100.0, Some(60.0));
    assert_eq!((kept.capacity.get(), kept.reason), (60.0, Reason::Pending));
    assert_eq!(world.ask("b", 40.0, Some(40.0)).reason, Reason::Granted);
    let newcomer = world.ask("c", 10.0, None);
    assert_eq!(
        (newcomer.capacity.get(), newcomer.reason),
        (0.0, Reason::Pending)
    );
    assert!(world.view().unwrap().in_learning_mode);
}

#[test]
fn it_lasts_for_the_longest_lease_that_a_predecessor_can_have_granted() {
    // The resource's own lease is 20 s, but the document knows one of 100 s.
    let text = "resources: [\
        {identifier_glob: db, capacity: 100, algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 5}}, \
        {identifier_glob: other, capacity: 1, algorithm: {kind: STATIC, lease_length: 100, refresh_interval: 5}}]";
    let mut world = World::with(parse(text), SUCCESSOR);
    world.wait(104.9);
    assert_eq!(world.ask("a", 10.0, None).reason, Reason::Pending);
    world.wait(0.2);
    assert_eq!(world.ask("a", 10.0, None).reason, Reason::Granted);
}

#[test]
fn a_configured_duration_counts_instead() {
    let text = "resources: [{identifier_glob: db, capacity: 100, \
        algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 5, learning_mode_duration: 3}}]";
    let mut world = World::with(parse(text), SUCCESSOR);
    assert_eq!(world.ask("a", 10.0, None).reason, Reason::Pending);
    world.wait(3.0);
    assert_eq!(world.ask("a", 10.0, None).reason, Reason::Granted);
}

#[test]
fn claims_above_the_capacity_are_scaled_down_but_never_to_nothing() {
    let mut world = World::with(document("FAIR_SHARE", 100.0), SUCCESSOR);
    let mut has = [150.0, 90.0, 60.0];
    for _ in 0..8 {
        for (client, has) in has.iter_mut().enumerate() {
            *has = world
                .ask(&client.to_string(), 200.0, Some(*has))
                .capacity
                .get();
            assert!(*has > 5.0, "{has}");
        }
    }
    assert!((60.0..=100.0).contains(&has.iter().sum::<f64>()), "{has:?}");
}

#[test]
fn what_does_not_depend_on_others_needs_no_learning() {
    for kind in ["STATIC", "NO_ALGORITHM"] {
        let mut world = World::with(document(kind, 100.0), SUCCESSOR);
        assert_eq!(world.ask("a", 10.0, None).reason, Reason::Granted);
    }
}
