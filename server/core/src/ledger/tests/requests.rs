//! Requests in parts, and renewal checks.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::priority_share::request_in_bands;
use super::*;
use crate::ledger::{ReleasePosition, RenewalCheck};

const MANY: usize = 1000;

/// A client's request for `r/0`, `r/1` and so on.
fn for_many(client: &str, count: usize) -> CapacityRequest {
    let mut request = request(client, Some(1), 1.0, None);
    let one = request.resources.remove(0);
    request.resources = (0..count)
        .map(|n| ResourceRequest {
            resource_id: ResourceId::new(format!("r/{n}")).unwrap(),
            ..one.clone()
        })
        .collect();
    request
}

fn release(client: &str, resource_ids: Option<Vec<ResourceId>>) -> ReleaseRequest {
    ReleaseRequest {
        client_id: ClientId::new(client).unwrap(),
        run: None,
        seq: Some(Seq::new(2).unwrap()),
        heard_epoch: None,
        resource_ids,
        tokens: BTreeMap::new(),
    }
}

fn named<'a>(granted: impl IntoIterator<Item = &'a Grant>) -> Vec<&'a ResourceId> {
    let ids = granted.into_iter().map(|granted| &granted.resource_id);
    ids.collect()
}

#[test]
fn parts_are_bounded_and_cover_the_request() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    let request = for_many("a", MANY);
    let mut granted: Vec<Grant> = Vec::new();
    while granted.len() < MANY {
        let part = world
            .ledger
            .refresh_part(&request.clone().into(), granted.len(), world.now);
        assert!((1..=64).contains(&part.len()), "{}", part.len());
        granted.extend(part);
        world.wait(0.001);
    }
    let asked: Vec<_> = request.resources.iter().map(|it| &it.resource_id).collect();
    assert_eq!(named(&granted), asked);
    assert_eq!(world.ledger.stats().leases, MANY);
    // The same request again is stale and gets the same leases.
    let whole = world.ledger.refresh(&request.clone().into(), world.now);
    assert_eq!(named(&whole), asked);
    assert!(whole.iter().all(|granted| granted.capacity.get() == 1.0));
}

#[test]
fn many_bands_make_parts_shorter() {
    let mut world = World::new(document("PRIORITY_SHARE", 100.0));
    let bands: Vec<_> = (0..16).map(|priority| (priority, 1.0)).collect();
    let mut request = request_in_bands("a", &bands, None);
    let one = request.resources.remove(0);
    request.resources = (0..5)
        .map(|n| ResourceRequest {
            resource_id: ResourceId::new(format!("r/{n}")).unwrap(),
            ..one.clone()
        })
        .collect();
    let mut part = |from| {
        let part = (world.ledger).refresh_part(&request.clone().into(), from, world.now);
        part.len()
    };
    assert_eq!((part(0), part(4)), (3, 1));
    assert_eq!(
        world
            .ledger
            .refresh(&request.clone().into(), world.now)
            .len(),
        5
    );
}

#[test]
fn many_templates_make_parts_shorter() {
    let mut text = "resources: [".to_owned();
    for n in 0..3 * 1024 {
        write!(text, "{{identifier_glob: 't/{n}/*', capacity: 1}}, ").unwrap();
    }
    text.push_str(
        "{identifier_glob: '*', capacity: 1, algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 5}}]",
    );
    let mut world = World::new(parse(&text));
    let part = world
        .ledger
        .refresh_part(&for_many("a", MANY).into(), 0, world.now);
    assert!((1..=16).contains(&part.len()), "{}", part.len());
}

#[test]
fn many_leases_are_released_in_parts() {
    for listed in [false, true] {
        let mut world = World::new(document("FAIR_SHARE", 100.0));
        let request = for_many("a", MANY);
        world.ledger.refresh(&request.clone().into(), world.now);
        world.ledger.refresh(&for_many("b", 1).into(), world.now);
        let ids = request.resources.into_iter().map(|it| it.resource_id);
        let release = release("a", listed.then(|| ids.collect()));

        let held = |world: &World| {
            let views = world.resources("r/");
            views.iter().filter(|view| view.sum_has > 0.0).count()
        };
        let (mut from, mut left, mut scanned) = (Some(ReleasePosition::default()), MANY, 0);
        while let Some(position) = from {
            let ledger = &mut world.ledger;
            let part = ledger.release_part(&release.clone().into(), &|_| true, position, world.now);
            from = part.next;
            scanned += part.scanned;
            let now_left = held(&world);
            assert!(left - now_left <= 64, "{left} {now_left}");
            left = now_left;
        }
        assert_eq!(scanned, MANY);
        // The lease of the other client stays.
        assert_eq!(left, 1);
    }
}

fn request_for(ids: impl IntoIterator<Item = String>, has: Option<f64>) -> CapacityRequest {
    let one = request("a", None, 1.0, has);
    let resources = ids.into_iter().flat_map(|id| {
        one.resources.iter().map(move |it| ResourceRequest {
            resource_id: ResourceId::new(id.clone()).unwrap(),
            ..it.clone()
        })
    });
    CapacityRequest {
        resources: resources.collect(),
        ..one.clone()
    }
}

fn of_db(world: &World, has: Option<f64>) -> RenewalCheck {
    let request = request("a", None, 1.0, has);
    world.ledger.check_renewal(&request.into(), 0, world.now)
}

#[test]
fn renewal_needs_a_lease_in_the_ledger() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    assert_eq!(of_db(&world, Some(1.0)), RenewalCheck::SomeNew);
    world.refresh("b", 10.0, None);
    assert_eq!(of_db(&world, Some(1.0)), RenewalCheck::SomeNew);
    world.refresh("a", 10.0, None);
    assert_eq!(of_db(&world, None), RenewalCheck::AllHeld);
    world.release("a", None);
    assert_eq!(of_db(&world, Some(10.0)), RenewalCheck::SomeNew);
    world.refresh("a", 10.0, None);
    world.wait(21.0);
    assert_eq!(of_db(&world, Some(10.0)), RenewalCheck::SomeNew);
}

#[test]
fn lease_on_zero_can_be_renewed() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.refresh("a", 0.0, None);
    assert_eq!(of_db(&world, None), RenewalCheck::AllHeld);
}

#[test]
fn one_new_resource_makes_a_request_new() {
    let mut world = World::new(parse(
        "resources: [{identifier_glob: '*', capacity: 9, algorithm: {kind: STATIC}}]",
    ));
    let ids = || (0..600).map(|number| format!("r/{number}"));
    let all = request_for(ids(), None);
    world.ledger.refresh(&all.clone().into(), world.now);
    let mixed = request_for(ids().chain(["new".to_owned()]), None);
    for (request, last) in [
        (&all, RenewalCheck::AllHeld),
        (&mixed, RenewalCheck::SomeNew),
    ] {
        let (mut from, mut parts) = (0, 1);
        let end = loop {
            match world
                .ledger
                .check_renewal(&request.clone().into(), from, world.now)
            {
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
