//! Pages of resources and holders.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use doorman_openapi::{GlobSet, SortBy};
use proptest::prelude::*;

use super::*;
use crate::ledger::{
    ClientCursor, ClientNames, HolderCursor, HolderRanking, HolderStatus, ListError, Survey,
};

impl World {
    fn page(
        &self,
        from: Option<HolderCursor>,
        limit: usize,
    ) -> (Vec<String>, Option<HolderCursor>) {
        let page = self
            .ledger
            .holders(&db(), &PageQuery::unfiltered(limit), from, self.now)
            .unwrap();
        (names(page.holders), page.next)
    }
}

fn names(holders: Vec<HolderStatus>) -> Vec<String> {
    holders.into_iter().map(|it| it.view.client_id).collect()
}

#[test]
fn holder_page_scans_a_bounded_number_of_slots() {
    const HOLDERS: usize = 20_000;
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    let names = || (0..HOLDERS).map(|client| format!("c{client}"));
    for client in names() {
        world.refresh(&client, 1.0, None);
    }
    // Some released entries are retained for a while.
    for (at, client) in names().enumerate().skip(1).take(HOLDERS - 2) {
        world.release(&client, (at % 2 == 0).then_some(1));
    }
    let (mut pages, mut from, mut found) = (0, None, Vec::new());
    loop {
        let (page, next) = world.page(from, 1000);
        let slot = |cursor: Option<HolderCursor>, none| cursor.map_or(none, |it| it.slot as usize);
        let scanned = slot(next, HOLDERS) - slot(from, 0);
        assert!((1..2000).contains(&scanned), "{scanned}");
        found.extend(page);
        (pages, from) = (pages + 1, next);
        if from.is_none() {
            break;
        }
    }
    assert_eq!(found, ["c0".to_owned(), format!("c{}", HOLDERS - 1)]);
    assert!(pages < 30, "{pages}");
}

#[test]
fn ranking_takes_bounded_steps() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    for client in 0..5_000 {
        world.refresh(&format!("c{client}"), f64::from(client % 100), None);
    }
    let query = PageQuery::unfiltered(3);
    let mut ranking = HolderRanking::new(SortBy::Wants, 3);
    let mut steps = 1;
    while world
        .ledger
        .rank_holders(&db(), &mut ranking, &query, world.now)
        .unwrap()
    {
        steps += 1;
    }
    assert_eq!((steps, ranking.total()), (5, 5_000));
    let largest = ranking.into_largest();
    let found = world.ledger.holders_at(&db(), &largest, &query, world.now);
    assert_eq!(names(found.unwrap().holders), ["c99", "c199", "c299"]);
}

proptest! {
    /// Between two pages, holders join, release, return, or let their leases expire.
    #[test]
    fn staying_holder_is_listed_exactly_once(
        stay in prop::collection::btree_set(0u32..40, 1..20),
        before in prop::collection::vec(0u32..40, 0..60),
        between in prop::collection::vec((0u32..40, any::<bool>(), any::<bool>()), 0..200),
        limit in 1usize..7,
    ) {
        let mut world = World::new(document("FAIR_SHARE", 100.0));
        let name = |number: u32| format!("c{number}");
        for number in before.iter().chain(&stay) {
            world.refresh(&name(*number), 1.0, None);
        }
        let (mut met, mut from) = (Vec::new(), None);
        let mut changes = between.into_iter();
        loop {
            let (page, next) = world.page(from, limit);
            prop_assert!(page.len() <= limit);
            met.extend(page);
            from = next;
            if from.is_none() {
                break;
            }
            for (number, comes, with_seq) in changes.by_ref().take(5) {
                if comes {
                    world.refresh(&name(number), 1.0, None);
                } else if !stay.contains(&number) {
                    world.release(&name(number), with_seq.then_some(1));
                }
            }
            for number in &stay {
                world.refresh(&name(*number), 1.0, Some(1.0));
            }
            world.wait(7.0);
        }
        for number in stay {
            prop_assert_eq!(met.iter().filter(|it| **it == name(number)).count(), 1, "{}", number);
        }
    }
}

