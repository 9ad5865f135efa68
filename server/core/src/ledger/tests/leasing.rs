//! Booking and granting.

use doorman_openapi::{Reason, SafeCapacity};

use super::*;

#[test]
fn demand_that_fits_is_granted() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    let granted = world.refresh("a", 40.0, None);
    assert_eq!(
        (granted.capacity.get(), granted.reason),
        (40.0, Reason::Granted)
    );
    assert_eq!(
        (granted.lease_length.get(), granted.refresh_interval.get()),
        (20.0, 5.0)
    );
    assert_eq!(world.refresh("b", 60.0, None).capacity.get(), 60.0);
}

#[test]
fn released_excess_is_granted_one_refresh_later() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.refresh("a", 100.0, None);
    // The share is 50, but the other holder still has all of it.
    let waiting = world.refresh("b", 100.0, None);
    assert_eq!(
        (waiting.capacity.get(), waiting.reason),
        (0.0, Reason::Pending)
    );
    assert!(waiting.refresh_interval.get() <= 1.0);
    // The first holder may use all of it until it reports the smaller lease.
    let shrunk = world.refresh("a", 100.0, Some(100.0));
    assert_eq!(
        (shrunk.capacity.get(), shrunk.reason),
        (50.0, Reason::Share)
    );
    assert_eq!(world.refresh("b", 100.0, None).capacity.get(), 0.0);
    world.refresh("a", 100.0, Some(50.0));
    assert_eq!(world.refresh("b", 100.0, None).capacity.get(), 50.0);
}

#[test]
fn constant_demand_gets_its_share_in_three_refreshes() {
    let mut world = World::new(document("FAIR_SHARE", 120.0));
    let wants = [1000.0, 50.0, 10.0];
    let mut has = [None; 3];
    for _ in 0..3 {
        for (client, wants) in wants.iter().enumerate() {
            let granted = world.refresh(&client.to_string(), *wants, has[client]);
            has[client] = Some(granted.capacity.get());
            // A holder that must shrink reports back immediately.
            has[client] = Some(
                world
                    .refresh(&client.to_string(), *wants, has[client])
                    .capacity
                    .get(),
            );
        }
        world.wait(5.0);
    }
    assert_eq!(has, [Some(60.0), Some(50.0), Some(10.0)]);
}

#[test]
fn expired_lease_frees_capacity() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.refresh("a", 100.0, None);
    world.wait(1.0);
    world.refresh("b", 0.0, None);
    world.wait(19.9);
    // The holder's clock may run slower: the lease is booked for 1.05 times its length.
    assert_eq!(world.view().unwrap().sum_has, 100.0);
    world.wait(0.2);
    assert_eq!(world.view().unwrap().sum_has, 0.0);
    world.wait(30.0);
    assert_eq!(world.view(), None, "a resource without holders is dropped");
    assert_eq!(world.ledger.stats(), LedgerStats::default());
}

#[test]
fn lost_response_stays_booked_until_next_request() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.refresh("a", 80.0, None);
    assert_eq!(world.refresh("b", 80.0, None).capacity.get(), 20.0);
    // The response was lost: the client reports that it has nothing.
    world.wait(1.0);
    world.refresh("a", 10.0, None);
    close(world.view().unwrap().sum_has, 30.0);
}

#[test]
fn larger_claim_stays_booked_until_it_expires() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.refresh("a", 100.0, None);
    world.wait(10.0);
    // It wants less but still uses 100, which stays booked until the older lease ends.
    assert_eq!(world.refresh("a", 10.0, Some(100.0)).capacity.get(), 10.0);
    close(world.view().unwrap().sum_has, 100.0);
    world.wait(11.1);
    close(world.view().unwrap().sum_has, 10.0);
}

#[test]
fn outstanding_amount_stays_booked() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.refresh("a", 80.0, None);
    let mut body = request("a", None, 10.0, Some(10.0));
    body.resources[0].outstanding = Capacity::new(70.0).unwrap();
    assert_eq!(world.send(&body).capacity.get(), 10.0);
    close(world.view().unwrap().sum_has, 70.0);
    assert_eq!(world.refresh("b", 100.0, None).capacity.get(), 30.0);
}

#[test]
fn overuse_is_counted_and_booked_as_available() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.refresh("a", 80.0, None);
    let uses = |world: &mut World, has| {
        let mut body = request("a", None, 80.0, has);
        body.resources[0].outstanding = Capacity::new(80.0).unwrap();
        world.send(&body)
    };
    uses(&mut world, Some(80.0));
    assert_eq!(world.ledger.stats().overused, 0);

    // Its lease expires during the operations, and another holder gets a part of it.
    world.wait(21.1);
    world.refresh("b", 60.0, None);
    uses(&mut world, None);
    let counts = world.ledger.stats();
    assert_eq!((counts.overused, counts.excess_claims), (1, 0));
    close(world.view().unwrap().sum_has, 100.0);
    assert_eq!(
        world.ledger.take_events().events,
        vec![LedgerEvent::Overused(db())]
    );
    // Reported once, counted each time.
    uses(&mut world, None);
    assert_eq!(world.ledger.stats().overused, 2);
    assert_eq!(world.ledger.take_events().events, vec![]);
}

#[test]
fn claim_is_limited_to_booked_or_available() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.refresh("a", 30.0, None);
    world.refresh("b", 30.0, None);
    let excess = world.refresh("b", 1000.0, Some(1e15));
    close(excess.capacity.get(), 70.0);
    close(world.view().unwrap().sum_has, 100.0);
    assert_eq!(world.ledger.stats().excess_claims, 1);
    // The honest holder keeps its lease.
    assert_eq!(world.refresh("a", 30.0, Some(30.0)).capacity.get(), 30.0);
}

