//! Booking and granting: nobody starves, nothing is granted twice, what has run out is free.

use doorman_openapi::{Reason, SafeCapacity};

use super::*;
use crate::ledger::TenantId;

#[test]
fn grants_what_is_wanted_while_it_fits() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    let granted = world.ask("a", 40.0, None);
    assert_eq!(
        (granted.capacity.get(), granted.reason),
        (40.0, Reason::Granted)
    );
    assert_eq!(
        (granted.lease_length.get(), granted.refresh_interval.get()),
        (20.0, 5.0)
    );
    assert_eq!(world.ask("b", 60.0, None).capacity.get(), 60.0);
}

#[test]
fn what_others_hold_is_granted_one_contact_after_they_gave_it_up() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.ask("a", 100.0, None);
    // The newcomer's share is 50, but all of it is still in the other's hands.
    let waiting = world.ask("b", 100.0, None);
    assert_eq!(
        (waiting.capacity.get(), waiting.reason),
        (0.0, Reason::Pending)
    );
    assert!(waiting.refresh_interval.get() <= 1.0);
    // Told to shrink, the first may still be using all of it until it says so.
    let shrunk = world.ask("a", 100.0, Some(100.0));
    assert_eq!(
        (shrunk.capacity.get(), shrunk.reason),
        (50.0, Reason::Share)
    );
    assert_eq!(world.ask("b", 100.0, None).capacity.get(), 0.0);
    world.ask("a", 100.0, Some(50.0));
    assert_eq!(world.ask("b", 100.0, None).capacity.get(), 50.0);
}

#[test]
fn constant_demand_has_its_exact_share_after_three_refreshes() {
    let mut world = World::new(document("FAIR_SHARE", 120.0));
    let wants = [1000.0, 50.0, 10.0];
    let mut has = [None; 3];
    for _ in 0..3 {
        for (client, wants) in wants.iter().enumerate() {
            let granted = world.ask(&client.to_string(), *wants, has[client]);
            has[client] = Some(granted.capacity.get());
            // Told to shrink, a holder obeys and reports back at once.
            has[client] = Some(
                world
                    .ask(&client.to_string(), *wants, has[client])
                    .capacity
                    .get(),
            );
        }
        world.wait(5.0);
    }
    assert_eq!(has, [Some(60.0), Some(50.0), Some(10.0)]);
}

#[test]
fn a_lease_that_ran_out_frees_its_capacity_without_anyone_asking() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.ask("a", 100.0, None);
    world.wait(1.0);
    world.ask("b", 0.0, None);
    world.wait(19.9);
    // The holder's clock may run slower: the books keep the lease for 1.05 times its length.
    assert_eq!(world.view().unwrap().sum_has, 100.0);
    world.wait(0.2);
    assert_eq!(world.view().unwrap().sum_has, 0.0);
    world.wait(30.0);
    assert_eq!(
        world.view(),
        None,
        "a resource without holders is forgotten"
    );
    assert_eq!(world.core.stats(), super::super::LedgerStats::default());
}

#[test]
fn a_lost_answer_stays_booked_until_the_holder_speaks_again() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.ask("a", 80.0, None);
    assert_eq!(world.ask("b", 80.0, None).capacity.get(), 20.0);
    // The answer was lost: the client says again that it has nothing, and so it holds nothing.
    world.wait(1.0);
    world.ask("a", 10.0, None);
    close(world.view().unwrap().sum_has, 30.0);
}

#[test]
fn a_holder_that_says_nothing_new_keeps_the_older_and_larger_lease_in_the_books() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.ask("a", 100.0, None);
    world.wait(10.0);
    // It wants less, and says that it still uses 100: that stands until the end of the lease it has it from.
    assert_eq!(world.ask("a", 10.0, Some(100.0)).capacity.get(), 10.0);
    close(world.view().unwrap().sum_has, 100.0);
    world.wait(11.1);
    close(world.view().unwrap().sum_has, 10.0);
}