#[test]
fn cursor_of_a_dropped_resource_is_stale() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    for client in ["a", "b", "c"] {
        world.refresh(client, 1.0, None);
    }
    let (_, next) = world.page(None, 2);
    let again = |world: &World| {
        world
            .ledger
            .holders(&db(), &PageQuery::unfiltered(2), next, world.now)
            .map(|page| names(page.holders))
    };
    assert_eq!(again(&world), Ok(vec!["c".to_owned()]));
    world
        .ledger
        .reconfigure(document("PROPORTIONAL_SHARE", 50.0));
    assert_eq!(again(&world), Ok(vec!["c".to_owned()]));
    for client in ["a", "b", "c"] {
        world.release(client, None);
    }
    assert_eq!(again(&world), Err(ListError::NotLive));
    for client in ["c", "b", "a"] {
        world.refresh(client, 1.0, None);
    }
    assert_eq!(again(&world), Err(ListError::StaleCursor));
}

#[test]
fn holders_are_found_by_name_and_glob() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    for client in ["a-1", "b-1", "a-2"] {
        world.refresh(client, 1.0, None);
    }
    let named = |name: &str| {
        let name = ClientId::new(name).unwrap();
        names(
            world
                .ledger
                .holders_named(&db(), &name, world.now)
                .unwrap()
                .holders,
        )
    };
    assert_eq!(named("b-1"), ["b-1"]);
    assert_eq!(named("b-2"), Vec::<String>::new());
    let of_a = GlobSet::new(["a-*"]).unwrap();
    let query = PageQuery {
        allowed: Some(&of_a),
        ..PageQuery::unfiltered(10)
    };
    let page = world
        .ledger
        .holders(&db(), &query, None, world.now)
        .unwrap();
    assert_eq!(names(page.holders), ["a-1", "a-2"]);
}

#[test]
fn hidden_resources_take_no_page_space() {
    let mut world = World::new(parse("resources: []"));
    for number in 0..3000 {
        let mut body = request("a", None, 1.0, None);
        let name = format!("{}/{number:04}", if number % 1000 == 7 { "a" } else { "b" });
        body.resources[0].resource_id = ResourceId::new(name).unwrap();
        world.send(&body);
    }
    // Globs without a literal prefix may match anything.
    let own = ["[a]/*".to_owned(), "[b]/2999".to_owned()];
    // With more globs, fewer names are scanned per page.
    let many = (0..62).map(|number| format!("c/{number}"));
    // Literal prefixes skip other names.
    let known = ["a/*".to_owned(), "b/2999".to_owned()];
    for (globs, expected) in [
        (Vec::from(own.clone()), 6..10),
        (own.into_iter().chain(many).collect(), 180..200),
        (known.into(), 2..4),
    ] {
        let globs = GlobSet::new(globs).unwrap();
        let query = PageQuery {
            allowed: Some(&globs),
            ..PageQuery::unfiltered(2)
        };
        let (mut found, mut after, mut parts) = (BTreeSet::new(), None, 0);
        loop {
            let part = world.ledger.resources(&query, after.as_ref(), world.now);
            assert!(part.resources.len() <= 2);
            found.extend(
                part.resources
                    .into_iter()
                    .map(|it| it.resource_id.to_string()),
            );
            (after, parts) = (part.next, parts + 1);
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found.len(), 4);
        assert!(expected.contains(&parts), "{parts}");
    }
}

#[test]
fn survey_ranks_by_demand_per_second() {
    let mut world = World::new(parse(
        "resources: [{identifier_glob: db, capacity: 6000, per: 60, algorithm: {kind: STATIC}},
        {identifier_glob: '*', capacity: 6000, algorithm: {kind: STATIC}}]",
    ));
    world.refresh("a", 600.0, None);
    let mut body = request("a", None, 100.0, None);
    body.resources[0].resource_id = ResourceId::new("x").unwrap();
    world.send(&body);
    let mut survey = Survey::new(1);
    while world.ledger.survey(&mut survey, 100, world.now) {}
    let top = world.ledger.most_wanted(&survey, world.now);
    let top: Vec<_> = top.iter().map(|it| it.resource_id.as_str()).collect();
    assert_eq!(top, ["x"]);
}

