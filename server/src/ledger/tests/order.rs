//! Late, doubled and early transmissions.

use doorman_openapi::Reason;

use super::*;

#[test]
fn a_late_or_doubled_request_changes_nothing_and_is_told_what_is_held() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.send(&request("a", Some(2), 40.0, None));
    world.wait(10.0);
    for seq in [1, 2] {
        let late = world.send(&request("a", Some(seq), 90.0, None));
        assert_eq!((late.capacity.get(), late.reason), (40.0, Reason::Granted));
        // Half of the booked 21 s have not yet passed; the answer must not lengthen the lease.
        close(late.lease_length.get(), 11.0 / 1.05);
        assert_eq!(world.view().unwrap().sum_wants, 40.0);
    }
    assert_eq!(
        world
            .send(&request("a", Some(3), 90.0, Some(40.0)))
            .capacity
            .get(),
        90.0
    );
}

#[test]
fn a_late_release_changes_nothing() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.send(&request("a", Some(5), 40.0, None));
    world.release("a", Some(4));
    assert_eq!(world.view().unwrap().sum_has, 40.0);
    world.release("a", Some(6));
    assert_eq!(world.view().unwrap().sum_has, 0.0);
}

#[test]
fn a_request_that_arrives_after_its_release_does_not_bring_the_lease_back() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.send(&request("a", Some(1), 40.0, None));
    world.release("a", Some(3));
    let late = world.send(&request("a", Some(2), 40.0, Some(40.0)));
    assert_eq!((late.capacity.get(), late.lease_length.get()), (0.0, 0.0));
    assert_eq!(world.view().unwrap().sum_has, 0.0);
    // It may come back with a newer number; and the order is forgotten one lease length later.
    assert_eq!(
        world
            .send(&request("a", Some(4), 40.0, None))
            .capacity
            .get(),
        40.0
    );
    world.release("a", Some(5));
    world.wait(22.0);
    assert_eq!(world.view(), None);
    assert_eq!(world.core.stats().leases, 0);
}

#[test]
fn an_early_request_runs_no_algorithm_but_is_heard() {
    let mut world = World::new(parse(
        "resources: [{identifier_glob: db, capacity: 100, minimum_refresh_interval: 2, \
         algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 5}}]",
    ));
    world.ask("a", 40.0, None);
    world.wait(1.0);
    let early = world.ask("a", 60.0, Some(40.0));
    assert_eq!(early.capacity.get(), 40.0);
    close(early.lease_length.get(), 20.0 / 1.05);
    assert_eq!(world.view().unwrap().sum_wants, 60.0);
    // Asking early again and again does not push the next decision away.
    world.wait(1.0);
    assert_eq!(world.ask("a", 60.0, Some(40.0)).capacity.get(), 60.0);
}

#[test]
fn an_early_request_is_booked_as_it_says() {
    let mut world = World::new(parse(
        "resources: [{identifier_glob: db, capacity: 100, minimum_refresh_interval: 2, \
         algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 5}}]",
    ));
    world.ask("a", 40.0, None);
    let mut asks = request("a", None, 40.0, Some(40.0));
    asks.resources[0].outstanding = Capacity::new(90.0).unwrap();
    let early = world.send(&asks);
    assert_eq!(early.capacity.get(), 40.0);
    assert_eq!(world.view().unwrap().sum_has, 90.0);
}

#[test]
fn who_is_told_that_more_is_to_come_is_not_early_when_it_comes_for_it() {
    let mut world = World::new(parse(
        "resources: [{identifier_glob: db, capacity: 100, minimum_refresh_interval: 4, \
         algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 5}}]",
    ));
    world.ask("a", 100.0, None);
    assert_eq!(world.ask("b", 50.0, None).reason, Reason::Pending);
    world.release("a", None);
    world.wait(1.0);
    assert_eq!(world.ask("b", 50.0, None).capacity.get(), 50.0);
}

#[test]
fn what_is_left_of_a_lease_is_stated_with_a_refresh_before_its_end() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.send(&request("a", Some(2), 40.0, None));
    world.wait(19.0);
    let late = world.send(&request("a", Some(1), 40.0, None));
    assert!(
        late.refresh_interval.get() < late.lease_length.get(),
        "{late:?}"
    );
}

#[test]
fn a_released_entry_keeps_its_order_for_a_lease_length() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.send(&request("a", Some(1), 40.0, None));
    world.release("a", Some(3));
    world.wait(19.9);
    assert_eq!(
        world
            .send(&request("a", Some(2), 40.0, None))
            .capacity
            .get(),
        0.0
    );
}