#[test]
fn outstanding_counts_like_a_lease_that_cannot_be_given_back() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.ask("a", 80.0, None);
    let mut asks = request("a", None, 10.0, Some(10.0));
    asks.resources[0].outstanding = Capacity::new(70.0).unwrap();
    assert_eq!(world.send(&asks).capacity.get(), 10.0);
    close(world.view().unwrap().sum_has, 70.0);
    assert_eq!(world.ask("b", 100.0, None).capacity.get(), 30.0);
}

#[test]
fn operations_that_outlive_their_lease_are_counted_and_booked_as_far_as_there_is_room() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.ask("a", 80.0, None);
    let uses = |world: &mut World, has| {
        let mut asks = request("a", None, 80.0, has);
        asks.resources[0].outstanding = Capacity::new(80.0).unwrap();
        world.send(&asks)
    };
    uses(&mut world, Some(80.0));
    assert_eq!(world.core.stats().overused, 0);

    // Its lease ends while it goes on, and another has a part of it by the time it speaks again.
    world.wait(21.1);
    world.ask("b", 60.0, None);
    uses(&mut world, None);
    let counts = world.core.stats();
    assert_eq!((counts.overused, counts.excess_claims), (1, 0));
    close(world.view().unwrap().sum_has, 100.0);
    assert_eq!(
        world.core.take_events().events,
        vec![LedgerEvent::Overused(db())]
    );
    // It is told once, and counted as often as it is so.
    uses(&mut world, None);
    assert_eq!(world.core.stats().overused, 2);
    assert_eq!(world.core.take_events().events, vec![]);
}

#[test]
fn a_claim_counts_at_most_what_was_granted_or_is_free() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.ask("a", 30.0, None);
    world.ask("b", 30.0, None);
    let liar = world.ask("b", 1000.0, Some(1e15));
    close(liar.capacity.get(), 70.0);
    close(world.view().unwrap().sum_has, 100.0);
    assert_eq!(world.core.stats().excess_claims, 1);
    // The honest one keeps what it holds, and gets its share when the other has been told to shrink.
    assert_eq!(world.ask("a", 30.0, Some(30.0)).capacity.get(), 30.0);
}

#[test]
fn a_released_lease_is_free_at_once() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.ask("a", 100.0, None);
    world.release("a", None);
    assert_eq!(world.view(), None);
    world.release("a", None);
    assert_eq!(world.ask("b", 100.0, None).capacity.get(), 100.0);
}

#[test]
fn a_capacity_of_zero_blocks() {
    for kind in ["FAIR_SHARE", "PROPORTIONAL_SHARE", "STATIC"] {
        let mut world = World::new(document(kind, 0.0));
        let granted = world.ask("a", 10.0, None);
        assert_eq!(
            (granted.capacity.get(), granted.reason),
            (0.0, Reason::Blocked)
        );
    }
}

#[test]
fn without_a_template_it_grants_as_asked_or_refuses() {
    let mut world = World::new(parse("resources: []"));
    let granted = world.ask("a", 7.0, None);
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
        world.core.take_events().events,
        [LedgerEvent::Unmatched(db())]
    );
    world.ask("b", 7.0, None);
    assert_eq!(world.core.take_events(), LedgerEvents::default());
    assert_eq!(world.core.stats().unmatched, 2);

    let refuse = Settings {
        unmatched: UnmatchedPolicy::Refuse,
        ..SETTINGS
    };
    let granted = World::with(parse("resources: []"), refuse).ask("a", 7.0, None);
    assert_eq!(
        (granted.capacity.get(), granted.reason),
        (0.0, Reason::Blocked)
    );
}

#[test]
fn full_books_refuse_newcomers_but_never_a_renewal() {
    let mut world = World::with(
        document("FAIR_SHARE", 100.0),
        Settings {
            max_leases: 2,
            ..SETTINGS
        },
    );
    world.ask("a", 10.0, None);
    world.ask("b", 10.0, None);
    let refused = world.ask("c", 10.0, None);
    assert_eq!(
        (
            refused.capacity.get(),
            refused.lease_length.get(),
            refused.reason
        ),
        (0.0, 0.0, Reason::Full)
    );
    // An equal part for three: it goes on without a lease beside two who have one.
    close(refused.safe_capacity.get(), 100.0 / 3.0);
    assert_eq!(world.ask("a", 10.0, Some(10.0)).reason, Reason::Granted);
    world.release("b", None);
    assert_eq!(world.ask("c", 10.0, None).reason, Reason::Granted);
    assert_eq!(world.core.stats().leases, 2);
}