#[test]
fn released_lease_frees_capacity() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.refresh("a", 100.0, None);
    world.release("a", None);
    assert_eq!(world.view(), None);
    world.release("a", None);
    assert_eq!(world.refresh("b", 100.0, None).capacity.get(), 100.0);
}

#[test]
fn zero_capacity_blocks() {
    for kind in ["FAIR_SHARE", "PROPORTIONAL_SHARE", "STATIC"] {
        let mut world = World::new(document(kind, 0.0));
        let granted = world.refresh("a", 10.0, None);
        assert_eq!(
            (granted.capacity.get(), granted.reason),
            (0.0, Reason::Blocked)
        );
    }
}

#[test]
fn unmatched_policy_grants_or_rejects() {
    let mut world = World::new(parse("resources: []"));
    let granted = world.refresh("a", 7.0, None);
    assert_eq!(
        (granted.capacity.get(), granted.reason),
        (7.0, Reason::Granted)
    );
    assert_eq!(
        (granted.template.is_none(), granted.safe_capacity),
        (true, SafeCapacity::Unlimited)
    );
    assert_eq!(
        (granted.lease_length.get(), granted.refresh_interval.get()),
        (60.0, 5.0)
    );
    assert_eq!(
        world.ledger.take_events().events,
        [LedgerEvent::Unmatched(db())]
    );
    world.refresh("b", 7.0, None);
    assert_eq!(world.ledger.take_events(), LedgerEvents::default());
    assert_eq!(world.ledger.stats().unmatched, 2);

    let refuse = Settings {
        unmatched: UnmatchedPolicy::Refuse,
        ..SETTINGS
    };
    let granted = World::with(parse("resources: []"), refuse).refresh("a", 7.0, None);
    assert_eq!(
        (granted.capacity.get(), granted.reason),
        (0.0, Reason::Blocked)
    );
}

#[test]
fn full_ledger_rejects_new_holders_not_renewals() {
    let mut world = World::with(
        document("FAIR_SHARE", 100.0),
        Settings {
            max_leases: 2,
            ..SETTINGS
        },
    );
    world.refresh("a", 10.0, None);
    world.refresh("b", 10.0, None);
    let refused = world.refresh("c", 10.0, None);
    assert_eq!(
        (
            refused.capacity.get(),
            refused.lease_length.get(),
            refused.reason
        ),
        (0.0, 0.0, Reason::Full)
    );
    // An equal part for three, although only two have a lease.
    close(refused.safe_capacity.get(), 100.0 / 3.0);
    assert_eq!(world.refresh("a", 10.0, Some(10.0)).reason, Reason::Granted);
    world.release("b", None);
    assert_eq!(world.refresh("c", 10.0, None).reason, Reason::Granted);
    assert_eq!(world.ledger.stats().leases, 2);
}

#[test]
fn safe_capacity_is_configured_or_an_equal_part() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.refresh("a", 10.0, None);
    let granted = world.refresh("b", 10.0, None);
    assert_eq!(granted.safe_capacity.get(), 50.0);
    for (configured, expected) in [
        ("-1", SafeCapacity::Unlimited),
        ("7", SafeCapacity::new(7.0).unwrap()),
    ] {
        let text = format!(
            "resources: [{{identifier_glob: db, capacity: 100, safe_capacity: {configured}, algorithm: {{kind: STATIC}}}}]"
        );
        assert_eq!(
            World::new(parse(&text))
                .refresh("a", 1.0, None)
                .safe_capacity,
            expected
        );
    }
}

#[test]
fn undivided_grants_ignore_other_holders() {
    let mut world = World::new(document("STATIC", 120.0));
    let got: Vec<f64> = [("a", 50.0), ("b", 200.0), ("c", 300.0)]
        .map(|(client, wants)| world.refresh(client, wants, None).capacity.get())
        .into();
    assert_eq!(got, [50.0, 120.0, 120.0]);
    let mut world = World::new(document("NO_ALGORITHM", 120.0));
    assert_eq!(world.refresh("a", 1000.0, None).capacity.get(), 1000.0);
}

#[test]
fn resource_pages_are_ordered_and_filtered() {
    let mut world = World::new(parse("resources: []"));
    for id in ["t/c", "t/a", "s", "t/b", "u"] {
        let mut body = request("a", None, 1.0, None);
        body.resources[0].resource_id = ResourceId::new(id).unwrap();
        world.send(&body);
    }
    let page = |after: Option<&str>| {
        let after = after.map(|id| ResourceId::new(id).unwrap());
        let query = PageQuery {
            prefix: "t/",
            ..PageQuery::unfiltered(2)
        };
        let part = world.ledger.resources(&query, after.as_ref(), world.now);
        part.resources
            .into_iter()
            .map(|view| view.resource_id.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(page(None), ["t/a", "t/b"]);
    assert_eq!(page(Some("t/b")), ["t/c"]);
    assert_eq!(page(Some("t/c")), Vec::<String>::new());
}

#[test]
fn shorter_lease_does_not_hide_the_longer_one() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.refresh("a", 100.0, None);
    let shorter = "resources: [{identifier_glob: db, capacity: 100, \
        algorithm: {kind: FAIR_SHARE, lease_length: 2, refresh_interval: 1}}]";
    world.ledger.reconfigure(parse(shorter));
    assert_eq!(
        world.refresh("a", 100.0, Some(100.0)).lease_length.get(),
        2.0
    );
    world.wait(20.9);
    assert_eq!(world.view().unwrap().sum_has, 100.0);
    world.wait(0.2);
    assert_eq!(world.view(), None);
}
