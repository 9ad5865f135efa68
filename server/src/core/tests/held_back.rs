//! Why a holder has no more, as operators are told.

use doorman_openapi::{HeldBackBy, Reason, SafeCapacity, Seconds};
use proptest::prelude::*;

use super::*;

/// A document with the resource `db`, of which shares are divided so.
fn sharing(kind: &str, capacity: f64, surplus: f64, granularity: f64) -> Arc<Document> {
    parse(&format!(
        "resources: [{{identifier_glob: db, capacity: {capacity}, algorithm: {{kind: {kind}, lease_length: 20, refresh_interval: 5, \
         parameters: [{{name: surplus, value: '{surplus}'}}, {{name: granularity, value: '{granularity}'}}]}}}}]"
    ))
}

fn sharing_documents() -> impl Strategy<Value = Arc<Document>> {
    (
        prop_oneof![Just("FAIR_SHARE"), Just("PROPORTIONAL_SHARE")],
        1.0..2000.0f64,
        prop_oneof![Just(0.0), 0.0..1.0f64],
        prop_oneof![3 => Just(0.0), 1 => Just(1.0), 1 => Just(2.5)],
    )
        .prop_map(|(kind, capacity, surplus, granularity)| {
            sharing(kind, capacity, surplus, granularity)
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_share_that_is_shown_is_what_constant_demands_come_to(
        document in sharing_documents(), wants in prop::collection::vec(0.0..500.0f64, 1..20)
    ) {
        let mut world = World::new(document);
        let mut has = vec![None; wants.len()];
        // Three refreshes, with a report back after each.
        for _ in 0..3 {
            for _ in 0..2 {
                for (client, wants) in wants.iter().enumerate() {
                    has[client] = Some(world.ask(&client.to_string(), *wants, has[client]).capacity.get());
                }
            }
            world.wait(5.0);
        }
        for (client, has) in has.iter().enumerate() {
            let shown = world.holder(&client.to_string());
            let (share, has) = (shown.share.get(), has.unwrap());
            prop_assert!((share - has).abs() <= 1e-6 * (1.0 + has), "{shown:?}");
            let content = has >= wants[client] * (1.0 - 1e-9);
            prop_assert_eq!(shown.held_back_by, (!content).then_some(HeldBackBy::Share), "{:?}", shown);
        }
    }

    /// Whatever has happened before, what is shown is what the holder is answered when it comes back.
    #[test]
    fn what_is_shown_is_what_the_next_refresh_does(
        documents in prop::collection::vec(sharing_documents(), 1..3),
        learns in prop::bool::weighted(0.2),
        happened in prop::collection::vec((0u32..8, 0.0..300.0f64, 0u32..10, any::<bool>()), 1..60),
    ) {
        let predecessor = Predecessor::Until(Moment::ORIGIN.after_seconds(3600.0 + 21.0));
        let settings = Settings { predecessor: if learns { predecessor } else { Predecessor::None }, ..SETTINGS };
        let mut world = World::with(Arc::clone(&documents[0]), settings);
        let length = happened.len();
        for (at, (client, wants, wait, is_heard)) in happened.into_iter().enumerate() {
            if at == length * 3 / 4 {
                world.core.reconfigure(Arc::clone(documents.last().unwrap()));
            }
            let client = client.to_string();
            let known = world.holders();
            let has = known.iter().find(|it| it.client_id == client).map(|it| it.has.get());
            // An answer may have been lost.
            world.ask(&client, wants, has.filter(|_| is_heard));
            world.wait(f64::from(wait) / 4.0);
        }
        for shown in world.holders() {
            // Those before have come back.
            let shown = world.holder(&shown.client_id);
            let (wants, has) = (shown.wants.get(), shown.has.get());
            let granted = world.ask(&shown.client_id, wants, Some(has));
            let gets = granted.capacity.get();
            let agrees = match shown.held_back_by {
                None => granted.reason == Reason::Granted
                    || shown.share < shown.wants && granted.reason == Reason::Share
                    // Claims of all that are too much are scaled down while the server learns.
                    || learns && granted.reason == Reason::Pending,
                Some(HeldBackBy::Share) => granted.reason == Reason::Share,
                Some(HeldBackBy::Others) => granted.reason == Reason::Pending && gets <= has * (1.0 + 1e-9),
                Some(HeldBackBy::NotRefreshed) => gets > has,
                Some(HeldBackBy::Learning) => granted.reason == Reason::Pending && gets <= has,
                Some(HeldBackBy::Blocked | HeldBackBy::Balance | HeldBackBy::Suppressed | HeldBackBy::Bound) => false,
            };
            prop_assert!(agrees, "{shown:?} {granted:?}");
        }
    }
}

#[track_caller]
fn check(world: &World, client: &str, expected: Option<HeldBackBy>, why: &str) {
    let shown = world.holder(client);
    assert_eq!(
        (shown.held_back_by, shown.why.as_str()),
        (expected, why),
        "{shown:?}"
    );
}

#[test]
fn who_has_what_it_wants_is_held_back_by_nothing() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.ask("a", 60.0, None);
    world.ask("b", 0.0, None);
    check(&world, "a", None, "it has what it wants");
    check(&world, "b", None, "it wants nothing");
    let view = world.view().unwrap();
    assert_eq!((view.free, view.fill_level), (Some(40.0), None));
    // Another comes, and its share is smaller from now on.
    world.ask("c", 60.0, None);
    check(
        &world,
        "a",
        None,
        "it has what it wants; its share is 50 now, which it is told when it next comes back",
    );
}

#[test]
fn shares_and_the_hands_of_others_hold_back() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.ask("a", 90.0, None);
    world.ask("b", 90.0, None);
    let why = "its share is 50, of which 10 can be granted: others still hold 90 of 100, and give back what is above their shares \
               when they refresh, every 5 s, or when their leases end";
    check(&world, "b", Some(HeldBackBy::Others), why);
    let view = world.view().unwrap();
    assert_eq!((view.free, view.fill_level), (Some(0.0), Some(50.0)));
    assert_eq!(
        view.safe_capacity,
        SafeCapacity::AtMost(Capacity::new(50.0).unwrap())
    );

    world.wait(1.0);
    world.ask("a", 90.0, Some(90.0));
    let why = "its share is 50: 180 are wanted of 100, so that no client gets more than 50";
    check(&world, "a", Some(HeldBackBy::Share), why);
    // What a has given up is free as soon as it has said so.
    world.ask("a", 90.0, Some(50.0));
    let why = "its share, or what is free, has grown since it was last here: it is granted 50 when it comes back, in 0 s at most";
    check(&world, "b", Some(HeldBackBy::NotRefreshed), why);
    assert_eq!(world.holder("b").refreshed_ago.unwrap().get(), 1.0);
    // It crashed.
    world.wait(14.0);
    let why = "its share, or what is free, has grown since it was last here: it is granted 50 when it comes back; it should have \
               come back 14 s ago: if it does not, what it has is free in 6 s";
    check(&world, "b", Some(HeldBackBy::NotRefreshed), why);
}

