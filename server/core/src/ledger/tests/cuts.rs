//! Lowered capacities.

use super::*;

#[test]
fn cut_shrinks_leases_and_never_raises_the_sum() {
    let mut world = World::new(document("FAIR_SHARE", 500.0));
    let names: Vec<String> = (0..10).map(|client| client.to_string()).collect();
    let mut has = vec![None; 10];
    for (name, has) in names.iter().zip(&mut has) {
        *has = Some(world.refresh(name, 50.0, None).capacity.get());
    }
    world.ledger.reconfigure(document("FAIR_SHARE", 50.0));
    assert_eq!(world.view().unwrap().sum_has, 500.0);
    let mut sum = 500.0;
    for _ in 0..2 {
        for (name, has) in names.iter().zip(&mut has) {
            let granted = world.refresh(name, 50.0, *has).capacity.get();
            assert_eq!(granted, 5.0);
            *has = Some(granted);
            world.refresh(name, 50.0, *has);
            let now = world.view().unwrap().sum_has;
            assert!(now <= sum, "{now} after {sum}");
            sum = now;
        }
    }
    close(sum, 50.0);
}

#[test]
fn new_holder_waits_until_the_cut_is_reached() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.refresh("a", 100.0, None);
    world.ledger.reconfigure(document("FAIR_SHARE", 10.0));
    assert_eq!(world.refresh("b", 10.0, None).capacity.get(), 0.0);
    assert_eq!(world.refresh("a", 100.0, Some(100.0)).capacity.get(), 5.0);
    world.refresh("a", 100.0, Some(5.0));
    assert_eq!(world.refresh("b", 10.0, None).capacity.get(), 5.0);
}

#[test]
fn changed_algorithm_or_template_loses_no_lease() {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    world.refresh("a", 60.0, None);
    world.ledger.reconfigure(document("STATIC", 100.0));
    assert_eq!(world.refresh("a", 60.0, Some(60.0)).capacity.get(), 60.0);
    world.ledger.reconfigure(parse("resources: []"));
    assert_eq!(world.refresh("a", 60.0, Some(60.0)).capacity.get(), 60.0);
    world
        .ledger
        .reconfigure(document("PROPORTIONAL_SHARE", 100.0));
    assert_eq!(world.refresh("a", 60.0, Some(60.0)).capacity.get(), 60.0);
    assert_eq!(world.refresh("b", 60.0, None).capacity.get(), 40.0);
}

#[test]
fn surplus_above_a_lowered_capacity_is_given_up() {
    let with = |capacity: f64| {
        parse(&format!(
            "resources: [{{identifier_glob: db, capacity: {capacity}, algorithm: \
             {{kind: FAIR_SHARE, parameters: [{{name: surplus, value: '1'}}]}}}}]"
        ))
    };
    let mut world = World::new(with(100.0));
    world.poll("a", 0);
    assert_eq!(world.refresh("a", 20.0, None).capacity.get(), 100.0);
    world.ledger.reconfigure(with(85.0));
    assert_eq!(world.refresh("a", 20.0, Some(100.0)).capacity.get(), 85.0);
}

#[test]
fn polling_holder_follows_small_changes_of_an_undivided_capacity() {
    for kind in ["SHARED_BUCKET", "SUPPRESSION"] {
        let mut world = World::new(document(kind, 100.0));
        world.poll("a", 0);
        assert_eq!(world.refresh("a", 10.0, None).capacity.get(), 100.0);
        for (capacity, before) in [(90.0, 100.0), (95.0, 90.0)] {
            world.ledger.reconfigure(document(kind, capacity));
            let grant = world.refresh("a", 10.0, Some(before));
            assert_eq!(grant.capacity.get(), capacity, "{kind}");
        }
    }
}
