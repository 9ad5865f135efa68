use proptest::prelude::*;

use super::{super::demands::Demand, *};

fn shares(kind: AlgorithmKind, capacity: f64, demands: &[Demand]) -> Vec<f64> {
    shares_by(
        ShareRule {
            kind,
            capacity,
            surplus: Surplus::Part(0.0),
            granularity: 0.0,
            floor: 0.0,
            equal_share: 0.0,
        },
        demands,
    )
}

fn shares_by(rule: ShareRule, demands: &[Demand]) -> Vec<f64> {
    let mut tree = DemandTree::default();
    let placed: Vec<PlacedDemand> = demands
        .iter()
        .map(|demand| tree.insert(0, *demand))
        .collect();
    placed
        .into_iter()
        .map(|placed| rule.share(&tree, std::iter::once(placed), Polling::No))
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
            .map(|number| tree.insert(0, demand(number)))
            .collect();
        let rule = ShareRule {
            kind: AlgorithmKind::FairShare,
            capacity: tree.total().wants.next_down(),
            surplus: Surplus::Part(0.0),
            granularity: 1.0,
            floor: 0.0,
            equal_share: 0.0,
        };
        met += u32::from(tree.all().fill_level(rule.capacity).is_infinite());
        let level = rule.fill_level(&tree);
        assert!(level.is_none_or(f64::is_finite), "{count}: {level:?}");
        for placed in placed {
            let share = rule.share(&tree, std::iter::once(placed), Polling::No);
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

/// The definition of PRIORITY_SHARE, band by band, for demands with their priorities.
pub(in super::super) fn priority_by_definition(
    capacity: f64,
    floor: f64,
    demands: &[(i32, Demand)],
) -> Vec<f64> {
    let wanted = |below: i32| -> f64 {
        let lower = demands.iter().filter(|(band, _)| *band < below);
        lower.map(|(_, demand)| demand.wants).sum()
    };
    let mut bands: Vec<i32> = demands.iter().map(|(priority, _)| *priority).collect();
    bands.sort_unstable();
    bands.dedup();
    bands.reverse();
    // The lowest are one band.
    bands.truncate(32);
    let last = bands.last().copied();
    let mut shares = vec![0.0; demands.len()];
    let mut left = capacity;
    for band in bands {
        let is_last = Some(band) == last;
        let own: Vec<usize> = (0..demands.len())
            .filter(|at| demands[*at].0 == band || is_last && demands[*at].0 < band)
            .collect();
        let lower = if is_last { 0.0 } else { wanted(band) };
        let most = left - (floor * left).min(lower);
        let wants: Vec<Demand> = own.iter().map(|at| demands[*at].1).collect();
        let sum: f64 = wants.iter().map(|demand| demand.wants).sum();
        let given = if sum <= most {
            wants.iter().map(|demand| demand.wants).collect()
        } else {
            fill_round_by_round(most, &wants)
        };
        left -= given.iter().sum::<f64>().min(left);
        for (at, given) in own.into_iter().zip(given) {
            shares[at] = given;
        }
    }
    shares
}

/// The rule, and a tree with the demands, each in its band.
fn by_priority(
    capacity: f64,
    floor: f64,
    granularity: f64,
    demands: &[(i32, Demand)],
) -> (ShareRule, DemandTree, Vec<PlacedDemand>) {
    let rule = ShareRule {
        kind: AlgorithmKind::PriorityShare,
        capacity,
        surplus: Surplus::Part(0.0),
        granularity,
        floor,
        equal_share: 0.0,
    };
    let mut tree = DemandTree::new(true);
    let mut placed: Vec<PlacedDemand> = demands
        .iter()
        .map(|(priority, demand)| tree.insert(*priority, *demand))
        .collect();
    // Each holder refreshes once more.
    for (placed, (priority, demand)) in placed.iter_mut().zip(demands) {
        *placed = tree.replace(*priority, *placed, *demand);
    }
    (rule, tree, placed)
}

fn priority_shares(
    capacity: f64,
    floor: f64,
    granularity: f64,
    demands: &[(i32, Demand)],
) -> Vec<f64> {
    let (rule, tree, placed) = by_priority(capacity, floor, granularity, demands);
    placed
        .into_iter()
        .map(|placed| rule.share(&tree, std::iter::once(placed), Polling::No))
        .collect()
}

#[track_caller]
fn check_priorities(capacity: f64, floor: f64, demands: &[(i32, f64)], expected: &[f64]) {
    let demands: Vec<_> = demands
        .iter()
        .map(|(priority, wants)| (*priority, single(&[*wants])[0]))
        .collect();
    let got = priority_shares(capacity, floor, 0.0, &demands);
    for (got, expected) in got.iter().zip(expected) {
        assert!(
            (got - expected).abs() < 1e-9,
            "{demands:?}: {got} is not {expected}"
        );
    }
}

#[test]
fn higher_priorities_are_served_first() {
    let demands = [(1, 60.0), (0, 80.0), (0, 10.0), (-5, 30.0)];
    check_priorities(100.0, 0.0, &demands, &[60.0, 30.0, 10.0, 0.0]);
    check_priorities(50.0, 0.0, &demands, &[50.0, 0.0, 0.0, 0.0]);
    check_priorities(170.0, 0.0, &demands, &[60.0, 80.0, 10.0, 20.0]);
    check_priorities(1000.0, 0.0, &demands, &[60.0, 80.0, 10.0, 30.0]);
}

#[test]
fn floor_is_left_to_lower_priorities() {
    // 20 of 100 are left to the lower ones, and 4 of these to the lowest.
    let demands = [(2, 200.0), (1, 80.0), (0, 30.0)];
    check_priorities(100.0, 0.2, &demands, &[80.0, 16.0, 4.0]);
    // No more than they want.
    check_priorities(
        100.0,
        0.2,
        &[(2, 200.0), (1, 3.0), (0, 2.0)],
        &[95.0, 3.0, 2.0],
    );
    // All of it: the lowest first.
    check_priorities(100.0, 1.0, &demands, &[0.0, 70.0, 30.0]);
}

#[test]
fn more_than_32_priorities_merge_the_lowest() {
    let demands: Vec<_> = (0..40).map(|priority| (priority, 10.0)).collect();
    // 31 bands of one demand, and one of nine.
    let mut expected = vec![5.0; 9];
    expected.extend([10.0; 31]);
    check_priorities(355.0, 0.0, &demands, &expected);
}

#[test]
fn leftover_step_goes_to_the_higher_priority() {
    let demand = |wants: f64| single(&[wants])[0];
    let demands = [(1, demand(2.6)), (0, demand(100.0))];
    assert_eq!(priority_shares(5.0, 0.0, 1.0, &demands), [3.0, 2.0]);
    // Also while all demands fit.
    let demands = [(1, demand(2.5)), (0, demand(2.5))];
    assert_eq!(priority_shares(9.0, 0.0, 1.0, &demands), [3.0, 2.0]);
}

fn with_priorities() -> impl Strategy<Value = Vec<(i32, Demand)>> {
    let priority = prop_oneof![4 => -2i32..3, 1 => -40i32..40, 1 => any::<i32>()];
    (demands(), prop::collection::vec(priority, 40))
        .prop_map(|(demands, priorities)| priorities.into_iter().zip(demands).collect())
}

fn floors() -> impl Strategy<Value = f64> {
    prop_oneof![2 => Just(0.0), 3 => 0.0..1.0f64, 1 => Just(1.0)]
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
            let rule = ShareRule { kind, capacity, surplus: Surplus::Part(surplus), granularity: 0.0, floor: 0.0, equal_share: 0.0 };
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
            let got = shares_by(ShareRule { kind, capacity, surplus: Surplus::Part(0.0), granularity: step, floor: 0.0, equal_share: 0.0 }, &demands);
            let (sum, total): (f64, f64) = (got.iter().sum(), exact.iter().sum());
            prop_assert!((sum - (total / step + 1e-9).floor() * step).abs() <= 1e-6 * (1.0 + sum), "{kind:?}: {sum} of {total}");
            for (got, exact) in got.iter().zip(&exact) {
                let steps = got / step;
                prop_assert!((steps - steps.round()).abs() < 1e-6, "{kind:?}: {got}");
                prop_assert!((got - exact).abs() < step * (1.0 + 1e-6), "{kind:?}: {got} for {exact}");
            }
        }
    }

    #[test]
    fn priority_share_equals_its_definition(
        demands in with_priorities(), floor in floors(),
        capacity in prop_oneof![Just(0.0), 0.0..5000.0f64, 0.0..1e13f64]
    ) {
        let got = priority_shares(capacity, floor, 0.0, &demands);
        let expected = priority_by_definition(capacity, floor, &demands);
        for (got, expected) in got.iter().zip(&expected) {
            prop_assert!((got - expected).abs() <= 1e-9 * (1.0 + expected + capacity), "{got} is not {expected}");
        }
    }

    /// More than 32 bands, until the holders have refreshed.
    #[test]
    fn demands_that_have_yet_to_move_share_the_capacity(
        demands in demands(), floor in floors(), capacity in 0.0..1e13f64, is_rising in any::<bool>()
    ) {
        let rule = by_priority(capacity, floor, 0.0, &[]).0;
        let mut tree = DemandTree::new(true);
        let mut number = 0;
        let mut insert = |demand: &Demand| {
            number += if is_rising { 1 } else { -1 };
            tree.insert(number, *demand)
        };
        let placed: Vec<_> = demands.iter().chain(&demands).map(&mut insert).collect();
        let shares = placed.iter().map(|placed| rule.share(&tree, std::iter::once(*placed), Polling::No));
        let sum: f64 = shares.clone().sum();
        let most = capacity.min(tree.total().wants);
        prop_assert!((sum - most).abs() <= 1e-9 * most, "{sum} of {most}");
        for (share, placed) in shares.zip(&placed) {
            prop_assert!((0.0..=placed.demand().wants).contains(&share), "{share} of {placed:?}");
        }
    }

    #[test]
    fn holder_of_many_priorities_gets_the_sum(
        demands in with_priorities(), floor in floors(), capacity in 0.0..5000.0f64, step in prop_oneof![Just(0.0), Just(1.0)]
    ) {
        let (rule, tree, placed) = by_priority(capacity, floor, step, &demands);
        let apart: f64 = placed.iter().map(|placed| rule.share(&tree, std::iter::once(*placed), Polling::No)).sum();
        let together = rule.share(&tree, placed.into_iter(), Polling::No);
        prop_assert!((together - apart).abs() <= 1e-9 * (1.0 + apart), "{together} is not {apart}");
    }

    #[test]
    fn whole_steps_never_favor_lower_priorities(
        demands in with_priorities(), floor in floors(), capacity in 0.0..5000.0f64, step in prop_oneof![Just(1.0), 0.5..20.0f64]
    ) {
        let exact = priority_shares(capacity, floor, 0.0, &demands);
        let got = priority_shares(capacity, floor, step, &demands);
        let (sum, total): (f64, f64) = (got.iter().sum(), exact.iter().sum());
        prop_assert!((sum - (total / step + 1e-9).floor() * step).abs() <= 1e-6 * (1.0 + sum), "{sum} of {total}");
        for (got, exact) in got.iter().zip(&exact) {
            let steps = got / step;
            prop_assert!((steps - steps.round()).abs() < 1e-6, "{got}");
            prop_assert!((got - exact).abs() < step * (1.0 + 1e-6), "{got} for {exact}");
        }
        let up_to = |shares: &[f64], priority: i32| -> f64 {
            let lower = demands.iter().zip(shares).filter(|((other, _), _)| *other <= priority);
            lower.map(|(_, share)| share).sum()
        };
        for (priority, _) in &demands {
            let (got, exact) = (up_to(&got, *priority), up_to(&exact, *priority));
            prop_assert!(got <= exact + 1e-6 * (1.0 + exact), "{got} up to {priority}, not {exact}");
        }
    }
}
