//! Outcomes that holders report.

use doorman_openapi::{Outcomes, RequestCount, SortBy};

use super::{parents::Tree, *};
use crate::ledger::{HolderRanking, ResourceRecord};

/// Totals of a holder: refused, ok, overloaded, failed.
fn totals(refused: f64, ok: u64, overloaded: u64, failed: u64) -> Outcomes {
    Outcomes {
        refused: Capacity::new(refused).unwrap(),
        ok: RequestCount::new(ok).unwrap(),
        overloaded: RequestCount::new(overloaded).unwrap(),
        failed: RequestCount::new(failed).unwrap(),
        ok_seconds: None,
    }
}

fn with(client: &str, seq: Option<u64>, outcomes: Outcomes) -> CapacityRequest {
    let mut request = request(client, seq, 10.0, None);
    request.resources[0].outcomes = Some(Box::new(outcomes));
    request
}

fn world() -> World {
    World::new(document("FAIR_SHARE", 100.0))
}

/// The totals of `db`.
fn total(world: &World) -> Outcomes {
    world.view().unwrap().outcomes.unwrap().total
}

#[test]
fn new_outcomes_of_all_holders_are_added() {
    let mut world = world();
    world.send(&with("a", Some(1), totals(0.0, 0, 0, 0)));
    world.send(&with("b", Some(1), totals(7.0, 70, 7, 7)));
    world.refresh("silent", 10.0, None);
    assert_eq!(
        total(&world),
        totals(0.0, 0, 0, 0),
        "b may be an old process"
    );
    world.wait(5.0);
    world.send(&with("a", Some(2), totals(2.5, 30, 10, 0)));
    world.send(&with("b", Some(2), totals(8.0, 71, 8, 8)));
    assert_eq!(total(&world), totals(3.5, 31, 11, 1));
    let holder = world.holder("a");
    assert_eq!(holder.outcomes, Some(totals(2.5, 30, 10, 0)));
    close(
        holder.overloaded_share.unwrap().get(),
        f64::from(u16::MAX / 4 + 1) / f64::from(u16::MAX),
    );
    let silent = world.holder("silent");
    assert_eq!((silent.outcomes, silent.overloaded_share), (None, None));
    world.release("b", None);
    world.wait(60.0);
    assert!(world.view().is_none(), "all leases have ended");
}

#[test]
fn resource_without_reports_has_no_outcomes() {
    let mut world = world();
    world.refresh("silent", 10.0, None);
    assert_eq!(world.view().unwrap().outcomes, None);
}

#[test]
fn reports_are_counted_once_and_in_order() {
    let mut world = world();
    for (seq, ok) in [(1, 0), (3, 30), (3, 30), (2, 20), (4, 40), (5, 40)] {
        world.send(&with("a", Some(seq), totals(0.0, ok, 0, 0)));
    }
    assert_eq!(total(&world).ok.get(), 40);
    // It counts anew.
    for (seq, ok) in [(6, 15), (7, 16)] {
        world.send(&with("a", Some(seq), totals(0.0, ok, 0, 0)));
    }
    assert_eq!(total(&world).ok.get(), 41);
    // Without a number nobody knows which one is newer.
    world.send(&with("a", None, totals(0.0, 100, 0, 0)));
    assert_eq!(total(&world).ok.get(), 41);
}

#[test]
fn refusals_are_shown_since_their_run_began() {
    let mut world = world();
    let refused_for = |world: &mut World, seq, refused| {
        world.send(&with("a", Some(seq), totals(refused, 0, 0, 0)));
        world.wait(5.0);
        world.holder("a").refused_for.map(|it| it.get().round())
    };
    assert_eq!(refused_for(&mut world, 1, 9.0), None, "before it reported");
    assert_eq!(refused_for(&mut world, 2, 10.0), Some(5.0));
    assert_eq!(refused_for(&mut world, 3, 11.0), Some(10.0));
    assert_eq!(refused_for(&mut world, 4, 11.0), None);
    assert_eq!(refused_for(&mut world, 5, 12.0), Some(5.0));
}

#[test]
fn rates_are_a_mean_over_ten_seconds() {
    let mut world = world();
    for second in 0..60 {
        world.send(&with(
            "a",
            Some(second),
            totals(second as f64, 20 * second, 0, 0),
        ));
        world.wait(1.0);
    }
    let rate = world.view().unwrap().outcomes.unwrap().per_second;
    assert!(
        (rate.ok - 20.0).abs() < 1.5 && (rate.refused - 1.0).abs() < 0.1,
        "{rate:?}"
    );
    world.wait(15.0);
    let rate = world.view().unwrap().outcomes.unwrap().per_second;
    assert!(rate.ok < 5.0, "{rate:?}");
}

