//! Renewal checks.

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
    world.ledger.check_client_renewal(&request, 0, world.now)
}

#[test]
fn renewal_needs_a_lease_in_the_ledger() {
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
fn lease_on_zero_can_be_renewed() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.ask("a", 0.0, None);
    assert_eq!(of_db(&world, None), RenewalCheck::AllHeld);
}

#[test]
fn one_new_resource_makes_a_request_new() {
    let mut world = World::new(parse(
        "resources: [{identifier_glob: '*', capacity: 9, algorithm: {kind: STATIC}}]",
    ));
    let ids = || (0..600).map(|number| format!("r/{number}"));
    let all = asks_for(ids(), None);
    world.ledger.refresh_client(&all, world.now);
    let mixed = asks_for(ids().chain(["new".to_owned()]), None);
    for (request, last) in [
        (&all, RenewalCheck::AllHeld),
        (&mixed, RenewalCheck::SomeNew),
    ] {
        let (mut from, mut parts) = (0, 1);
        let end = loop {
            match world.ledger.check_client_renewal(request, from, world.now) {
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
fn claim_counts_as_renewal_during_learning() {
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
