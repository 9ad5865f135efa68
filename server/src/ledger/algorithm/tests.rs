use proptest::prelude::*;

use super::{super::demands::Demand, *};

fn shares(kind: AlgorithmKind, capacity: f64, demands: &[Demand]) -> Vec<f64> {
    shares_by(
        ShareRule {
            kind,
            capacity,
            surplus: 0.0,
            surplus_without_polls: 0.0,
            granularity: 0.0,
        },
        demands,
    )
}

fn shares_by(rule: ShareRule, demands: &[Demand]) -> Vec<f64> {
    let mut tree = DemandTree::default();
    let placed: Vec<PlacedDemand> = demands.iter().map(|demand| tree.insert(*demand)).collect();
    placed
        .into_iter()
        .map(|placed| rule.share(&tree, std::iter::once(placed), false))
        .collect()
}

fn single(wants: &[f64]) -> Vec<Demand> {
    wants
        .iter()
        .map(|wants| Demand {
            wants: *wants,
            weight: 1.0,
        })
        .collect()
}

#[track_caller]
fn check(kind: AlgorithmKind, capacity: f64, wants: &[f64], expected: &[f64]) {
    let got = shares(kind, capacity, &single(wants));
    for (got, expected) in got.iter().zip(expected) {
        assert!(
            (got - expected).abs() < 1e-8,
            "{kind:?} {wants:?}: {got} is not {expected}"
        );
    }
}

#[test]
fn shares_match_the_doorman_tables() {
    use AlgorithmKind::{FairShare, NoAlgorithm, ProportionalShare, Static};
    check(
        ProportionalShare,
        120.0,
        &[1000.0, 50.0, 10.0],
        &[69.690_721_65, 40.309_278_351, 10.0],
    );
    check(FairShare, 120.0, &[1000.0, 50.0, 10.0], &[60.0, 50.0, 10.0]);
    check(Static, 120.0, &[50.0, 200.0, 300.0], &[50.0, 120.0, 120.0]);
    check(
        NoAlgorithm,
        120.0,
        &[1000.0, 50.0, 10.0],
        &[1000.0, 50.0, 10.0],
    );
}

#[test]
fn demands_that_fit_are_met() {
    for kind in [AlgorithmKind::FairShare, AlgorithmKind::ProportionalShare] {
        check(kind, 120.0, &[60.0, 50.0, 10.0], &[60.0, 50.0, 10.0]);
        check(kind, 120.0, &[0.0, 0.0], &[0.0, 0.0]);
        check(kind, 0.0, &[5.0, 0.0], &[0.0, 0.0]);
    }
}

/// The sum over the tree and the sum in filling order may differ by rounding.
#[test]
fn excess_within_rounding_is_harmless() {
    let mut met = 0;
    for count in 1..400u32 {
        let mut tree = DemandTree::default();
        let demand = |number: u32| Demand {
            wants: 0.1 + f64::from(number) * 0.01,
            weight: 1.0,
        };
        let placed: Vec<_> = (0..count)
            .map(|number| tree.insert(demand(number)))
            .collect();
        let rule = ShareRule {
            kind: AlgorithmKind::FairShare,
            capacity: tree.total().wants.next_down(),
            surplus: 0.0,
            surplus_without_polls: 0.0,
            granularity: 1.0,
        };
        met += u32::from(tree.fill_level(rule.capacity).is_infinite());
        let level = rule.fill_level(&tree);
        assert!(level.is_none_or(f64::is_finite), "{count}: {level:?}");
        for placed in placed {
            let share = rule.share(&tree, std::iter::once(placed), false);
            let wants = placed.demand().wants;
            assert!((share - wants).abs() < 1.0 + 1e-6, "{count}: {share}");
        }
    }
    assert!(met > 0, "the sums never differ");
}

/// The textbook procedure: meets demands below an equal part of the rest, then starts again.
fn fill_round_by_round(capacity: f64, demands: &[Demand]) -> Vec<f64> {
    let mut shares = vec![None; demands.len()];
    loop {
        let open: Vec<usize> = (0..demands.len())
            .filter(|at| shares[*at].is_none())
            .collect();
        let left = capacity - shares.iter().flatten().sum::<f64>();
        let weight: f64 = open.iter().map(|at| demands[*at].weight).sum();
        let content: Vec<usize> = open
            .iter()
            .copied()
            .filter(|at| demands[*at].wants <= left / weight * demands[*at].weight)
            .collect();
        if content.is_empty() {
            for at in open {
                shares[at] = Some(left / weight * demands[at].weight);
            }
            return shares.into_iter().flatten().collect();
        }
        for at in content {
            shares[at] = Some(demands[at].wants);
        }
    }
}

/// The definition of PROPORTIONAL_SHARE, by scanning all demands.
fn proportional_by_definition(capacity: f64, demands: &[Demand]) -> Vec<f64> {
    let weight: f64 = demands.iter().map(|demand| demand.weight).sum();
    if demands.iter().map(|demand| demand.wants).sum::<f64>() <= capacity {
        return demands.iter().map(|demand| demand.wants).collect();
    }
    let equal = |demand: &Demand| capacity * demand.weight / weight;
    let left: f64 = demands
        .iter()
        .map(|demand| (equal(demand) - demand.wants).max(0.0))
        .sum();
    let need: f64 = demands
        .iter()
        .map(|demand| (demand.wants - equal(demand)).max(0.0))
        .sum();
    demands
        .iter()
        .map(|demand| {
            let beyond = demand.wants - equal(demand);
            if beyond <= 0.0 {
                demand.wants
            } else {
                equal(demand) + left * beyond / need
            }
        })
        .collect()
}

