//! Exact shares and sums.

use proptest::prelude::*;

use super::*;

/// Max-min fair shares by definition: raises one level until the capacity is used up.
fn level_by_bisection(capacity: f64, wants: &[f64]) -> Vec<f64> {
    let (mut low, mut high) = (0.0, capacity);
    for _ in 0..200 {
        let level = (low + high) / 2.0;
        let sum: f64 = wants.iter().map(|wants| wants.min(level)).sum();
        if sum <= capacity {
            low = level;
        } else {
            high = level;
        }
    }
    wants.iter().map(|wants| wants.min(low)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn constant_demands_converge_to_exact_fair_shares(
        wants in prop::collection::vec(0.0..500.0f64, 1..30), capacity in 1.0..2000.0f64
    ) {
        let mut world = World::new(document("FAIR_SHARE", capacity));
        let mut has = vec![None; wants.len()];
        // Three refreshes, each reported back.
        for _ in 0..3 {
            for _ in 0..2 {
                for (client, wants) in wants.iter().enumerate() {
                    has[client] = Some(world.refresh(&client.to_string(), *wants, has[client]).capacity.get());
                }
            }
            world.wait(5.0);
        }
        for (got, expected) in has.iter().zip(level_by_bisection(capacity, &wants)) {
            prop_assert!((got.unwrap() - expected).abs() <= 1e-6 * (1.0 + expected), "{got:?} is not {expected}");
        }
    }
}

#[test]
fn million_operations_leave_exact_sums() {
    let mut world = World::new(document("PROPORTIONAL_SHARE", 1e6));
    let mut random = fastrand::Rng::with_seed(7);
    let mut has = [None; 200];
    for _ in 0..1_000_000 {
        let client = random.usize(..200);
        let name = client.to_string();
        match random.u8(..10) {
            0 => {
                world.release(&name, None);
                has[client] = None;
            }
            1 => world.wait(random.f64() * 0.1),
            _ => {
                let wants = random.f64() * 10f64.powi(random.i32(-10..15));
                has[client] = Some(world.refresh(&name, wants, has[client]).capacity.get());
            }
        }
    }
    assert!(world.view().unwrap().sum_has > 0.0);
    // A holder of nothing keeps the resource live, so that its sums can be read.
    world.refresh("watcher", 0.0, None);
    for client in 0..200 {
        world.release(&client.to_string(), None);
    }
    let view = world.view().unwrap();
    assert_eq!((view.sum_has, view.sum_wants, view.clients), (0.0, 0.0, 1));
    world.release("watcher", None);
    assert_eq!(world.ledger.stats().leases, 0);
}