#[test]
fn holders_are_sorted_by_outcomes() {
    let mut world = world();
    for (client, refused, overloaded) in [("a", 1.0, 30), ("b", 3.0, 10), ("c", 2.0, 20)] {
        world.send(&with(client, Some(1), totals(refused, 0, overloaded, 0)));
    }
    world.refresh("silent", 10.0, None);
    for (sort, expected) in [(SortBy::Refused, "b"), (SortBy::Overloaded, "a")] {
        let query = PageQuery::unfiltered(10);
        let mut ranking = HolderRanking::new(sort, 1);
        while world
            .ledger
            .rank_holders(&db(), &mut ranking, &query, world.now)
            .unwrap()
        {}
        let largest = ranking.into_largest();
        let page = world
            .ledger
            .holders_at(&db(), &largest, &query, world.now)
            .unwrap();
        assert_eq!(page.holders[0].view.client_id, expected);
    }
}

#[test]
fn successor_continues_the_totals() {
    let mut world = world();
    for (seq, ok) in [(1, 0), (2, 30)] {
        world.send(&with("a", Some(seq), totals(1.0, ok, 2, 3)));
    }
    let records: Vec<_> = world.ledger.snapshot(world.now).collect();
    let text = serde_json::to_string(&records).unwrap();
    let mut next = World::new(document("FAIR_SHARE", 100.0));
    for record in serde_json::from_str::<Vec<ResourceRecord>>(&text).unwrap() {
        next.ledger.restore(&record, next.now).unwrap();
    }
    assert_eq!(next.holder("a").outcomes, Some(totals(1.0, 30, 2, 3)));
    next.send(&with("a", Some(3), totals(1.0, 50, 2, 3)));
    assert_eq!(total(&next).ok.get(), 50);
}

#[test]
fn node_reports_what_its_holders_do() {
    let mut tree = Tree::new(document("FAIR_SHARE", 100.0), &[("n", None)]);
    for (seq, ok) in [(1, 0), (2, 30)] {
        for client in ["a", "b"] {
            tree.send(0, &with(client, Some(seq), totals(0.0, ok, 2 * seq, 0)));
        }
        tree.ask(0);
    }
    let query = PageQuery::unfiltered(10);
    let holders = tree
        .root
        .holders(&db(), &query, None, tree.now)
        .unwrap()
        .holders;
    assert_eq!(holders[0].view.outcomes, Some(totals(0.0, 60, 4, 0)));
    // A successor of the node's master begins anew, which takes nothing from the totals.
    let total = |tree: &Tree| {
        tree.root
            .resource(&db(), tree.now)
            .unwrap()
            .outcomes
            .unwrap()
            .total
    };
    assert_eq!(total(&tree), totals(0.0, 60, 4, 0));
}

#[test]
fn use_is_noted_when_a_holder_ends() {
    let mut world = world();
    world.ledger = world.ledger.with_usage(true);
    for (client, used) in [("released", 7.0), ("expired", 8.0)] {
        for seq in [1, 2] {
            let mut request = with(client, Some(seq), totals(0.0, 10 * seq, 0, 0));
            request.resources[0].used = Capacity::new(used * seq as f64).ok();
            world.send(&request);
        }
    }
    assert!(world.ledger.take_events().usage.is_empty());
    world.wait(4.0);
    world.release("released", Some(3));
    world.wait(60.0);
    let usage = world.ledger.take_events().usage;
    let usage = usage.iter().map(|(id, usage)| {
        assert_eq!(*id, db());
        let used = usage.used.map(Capacity::get);
        let ok = usage.outcomes.map(|it| it.ok.get());
        (usage.holder.as_str(), used, ok, usage.known_for.round())
    });
    let expected = [
        ("released", Some(14.0), Some(20), 4.0),
        ("expired", Some(16.0), Some(20), 64.0),
    ];
    assert!(usage.eq(expected));
}

#[test]
fn outcomes_are_counted_by_template() {
    let mut world = world();
    let request = |seq, id: &str, ok| {
        let mut request = with("a", Some(seq), totals(0.0, ok, 0, 0));
        request.resources[0].resource_id = ResourceId::new(id).unwrap();
        request
    };
    for (seq, ok) in [(1, 0), (2, 30)] {
        world.send(&request(seq, "db", ok));
        world.send(&request(seq, "without-template", ok));
    }
    let count = |world: &World| {
        let all = world.ledger.template_counts();
        all.map(|(glob, sum)| (glob.to_owned(), sum.outcomes.ok))
            .collect::<Vec<_>>()
    };
    assert_eq!(count(&world), [("db".to_owned(), 30.0)]);
    world.ledger.reconfigure(parse("resources: []"));
    assert_eq!(count(&world), []);
}

#[test]
fn counts_beyond_what_is_stored_are_counted_once() {
    let mut world = world();
    for seq in 1..9 {
        let most = (1 << 53) - 1;
        world.send(&with("a", Some(seq), totals(0.0, most, 0, 0)));
    }
    assert_eq!(total(&world).ok.get(), 0);
    // No true report has so many new ones.
    for (seq, ok) in [(1, 0), (2, 1 << 40), (3, (1 << 40) + 5)] {
        world.send(&with("b", Some(seq), totals(0.0, ok, 0, 0)));
    }
    assert_eq!(total(&world).ok.get(), 5);
}
