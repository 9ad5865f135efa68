//! Explanations of what holders have.

use doorman_openapi::{HeldBackBy, Reason, SafeCapacity, Seconds};
use proptest::prelude::*;

use super::*;

/// A document with the resource `db` and these parameters.
fn sharing(kind: &str, capacity: f64, surplus: f64, granularity: f64) -> Arc<Document> {
    parse(&format!(
        "resources: [{{identifier_glob: db, capacity: {capacity}, algorithm: {{kind: {kind}, lease_length: 20, refresh_interval: 5, \
         parameters: [{{name: surplus, value: '{surplus}'}}, {{name: granularity, value: '{granularity}'}}]}}}}]"
    ))
}

/// A document with `db` as a gauge, which has whole steps.
fn gauge(kind: &str, capacity: f64) -> Arc<Document> {
    parse(&format!(
        "resources: [{{identifier_glob: db, capacity: {capacity}, unit: gauge, \
         algorithm: {{kind: {kind}, lease_length: 20, refresh_interval: 5}}}}]"
    ))
}

fn any_document() -> impl Strategy<Value = Arc<Document>> {
    const DIVIDES: [&str; 3] = ["FAIR_SHARE", "PROPORTIONAL_SHARE", "PRIORITY_SHARE"];
    const ANY: [&str; 4] = ["NO_ALGORITHM", "STATIC", "SUPPRESSION", "SHARED_BUCKET"];
    const OF_GAUGES: [&str; 5] = [
        "NO_ALGORITHM",
        "STATIC",
        "PROPORTIONAL_SHARE",
        "FAIR_SHARE",
        "PRIORITY_SHARE",
    ];
    prop_oneof![
        2 => (
            prop::sample::select(&DIVIDES),
            1.0..2000.0f64,
            prop_oneof![Just(0.0), 0.0..1.0f64],
            prop_oneof![3 => Just(0.0), 1 => Just(1.0), 1 => Just(2.5)],
        )
            .prop_map(|(kind, capacity, surplus, granularity)| {
                sharing(kind, capacity, surplus, granularity)
            }),
        1 => (prop::sample::select(&ANY), 1.0..2000.0f64)
            .prop_map(|(kind, capacity)| document(kind, capacity)),
        1 => (prop::sample::select(&OF_GAUGES), 1.0..200.0f64)
            .prop_map(|(kind, capacity)| gauge(kind, capacity)),
    ]
}