#[test]
fn the_share_by_other_algorithms_is_told_in_their_words() {
    let mut world = World::new(document("PROPORTIONAL_SHARE", 120.0));
    for _ in 0..4 {
        for (client, wants) in [("a", 1000.0), ("b", 50.0), ("c", 10.0)] {
            let has = world
                .holders()
                .into_iter()
                .find(|it| it.client_id == client);
            world.ask(client, wants, has.map(|it| it.has.get()));
        }
        world.wait(5.0);
    }
    close(world.holder("b").share.get(), 40.309_278_350_515_46);
    let why = "its share is 40.309: 1060 are wanted of 120, of which each client may have an equal part, and what some leave of \
               theirs goes to those who want more";
    check(&world, "b", Some(HeldBackBy::Share), why);

    let mut world = World::new(document("STATIC", 120.0));
    world.ask("a", 200.0, None);
    check(
        &world,
        "a",
        Some(HeldBackBy::Share),
        "each holder gets 120 at most",
    );
    assert_eq!(world.view().unwrap().free, None);
    world.core.reconfigure(document("NO_ALGORITHM", 120.0));
    assert_eq!(world.holder("a").share.get(), 200.0);

    let mut world = World::new(sharing("FAIR_SHARE", 10.0, 0.0, 1.0));
    world.ask("a", 2.5, None);
    check(
        &world,
        "a",
        Some(HeldBackBy::Share),
        "its share is 2, in whole steps",
    );
}

