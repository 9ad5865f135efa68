//! What counts as a renewal.

use super::*;
use crate::ledger::RenewalCheck;

fn asks_for(ids: impl IntoIterator<Item = String>, has: Option<f64>) -> CapacityRequest {
    let one = request("a", None, 1.0, has);
    let asked = ids.into_iter().flat_map(|id| {
        one.resources.iter().map(move |it| ResourceRequest {
            resource_id: ResourceId::new(id.clone()).unwrap(),
            ..it.clone()
        })
    });
    CapacityRequest {
        resources: asked.collect(),
        ..one.clone()
    }
}

fn of_db(world: &World, has: Option<f64>) -> RenewalCheck {
    let request = request("a", None, 1.0, has);
    world.core.check_client_renewal(&request, 0, world.now)
}

#[test]
fn a_renewal_is_of_a_lease_that_the_books_know() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    assert_eq!(of_db(&world, Some(1.0)), RenewalCheck::SomeNew);
    world.ask("b", 10.0, None);
    assert_eq!(of_db(&world, Some(1.0)), RenewalCheck::SomeNew);
    world.ask("a", 10.0, None);
    assert_eq!(of_db(&world, None), RenewalCheck::AllHeld);
    world.release("a", None);
    assert_eq!(of_db(&world, Some(10.0)), RenewalCheck::SomeNew);
    world.ask("a", 10.0, None);
    world.wait(21.0);
    assert_eq!(of_db(&world, Some(10.0)), RenewalCheck::SomeNew);
}

#[test]
fn a_lease_on_nothing_is_one_too() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.ask("a", 0.0, None);
    assert_eq!(of_db(&world, None), RenewalCheck::AllHeld);
}

#[test]
fn one_newcomer_among_many_makes_a_request_a_new_one_and_they_are_looked_at_in_parts() {
    let mut world = World::new(parse(
        "resources: [{identifier_glob: '*', capacity: 9, algorithm: {kind: STATIC}}]",
    ));
    let ids = || (0..600).map(|number| format!("r/{number}"));
    let all = asks_for(ids(), None);
    world.core.refresh_client(&all, world.now);
    let mixed = asks_for(ids().chain(["new".to_owned()]), None);
    for (request, last) in [
        (&all, RenewalCheck::AllHeld),
        (&mixed, RenewalCheck::SomeNew),
    ] {
        let (mut from, mut parts) = (0, 1);
        let end = loop {
            match world.core.check_client_renewal(request, from, world.now) {
                RenewalCheck::HeldSoFar(next) => {
                    assert!(next > from);
                    from = next;
                    parts += 1;
                }
                end => break end,
            }
        };
        assert_eq!((end, parts), (last, 3));
    }
}

#[test]
fn while_a_predecessors_leases_may_last_a_claim_is_believed() {
    let outstanding = Moment::ORIGIN.after_seconds(3660.0);
    let settings = Settings {
        predecessor: Predecessor::Until(outstanding),
        ..SETTINGS
    };
    let mut world = World::with(document("FAIR_SHARE", 100.0), settings);
    assert_eq!(of_db(&world, Some(10.0)), RenewalCheck::AllHeld);
    assert_eq!(of_db(&world, None), RenewalCheck::SomeNew);
    world.wait(60.0);
    assert_eq!(of_db(&world, Some(10.0)), RenewalCheck::SomeNew);
}
