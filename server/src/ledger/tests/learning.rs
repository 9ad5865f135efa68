//! A server that may have a predecessor.

use doorman_openapi::Reason;

use super::*;

/// The last lease of the predecessor ends 21 s after the start.
const SUCCESSOR: Settings = Settings {
    predecessor: Predecessor::Until(Moment::from_nanos(3_621_000_000_000)),
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
fn it_lasts_until_the_last_lease_of_the_predecessor_has_ended_and_not_longer() {
    let mut world = World::with(document("FAIR_SHARE", 100.0), SUCCESSOR);
    world.wait(20.9);
    assert_eq!(world.ask("a", 10.0, None).reason, Reason::Pending);
    world.wait(0.1);
    assert_eq!(world.ask("a", 10.0, None).reason, Reason::Granted);
}

#[test]
fn a_document_that_changes_meanwhile_changes_nothing_of_it() {
    let mut world = World::with(document("FAIR_SHARE", 100.0), SUCCESSOR);
    assert_eq!(world.ask("a", 10.0, None).reason, Reason::Pending);
    world.wait(20.9);
    world.core.reconfigure(document("PROPORTIONAL_SHARE", 50.0));
    assert_eq!(world.ask("a", 10.0, None).reason, Reason::Pending);
    world.wait(0.1);
    assert_eq!(world.ask("a", 10.0, None).reason, Reason::Granted);
}

#[test]
fn a_configured_duration_counts_instead() {
    let text = "resources: [{identifier_glob: db, capacity: 100, \
        algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 5, learning_mode_duration: 3}}]";
    let mut world = World::with(parse(text), SUCCESSOR);
    assert_eq!(world.ask("a", 10.0, None).reason, Reason::Pending);
    assert_eq!(world.core.stats().short_learning, 1);
    world.wait(3.0);
    assert_eq!(world.ask("a", 10.0, None).reason, Reason::Granted);
}

#[test]
fn a_duration_that_a_reload_makes_too_short_is_counted_once() {
    let text = |duration: u32| {
        format!(
            "resources: [{{identifier_glob: db, capacity: 100, \
             algorithm: {{kind: FAIR_SHARE, lease_length: 20, refresh_interval: 5, learning_mode_duration: {duration}}}}}]"
        )
    };
    let mut world = World::with(parse(&text(40)), SUCCESSOR);
    assert_eq!(world.ask("a", 10.0, None).reason, Reason::Pending);
    assert_eq!(world.core.stats().short_learning, 0);
    for duration in [3, 4] {
        world.core.reconfigure(parse(&text(duration)));
        world.ask("a", 10.0, None);
        assert_eq!(world.core.stats().short_learning, 1);
    }
    // By now all leases of the predecessor have ended.
    world.core.reconfigure(parse(&text(40)));
    world.ask("a", 10.0, None);
    world.wait(30.0);
    world.core.reconfigure(parse(&text(3)));
    world.ask("a", 10.0, None);
    assert_eq!(world.core.stats().short_learning, 1);
}

#[test]
fn a_longer_duration_counts_too_and_is_no_exception() {
    let text = "resources: [{identifier_glob: db, capacity: 100, \
        algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 5, learning_mode_duration: 40}}]";
    let mut world = World::with(parse(text), SUCCESSOR);
    world.wait(39.9);
    assert_eq!(world.ask("a", 10.0, None).reason, Reason::Pending);
    assert_eq!(world.core.stats().short_learning, 0);
    world.wait(0.1);
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

#[test]
fn what_a_late_request_claimed_is_not_given_back_to_who_says_it_has_nothing() {
    let text = "resources: [{identifier_glob: db, capacity: 100, minimum_refresh_interval: 5, \
        algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 5}}]";
    let mut world = World::with(parse(text), SUCCESSOR);
    // It was sent before its holder's lease ended, and arrives after.
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