/// Whether holders reject some requests.
fn is_suppressed(granted: &Grant) -> bool {
    let probability = granted.signal.admission_probability();
    probability.is_some_and(|probability| probability.get() < 1.0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn shown_share_is_what_constant_demands_reach(
        document in any_document(), wants in prop::collection::vec(0.0..500.0f64, 1..20)
    ) {
        let mut world = World::new(document);
        let mut has = vec![None; wants.len()];
        let mut suppressed = false;
        // Three refreshes, each reported back.
        for _ in 0..3 {
            for _ in 0..2 {
                for (client, wants) in wants.iter().enumerate() {
                    let granted = world.refresh(&client.to_string(), *wants, has[client]);
                    suppressed = is_suppressed(&granted);
                    has[client] = Some(granted.capacity.get());
                }
            }
            world.wait(5.0);
        }
        for (client, has) in has.iter().enumerate() {
            let shown = world.holder(&client.to_string());
            let (share, has) = (shown.share.get(), has.unwrap());
            prop_assert!((share - has).abs() <= 1e-6 * (1.0 + has), "{shown:?}");
            let content = has >= wants[client] * (1.0 - 1e-9);
            let expected = if suppressed && wants[client] > 0.0 { Some(HeldBackBy::Suppressed) } else { (!content).then_some(HeldBackBy::Share) };
            prop_assert_eq!(shown.held_back_by, expected, "{:?}", shown);
        }
    }

    /// After any history, the shown state predicts the response to the holder's next request.
    #[test]
    fn shown_reason_predicts_the_next_refresh(
        documents in prop::collection::vec(any_document(), 1..3),
        learns in prop::bool::weighted(0.2),
        happened in prop::collection::vec(
            (0u32..8, 0.0..300.0f64, prop_oneof![Just(0.0), 0.0..300.0f64], 0u32..10, any::<bool>()), 1..60
        ),
    ) {
        let predecessor = Predecessor::Until(Moment::ORIGIN.after_seconds(3600.0 + 21.0));
        let settings = Settings { predecessor: if learns { predecessor } else { Predecessor::None }, ..SETTINGS };
        let mut world = World::with(Arc::clone(&documents[0]), settings);
        let length = happened.len();
        for (at, (client, wants, outstanding, wait, is_heard)) in happened.into_iter().enumerate() {
            if at == length * 3 / 4 {
                world.ledger.reconfigure(Arc::clone(documents.last().unwrap()));
            }
            let client = client.to_string();
            // In learning mode outstanding amounts are not limited by an older lease.
            let outstanding = if learns { 0.0 } else { outstanding };
            let known = world.holders();
            let has = known.iter().find(|it| it.client_id == client).map(|it| it.has.get());
            // The last response may have been lost.
            refresh_with(&mut world, &client, wants, has.filter(|_| is_heard), outstanding);
            world.wait(f64::from(wait) / 4.0);
        }
        for shown in world.holders() {
            // The holders before have refreshed meanwhile.
            let shown = world.holder(&shown.client_id);
            let (wants, has) = (shown.wants.get(), shown.has.get());
            let granted = refresh_with(&mut world, &shown.client_id, wants, Some(has), shown.outstanding.get());
            let gets = granted.capacity.get();
            let agrees = match shown.held_back_by {
                None => granted.reason == Reason::Granted
                    || shown.share < shown.wants && granted.reason == Reason::Share
                    // The lease is not a multiple of the new granularity.
                    || steps_down(&granted, has) && granted.reason == Reason::Pending
                    // In learning mode excessive claims are scaled down.
                    || learns && granted.reason == Reason::Pending,
                Some(HeldBackBy::Share | HeldBackBy::HigherPriorities) => granted.reason == Reason::Share,
                Some(HeldBackBy::Others) => granted.reason == Reason::Pending && gets <= has * (1.0 + 1e-9),
                Some(HeldBackBy::NotRefreshed) => gets > has,
                Some(HeldBackBy::Learning) => {
                    granted.reason == Reason::Pending && gets <= has.max(shown.outstanding.get())
                }
                Some(HeldBackBy::Suppressed) => is_suppressed(&granted),
                Some(HeldBackBy::Balance) => granted.signal.balance().is_some_and(|left| left.get() <= 0.0),
                Some(HeldBackBy::Blocked | HeldBackBy::Bound | HeldBackBy::Parent) => false,
            };
            prop_assert!(agrees, "{shown:?} {granted:?}");
        }
    }
}

/// Whether a lease shrank only by rounding to whole steps.
fn steps_down(granted: &Grant, has: f64) -> bool {
    let template = granted.template.as_ref();
    let step = template.map_or(0.0, |template| template.granularity().get());
    let gets = granted.capacity.get();
    gets < has && has < gets + step
}

fn refresh_with(
    world: &mut World,
    client: &str,
    wants: f64,
    has: Option<f64>,
    outstanding: f64,
) -> Grant {
    let mut body = request(client, None, wants, has);
    body.resources[0].outstanding = Capacity::new(outstanding).unwrap();
    world.send(&body)
}

/// All holders refresh until nothing changes.
fn settle(world: &mut World, wants: [(&str, f64); 3]) {
    for _ in 0..4 {
        for (client, wants) in wants {
            let known = world
                .holders()
                .into_iter()
                .find(|it| it.client_id == client);
            world.refresh(client, wants, known.map(|it| it.has.get()));
        }
        world.wait(5.0);
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
fn met_demand_has_no_reason() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.refresh("a", 60.0, None);
    world.refresh("b", 0.0, None);
    check(&world, "a", None, "it has what it wants");
    check(&world, "b", None, "it wants nothing");
    let view = world.view().unwrap();
    assert_eq!((view.free, view.fill_level), (Some(40.0), None));
    // Another holder makes its share smaller.
    world.refresh("c", 60.0, None);
    check(
        &world,
        "a",
        None,
        "it has what it wants; its share is 50 from its next refresh on",
    );
}

#[test]
fn others_then_share_then_not_refreshed() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.refresh("a", 90.0, None);
    world.refresh("b", 90.0, None);
    let why = "its share is 50, of which 10 can be granted now: others still hold 90 of 100 until they refresh, \
               every 5 s, or their leases expire";
    check(&world, "b", Some(HeldBackBy::Others), why);
    let view = world.view().unwrap();
    assert_eq!((view.free, view.fill_level), (Some(0.0), Some(50.0)));
    assert_eq!(
        view.safe_capacity,
        SafeCapacity::AtMost(Capacity::new(50.0).unwrap())
    );

    world.wait(1.0);
    world.refresh("a", 90.0, Some(90.0));
    let why = "its share is 50: clients want 180 of 100, so each gets at most 50";
    check(&world, "a", Some(HeldBackBy::Share), why);
    // `a` frees capacity by reporting the smaller lease.
    world.refresh("a", 90.0, Some(50.0));
    let why = "its share, or what is free, has grown since its last decision: it gets 50 at its next refresh, due now";
    check(&world, "b", Some(HeldBackBy::NotRefreshed), why);
    assert_eq!(world.holder("b").refreshed_ago.unwrap().get(), 1.0);
    // It stops refreshing.
    world.wait(14.0);
    let why = "its share, or what is free, has grown since its last decision: it gets 50 at its next refresh; \
               its refresh is 14 s overdue: without one, its capacity is free in 6 s";
    check(&world, "b", Some(HeldBackBy::NotRefreshed), why);
}

#[test]
fn share_is_explained_per_algorithm() {
    let mut world = World::new(document("PROPORTIONAL_SHARE", 120.0));
    settle(&mut world, [("a", 1000.0), ("b", 50.0), ("c", 10.0)]);
    close(world.holder("b").share.get(), 40.309_278_350_515_46);
    let why = "its share is 40.309: clients want 1060 of 120, so each gets an equal part, and unused parts go to \
               those that want more";
    check(&world, "b", Some(HeldBackBy::Share), why);

    let mut world = World::new(document("STATIC", 120.0));
    world.refresh("a", 200.0, None);
    check(
        &world,
        "a",
        Some(HeldBackBy::Share),
        "each holder gets at most 120",
    );
    assert_eq!(world.view().unwrap().free, None);
    world.ledger.reconfigure(document("NO_ALGORITHM", 120.0));
    assert_eq!(world.holder("a").share.get(), 200.0);
}

#[test]
fn higher_priorities_are_named_as_the_reason() {
    let floor = |floor: f64| {
        let mut world = World::new(priority_share::with_floor(100.0, floor));
        for _ in 0..3 {
            for (priority, client, wants) in [(5, "a", 80.0), (0, "b", 30.0), (0, "c", 70.0)] {
                let mut known = world.holders().into_iter();
                let known = known.find(|it| it.client_id == client);
                world.refresh_at(priority, client, wants, known.map(|it| it.has.get()));
            }
            world.wait(5.0);
        }
        world
    };
    let world = floor(0.0);
    check(&world, "a", None, "it has what it wants");
    let why = "its share is 10, held back by higher priorities, which want 80 of 100: its priority gets at most 20, \
               and each of its clients at most 10";
    check(&world, "c", Some(HeldBackBy::HigherPriorities), why);
    let world = floor(0.5);
    let why = "its share is 50: clients of its priority want 80 and get at most 50 of 100, so each gets at most 50";
    check(&world, "a", Some(HeldBackBy::Share), why);
    assert_eq!(world.view().unwrap().fill_level, None);
}

#[test]
fn rounding_to_steps_is_explained() {
    let share = Some(HeldBackBy::Share);
    for kind in [
        "FAIR_SHARE",
        "PROPORTIONAL_SHARE",
        "PRIORITY_SHARE",
        "STATIC",
        "NO_ALGORITHM",
    ] {
        let mut world = World::new(gauge(kind, 10.0));
        let granted = world.refresh("a", 2.5, None);
        assert_eq!(granted.reason, Reason::Share, "{kind}");
        check(&world, "a", share, "its share is 2, rounded to whole steps");
    }
    // Of 2.5 each holder gets 2, and none waits for the rest.
    let mut world = World::new(gauge("STATIC", 2.5));
    let granted = world.refresh("a", 10.0, None);
    assert_eq!(
        (granted.capacity.get(), granted.reason),
        (2.0, Reason::Share)
    );
    let why = "each holder gets at most 2.5, rounded to whole steps";
    check(&world, "a", share, why);

    // One holder gets more than the level, and the smallest demand misses part of a step.
    let mut world = World::new(gauge("FAIR_SHARE", 10.0));
    settle(&mut world, [("a", 9.0), ("b", 9.0), ("c", 2.5)]);
    check(&world, "c", share, "its share is 2, rounded to whole steps");
    let gets = ["a", "b"].map(|client| world.holder(client).has.get());
    assert!(gets.contains(&3.0) || gets.contains(&4.0), "{gets:?}");
    let why = "clients want 20.5 of 10, so each gets at most 3.75, rounded to whole steps";
    for (client, gets) in ["a", "b"].into_iter().zip(gets) {
        check(
            &world,
            client,
            share,
            &format!("its share is {gets}: {why}"),
        );
    }
}

#[test]
fn due_time_is_that_of_the_last_response() {
    let every = |seconds: f64, capacity: f64| {
        parse(&format!(
            "resources: [{{identifier_glob: db, capacity: {capacity}, \
             algorithm: {{kind: FAIR_SHARE, lease_length: 120, refresh_interval: {seconds}}}}}]"
        ))
    };
    let mut world = World::new(every(60.0, 50.0));
    world.refresh("a", 80.0, None);
    world.ledger.reconfigure(every(5.0, 70.0));
    world.wait(20.0);
    let why = "its share, or what is free, has grown since its last decision: it gets 70 at its next refresh, \
               due within 40 s";
    check(&world, "a", Some(HeldBackBy::NotRefreshed), why);
    world.wait(46.0);
    let why = world.holder("a").why;
    assert!(why.contains("its refresh is 6 s overdue"), "{why}");

    // The reverse: the last response asked for an early refresh.
    world.refresh("a", 80.0, Some(50.0));
    world.ledger.reconfigure(every(60.0, 70.0));
    world.wait(5.0 + 61.0);
    let why = world.holder("a").why;
    assert!(why.contains("its refresh is 61 s overdue"), "{why}");
}

#[test]
fn early_refresh_moves_the_due_time() {
    let document = parse(
        "resources: [{identifier_glob: db, capacity: 50, minimum_refresh_interval: 4, \
         algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}}]",
    );
    let mut world = World::new(document);
    world.refresh("a", 20.0, None);
    world.wait(3.0);
    // There is no new decision, and its demand has grown.
    let restated = world.refresh("a", 40.0, Some(20.0));
    assert_eq!(
        (restated.capacity.get(), restated.refresh_interval.get()),
        (20.0, 5.0)
    );
    world.wait(1.0);
    let why = "its share, or what is free, has grown since its last decision: it gets 40 at its next refresh, \
               due within 4 s";
    check(&world, "a", Some(HeldBackBy::NotRefreshed), why);
}

#[test]
fn outstanding_counts_as_held_at_next_refresh() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.refresh("b", 50.0, None);
    refresh_with(&mut world, "a", 90.0, None, 0.0);
    world.ledger.reconfigure(document("FAIR_SHARE", 20.0));
    for has in [50.0, 10.0] {
        let granted = refresh_with(&mut world, "a", 90.0, Some(has), 40.0);
        assert_eq!(granted.capacity.get(), 10.0);
    }
    // `b` does not know of the cut and leaves 10 of 60, but `a` uses 40 itself.
    world.ledger.reconfigure(document("FAIR_SHARE", 60.0));
    let shown = world.holder("a");
    assert_eq!(
        (shown.share.get(), shown.has.get(), shown.booked),
        (30.0, 10.0, 40.0)
    );
    assert_eq!(shown.held_back_by, Some(HeldBackBy::NotRefreshed));
    let granted = refresh_with(&mut world, "a", 90.0, Some(10.0), 40.0);
    assert_eq!(granted.capacity.get(), 30.0);
}
#[test]
fn learning_and_zero_capacity_are_reasons() {
    let settings = Settings {
        predecessor: Predecessor::Until(Moment::ORIGIN.after_seconds(3600.0 + 21.0)),
        ..SETTINGS
    };
    let mut world = World::with(document("FAIR_SHARE", 100.0), settings);
    world.refresh("a", 50.0, Some(30.0));
    world.refresh("b", 50.0, None);
    world.wait(1.0);
    let why = "the server is in learning mode for 20 s: it keeps what it claims until it has sent `heard_epoch`";
    check(&world, "a", Some(HeldBackBy::Learning), why);
    let why = "the server is in learning mode for 20 s: a new holder gets nothing before it has sent `heard_epoch`";
    check(&world, "b", Some(HeldBackBy::Learning), why);
    let mut confirmed = request("b", None, 50.0, None);
    confirmed.heard_epoch = Some(settings.epoch);
    world.send(&confirmed);
    let why = "the server is in learning mode for 20 s: until then it gets only what other holders give up";
    check(&world, "b", Some(HeldBackBy::Learning), why);
    let view = world.view().unwrap();
    assert_eq!(view.learning_ends_in.map(Seconds::get), Some(20.0));
    assert_eq!(
        world.holder("b").share.get(),
        50.0,
        "from the known demands"
    );

    world.ledger.reconfigure(document("FAIR_SHARE", 0.0));
    check(&world, "b", Some(HeldBackBy::Blocked), "the capacity is 0");
    let settings = Settings {
        unmatched: UnmatchedPolicy::Refuse,
        ..SETTINGS
    };
    let mut world = World::with(parse("resources: []"), settings);
    world.refresh("a", 1.0, None);
    let why = "no template matches, and the server rejects unmatched resources";
    check(&world, "a", Some(HeldBackBy::Blocked), why);
}