#[test]
fn leases_of_a_client_are_read_in_bounded_parts() {
    const RELEASED: usize = 5_000;
    let templates =
        (0..3_000).map(|number| format!("{{identifier_glob: t{number}, capacity: 1}}, "));
    let mut world = World::new(parse(&format!(
        "resources: [{}{{identifier_glob: '*', capacity: 9, algorithm: {{kind: STATIC}}}}]",
        templates.collect::<String>()
    )));
    let id = |number: usize| ResourceId::new(format!("r{number}")).unwrap();
    let mut body = request("a", Some(1), 1.0, None);
    let resource = body.resources.remove(0);
    body.resources = (0..RELEASED + 100)
        .map(|number| ResourceRequest {
            resource_id: id(number),
            ..resource.clone()
        })
        .collect();
    world.send(&body);
    let release = ReleaseRequest {
        client_id: body.client_id.clone(),
        run: None,
        seq: Some(Seq::new(2).unwrap()),
        heard_epoch: None,
        resource_ids: Some((0..RELEASED).map(id).collect()),
        tokens: BTreeMap::new(),
    };
    world.ledger.release(&release.clone().into(), world.now);

    let names = ClientNames::One(&body.client_id);
    let (mut from, mut found) = (ClientCursor::default(), Vec::new());
    loop {
        let query = PageQuery::unfiltered(1000);
        let ledger = &world.ledger;
        let part = ledger.leases_of_clients(names, &query, from, world.now);
        // A third of a part with few templates.
        assert!(part.leases.len() <= 20, "{}", part.leases.len());
        found.extend(part.leases.into_iter().map(|(it, _)| it.resource_id));
        let Some(next) = part.next else { break };
        assert!(next.slot - from.slot < 2000, "{next:?}");
        from = next;
    }
    assert_eq!(
        found,
        (RELEASED..RELEASED + 100).map(id).collect::<Vec<_>>()
    );
}

#[test]
fn leases_of_clients_with_a_prefix_are_read_in_bounded_parts() {
    const OTHERS: usize = 5_000;
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.refresh("shop 0", 1.0, None);
    for other in 0..OTHERS {
        world.refresh(&format!("other {other}"), 1.0, None);
    }
    for number in 1..100 {
        world.refresh(&format!("shop {number}"), 1.0, None);
    }
    let globs = GlobSet::new(["shop 1*", "shop 2*", "x*"]).unwrap();
    for (allowed, limit, expected) in [(None, 7, 100), (Some(&globs), 1000, 22)] {
        let names = ClientNames::Prefix("shop ", allowed);
        let (mut from, mut found, mut parts) = (ClientCursor::default(), Vec::new(), 0);
        loop {
            let query = PageQuery::unfiltered(limit);
            let part = (world.ledger).leases_of_clients(names, &query, from, world.now);
            assert!(part.leases.len() <= limit);
            found.extend(part.leases.into_iter().map(|(_, it)| it.view.client_id));
            parts += 1;
            let Some(next) = part.next else { break };
            assert!(next.holder - from.holder < 1_100, "{next:?}");
            from = next;
        }
        assert!(parts < 30, "{parts}");
        let names: BTreeSet<_> = found.iter().collect();
        assert_eq!((found.len(), names.len()), (expected, expected));
        assert!(found.iter().all(|it| it.starts_with("shop ")));
    }
}

#[test]
fn reported_values_are_shown() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    let mut body = request("a", None, 10.0, None);
    body.resources[0].used = Some(Capacity::new(7.0).unwrap());
    world.send(&body);
    let mut body = request("a", None, 10.0, Some(10.0));
    body.resources[0].outstanding = Capacity::new(3.0).unwrap();
    world.send(&body);
    let holders = world.holders();
    let [holder] = &holders[..] else {
        panic!("{holders:?}")
    };
    assert_eq!(holder.used.map(Capacity::get), Some(7.0));
    assert_eq!(holder.outstanding.get(), 3.0);
    assert_eq!((holder.expires_in.get(), holder.expiry_time), (21.0, 1021));
}
