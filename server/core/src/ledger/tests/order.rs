//! Stale, duplicate and early requests.

use doorman_openapi::Reason;

use super::*;

#[test]
fn stale_request_gets_the_current_lease() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.send(&request("a", Some(2), 40.0, None));
    world.wait(10.0);
    for seq in [1, 2] {
        let stale = world.send(&request("a", Some(seq), 90.0, None));
        assert_eq!(
            (stale.capacity.get(), stale.reason),
            (40.0, Reason::Granted)
        );
        // 11 of the booked 21 s are left: the response must not extend the lease.
        close(stale.lease_length.get(), 11.0 / 1.05);
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
fn stale_release_is_ignored() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.send(&request("a", Some(5), 40.0, None));
    world.release("a", Some(4));
    assert_eq!(world.view().unwrap().sum_has, 40.0);
    world.release("a", Some(6));
    assert_eq!(world.view().unwrap().sum_has, 0.0);
}

#[test]
fn request_after_its_release_is_stale() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.send(&request("a", Some(1), 40.0, None));
    world.release("a", Some(3));
    let stale = world.send(&request("a", Some(2), 40.0, Some(40.0)));
    assert_eq!((stale.capacity.get(), stale.lease_length.get()), (0.0, 0.0));
    assert_eq!(world.view().unwrap().sum_has, 0.0);
    // A newer number is accepted. The order is dropped one lease length later.
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
    assert_eq!(world.ledger.stats().leases, 0);
}

#[test]
fn early_request_keeps_the_lease_but_updates_demand() {
    let mut world = World::new(parse(
        "resources: [{identifier_glob: db, capacity: 100, minimum_refresh_interval: 2, \
         algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 5}}]",
    ));
    world.refresh("a", 40.0, None);
    world.wait(1.0);
    let early = world.refresh("a", 60.0, Some(40.0));
    assert_eq!(early.capacity.get(), 40.0);
    close(early.lease_length.get(), 20.0 / 1.05);
    assert_eq!(world.view().unwrap().sum_wants, 60.0);
    // Early requests do not postpone the next decision.
    world.wait(1.0);
    assert_eq!(world.refresh("a", 60.0, Some(40.0)).capacity.get(), 60.0);
}

#[test]
fn early_request_books_outstanding() {
    let mut world = World::new(parse(
        "resources: [{identifier_glob: db, capacity: 100, minimum_refresh_interval: 2, \
         algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 5}}]",
    ));
    world.refresh("a", 40.0, None);
    let mut body = request("a", None, 40.0, Some(40.0));
    body.resources[0].outstanding = Capacity::new(90.0).unwrap();
    let early = world.send(&body);
    assert_eq!(early.capacity.get(), 40.0);
    assert_eq!(world.view().unwrap().sum_has, 90.0);
}

#[test]
fn pending_holder_is_never_early() {
    let mut world = World::new(parse(
        "resources: [{identifier_glob: db, capacity: 100, minimum_refresh_interval: 4, \
         algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 5}}]",
    ));
    world.refresh("a", 100.0, None);
    assert_eq!(world.refresh("b", 50.0, None).reason, Reason::Pending);
    world.release("a", None);
    world.wait(1.0);
    assert_eq!(world.refresh("b", 50.0, None).capacity.get(), 50.0);
}

#[test]
fn restated_lease_is_refreshed_before_its_end() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.send(&request("a", Some(2), 40.0, None));
    world.wait(19.0);
    let stale = world.send(&request("a", Some(1), 40.0, None));
    assert!(
        stale.refresh_interval.get() < stale.lease_length.get(),
        "{stale:?}"
    );
}

#[test]
fn released_entry_keeps_its_order() {
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