#[test]
fn signal_limits_a_met_demand() {
    let mut world = World::new(document("SHARED_BUCKET", 4.0));
    for used in [0.0, 12.0] {
        let mut body = request("a", None, 4.0, None);
        body.resources[0].used = Some(Capacity::new(used).unwrap());
        world.send(&body);
    }
    let why = "the shared bucket is empty (balance -8): requests are rejected until it refills";
    check(&world, "a", Some(HeldBackBy::Balance), why);
    world.wait(3.0);
    check(&world, "a", None, "it has what it wants");

    let mut world = World::new(document("SUPPRESSION", 100.0));
    for _ in 0..30 {
        world.refresh("a", 400.0, None);
        world.wait(1.0);
    }
    let why = "demand exceeds 100: every holder admits requests with a probability of 0.25";
    check(&world, "a", Some(HeldBackBy::Suppressed), why);
    world.refresh("a", 100.0, None);
    let why = "demand exceeded 100 within the last 24 s: every holder admits requests with a \
               probability of 0.25";
    check(&world, "a", Some(HeldBackBy::Suppressed), why);
}

#[test]
fn new_document_is_shown_before_any_refresh() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.refresh("a", 80.0, None);
    world.ledger.reconfigure(document("FAIR_SHARE", 12.0));
    let shown = world.holder("a");
    assert_eq!((shown.share.get(), shown.has.get()), (12.0, 80.0));
    assert_eq!(world.view().unwrap().free, Some(0.0));
    world.refresh("a", 80.0, Some(80.0));
    let why = "its share is 12: clients want 80 of 12, so each gets at most 12";
    check(&world, "a", Some(HeldBackBy::Share), why);
    world.ledger.reconfigure(document("FAIR_SHARE", 40.0));
    let why = "its share, or what is free, has grown since its last decision: it gets 40 at its next refresh, \
               due within 5 s";
    check(&world, "a", Some(HeldBackBy::NotRefreshed), why);
}

#[test]
fn lease_beyond_the_bound_is_explained() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    let granted = world.refresh("a", 80.0, None);
    let of = |bound| {
        let page = world
            .ledger
            .holders(&db(), &PageQuery::unfiltered(1), None, world.now);
        let page = page.unwrap();
        let holding = page.holders.into_iter().next().unwrap();
        holding.capped_at(bound).into_view(&page.resource, 0)
    };
    assert_eq!(of(granted.booked_until).held_back_by, None);
    let before = Moment::from_nanos(granted.booked_until.as_nanos() - 1);
    let shown = of(before);
    assert_eq!(shown.held_back_by, Some(HeldBackBy::Bound));
    assert!(
        shown.why.contains("not yet on the server's disk"),
        "{}",
        shown.why
    );
}