fn demands() -> impl Strategy<Value = Vec<Demand>> {
    let wants = prop_oneof![
        Just(0.0),
        (0u32..10).prop_map(f64::from),
        0.0..1000.0f64,
        0.0..1e12f64
    ];
    let demand = (wants, 1u32..50).prop_map(|(wants, weight)| Demand {
        wants,
        weight: f64::from(weight),
    });
    prop::collection::vec(demand, 1..40)
}

proptest! {
    #[test]
    fn fair_share_equals_iterative_filling(
        demands in demands(), capacity in prop_oneof![Just(0.0), 0.0..5000.0f64, 0.0..1e13f64]
    ) {
        let got = shares(AlgorithmKind::FairShare, capacity, &demands);
        for (got, expected) in got.iter().zip(fill_round_by_round(capacity, &demands)) {
            prop_assert!((got - expected).abs() <= 1e-9 * (1.0 + expected), "{got} is not {expected}");
        }
    }

    #[test]
    fn proportional_share_equals_its_definition(
        demands in demands(), capacity in prop_oneof![Just(0.0), 0.0..5000.0f64, 0.0..1e13f64]
    ) {
        let got = shares(AlgorithmKind::ProportionalShare, capacity, &demands);
        for (got, expected) in got.iter().zip(proportional_by_definition(capacity, &demands)) {
            prop_assert!((got - expected).abs() <= 1e-7 * (1.0 + expected), "{got} is not {expected}");
        }
    }

    #[test]
    fn shares_use_the_capacity_without_excess(
        demands in demands(), capacity in 0.0..1e13f64
    ) {
        for kind in [AlgorithmKind::FairShare, AlgorithmKind::ProportionalShare] {
            let got = shares(kind, capacity, &demands);
            let wanted: f64 = demands.iter().map(|demand| demand.wants).sum();
            let sum: f64 = got.iter().sum();
            let most = capacity.min(wanted);
            prop_assert!((sum - most).abs() <= 1e-9 * most, "{kind:?}: {sum} of {most}");
            for (share, demand) in got.iter().zip(&demands) {
                prop_assert!((0.0..=demand.wants).contains(share), "{kind:?}: {share} of {}", demand.wants);
            }
        }
    }

    #[test]
    fn band_gets_what_single_clients_would(
        wants in 0.0..100.0f64, count in 1u32..20, others in demands(), capacity in 0.0..5000.0f64
    ) {
        for kind in [AlgorithmKind::FairShare, AlgorithmKind::ProportionalShare] {
            let mut apart = others.clone();
            apart.extend((0..count).map(|_| Demand { wants, weight: 1.0 }));
            let apart: f64 = shares(kind, capacity, &apart).iter().skip(others.len()).sum();
            let mut together = others.clone();
            together.push(Demand { wants: wants * f64::from(count), weight: f64::from(count) });
            let together = shares(kind, capacity, &together)[others.len()];
            prop_assert!((apart - together).abs() <= 1e-7 * (1.0 + apart), "{kind:?}: {apart} {together}");
        }
    }

    #[test]
    fn surplus_hands_out_its_part(
        demands in demands(), spare in 0.0..1e6f64, surplus in 0.0..=1.0f64
    ) {
        let wanted: f64 = demands.iter().map(|demand| demand.wants).sum();
        for kind in [AlgorithmKind::FairShare, AlgorithmKind::ProportionalShare] {
            let capacity = wanted + spare;
            let rule = ShareRule { kind, capacity, surplus, surplus_without_polls: surplus, granularity: 0.0 };
            let got = shares_by(rule, &demands);
            let sum: f64 = got.iter().sum();
            let expected = wanted + surplus * (capacity - wanted);
            prop_assert!((sum - expected).abs() <= 1e-9 * expected, "{kind:?}: {sum} is not {expected}");
            for (share, demand) in got.iter().zip(&demands) {
                prop_assert!(*share >= demand.wants, "{kind:?}: {share} of {}", demand.wants);
            }
        }
    }

    #[test]
    fn whole_steps_move_shares_by_less_than_one(
        demands in demands(), capacity in 0.0..5000.0f64, step in prop_oneof![Just(1.0), 0.5..20.0f64]
    ) {
        for kind in [AlgorithmKind::FairShare, AlgorithmKind::ProportionalShare] {
            let exact = shares(kind, capacity, &demands);
            let got = shares_by(ShareRule { kind, capacity, surplus: 0.0,
            surplus_without_polls: 0.0, granularity: step }, &demands);
            let (sum, total): (f64, f64) = (got.iter().sum(), exact.iter().sum());
            prop_assert!((sum - (total / step + 1e-9).floor() * step).abs() <= 1e-6 * (1.0 + sum), "{kind:?}: {sum} of {total}");
            for (got, exact) in got.iter().zip(&exact) {
                let steps = got / step;
                prop_assert!((steps - steps.round()).abs() < 1e-6, "{kind:?}: {got}");
                prop_assert!((got - exact).abs() < step * (1.0 + 1e-6), "{kind:?}: {got} for {exact}");
            }
        }
    }
}