#[test]
fn a_tenant_has_a_quarter_of_the_books_at_most_and_renews_all_the_same() {
    let document = "resources: [{identifier_glob: '*', capacity: 9, algorithm: {kind: STATIC}}]";
    let settings = Settings {
        max_leases: 8,
        ..SETTINGS
    };
    let mut world = World::with(parse(document), settings);
    let mut ask = |client: &str, tenant: Option<u64>| {
        let request = request(client, None, 1.0, None);
        let tenant = tenant.map(TenantId);
        let core = &mut world.core;
        core.refresh_client_part(&request, tenant, 0, world.now)
            .remove(0)
            .reason
    };
    for client in ["a1", "a2"] {
        assert_eq!(ask(client, Some(1)), Reason::Granted);
    }
    assert_eq!(ask("a3", Some(1)), Reason::Full);
    assert_eq!(ask("a1", Some(1)), Reason::Granted);
    for (client, tenant) in [
        ("b", Some(2)),
        ("free1", None),
        ("free2", None),
        ("free3", None),
    ] {
        assert_eq!(ask(client, tenant), Reason::Granted, "{client}");
    }
    assert_eq!(ask("a3", Some(1)), Reason::Full);
    world.release("a2", None);
    let request = request("a3", None, 1.0, None);
    let granted = world
        .core
        .refresh_client_part(&request, Some(TenantId(1)), 0, world.now);
    assert_eq!(granted[0].reason, Reason::Granted);
}

#[test]
fn safe_capacity_is_as_configured_or_an_equal_part() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.ask("a", 10.0, None);
    let granted = world.ask("b", 10.0, None);
    assert_eq!(granted.safe_capacity.get(), 50.0);
    for (configured, expected) in [
        ("-1", SafeCapacity::Unlimited),
        ("7", SafeCapacity::new(7.0).unwrap()),
    ] {
        let text = format!(
            "resources: [{{identifier_glob: db, capacity: 100, safe_capacity: {configured}, algorithm: {{kind: STATIC}}}}]"
        );
        assert_eq!(
            World::new(parse(&text)).ask("a", 1.0, None).safe_capacity,
            expected
        );
    }
}

#[test]
fn doormans_other_algorithms_grant_whatever_the_others_hold() {
    let mut world = World::new(document("STATIC", 120.0));
    let got: Vec<f64> = [("a", 50.0), ("b", 200.0), ("c", 300.0)]
        .map(|(client, wants)| world.ask(client, wants, None).capacity.get())
        .into();
    assert_eq!(got, [50.0, 120.0, 120.0]);
    let mut world = World::new(document("NO_ALGORITHM", 120.0));
    assert_eq!(world.ask("a", 1000.0, None).capacity.get(), 1000.0);
}

#[test]
fn pages_of_resources_are_ordered_and_filtered_by_prefix() {
    let mut world = World::new(parse("resources: []"));
    for id in ["t/c", "t/a", "s", "t/b", "u"] {
        let mut asks = request("a", None, 1.0, None);
        asks.resources[0].resource_id = ResourceId::new(id).unwrap();
        world.send(&asks);
    }
    let page = |after: Option<&str>| {
        let after = after.map(|id| ResourceId::new(id).unwrap());
        let part = world
            .core
            .resources("t/", &PageQuery::unfiltered(2), after.as_ref(), world.now);
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
fn a_shorter_lease_does_not_hide_the_longer_one_before_it() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.ask("a", 100.0, None);
    let shorter = "resources: [{identifier_glob: db, capacity: 100, \
        algorithm: {kind: FAIR_SHARE, lease_length: 2, refresh_interval: 1}}]";
    world.core.reconfigure(parse(shorter));
    assert_eq!(world.ask("a", 100.0, Some(100.0)).lease_length.get(), 2.0);
    world.wait(20.9);
    assert_eq!(world.view().unwrap().sum_has, 100.0);
    world.wait(0.2);
    assert_eq!(world.view(), None);
}