#[test]
fn learning_and_an_empty_capacity_hold_back() {
    let settings = Settings {
        predecessor: Predecessor::Until(Moment::ORIGIN.after_seconds(3600.0 + 21.0)),
        ..SETTINGS
    };
    let mut world = World::with(document("FAIR_SHARE", 100.0), settings);
    world.ask("a", 50.0, Some(30.0));
    world.ask("b", 50.0, None);
    world.wait(1.0);
    let why = "the server learns for 20 s what its predecessor leased: until then it keeps what it said it has";
    check(&world, "a", Some(HeldBackBy::Learning), why);
    let why = "the server learns for 20 s what its predecessor leased: until then who said that it has nothing gets nothing";
    check(&world, "b", Some(HeldBackBy::Learning), why);
    let view = world.view().unwrap();
    assert_eq!(view.learning_ends_in.map(Seconds::get), Some(20.0));
    assert_eq!(
        world.holder("b").share.get(),
        50.0,
        "by what is known so far"
    );

    world.core.reconfigure(document("FAIR_SHARE", 0.0));
    check(&world, "b", Some(HeldBackBy::Blocked), "the capacity is 0");
    let settings = Settings {
        unmatched: Unmatched::Refuse,
        ..SETTINGS
    };
    let mut world = World::with(parse("resources: []"), settings);
    world.ask("a", 1.0, None);
    let why = "no template matches, and this server refuses what none matches";
    check(&world, "a", Some(HeldBackBy::Blocked), why);
}

#[test]
fn what_is_told_to_all_alike_holds_back_who_has_as_large_a_lease_as_it_wants() {
    let mut world = World::new(document("SHARED_BUCKET", 4.0));
    for used in [0.0, 12.0] {
        let mut asks = request("a", None, 4.0, None);
        asks.resources[0].used = Some(Capacity::new(used).unwrap());
        world.send(&asks);
    }
    let why = "the bucket that all holders share is empty (-8 left): nothing is admitted until it fills again";
    check(&world, "a", Some(HeldBackBy::Balance), why);
    world.wait(3.0);
    check(&world, "a", None, "it has what it wants");

    let mut world = World::new(document("SUPPRESSION", 100.0));
    for _ in 0..30 {
        world.ask("a", 400.0, None);
        world.wait(1.0);
    }
    let why = "more than 100 is wanted: all holders admit each request with a probability of 0.25";
    check(&world, "a", Some(HeldBackBy::Suppressed), why);
}

#[test]
fn a_new_document_is_seen_before_anybody_asks_again() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.ask("a", 80.0, None);
    world.core.reconfigure(document("FAIR_SHARE", 12.0));
    let shown = world.holder("a");
    assert_eq!((shown.share.get(), shown.has.get()), (12.0, 80.0));
    assert_eq!(world.view().unwrap().free, Some(0.0));
    world.ask("a", 80.0, Some(80.0));
    let why = "its share is 12: 80 are wanted of 12, so that no client gets more than 12";
    check(&world, "a", Some(HeldBackBy::Share), why);
    world.core.reconfigure(document("FAIR_SHARE", 40.0));
    let why = "its share, or what is free, has grown since it was last here: it is granted 40 when it comes back, in 5 s at most";
    check(&world, "a", Some(HeldBackBy::NotRefreshed), why);
}

#[test]
fn a_lease_beyond_the_bound_is_told_as_such() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    let granted = world.ask("a", 80.0, None);
    let of = |bound| {
        let page = world.core.holders(&db(), None, 1, &|_| true, world.now);
        let page = page.unwrap();
        let holding = page.holdings.into_iter().next().unwrap();
        holding.within(bound).into_view(&page.resource, 0)
    };
    assert_eq!(of(granted.booked_until).held_back_by, None);
    let before = Moment::from_nanos(granted.booked_until.as_nanos() - 1);
    let shown = of(before);
    assert_eq!(shown.held_back_by, Some(HeldBackBy::Bound));
    assert!(shown.why.contains("has not written down"), "{}", shown.why);
}
