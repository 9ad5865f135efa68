use doorman_openapi::MAX_BANDS;
use proptest::prelude::*;

use super::*;

fn demand() -> impl Strategy<Value = Demand> {
    let wants = prop_oneof![Just(0.0), 0.0..100.0f64, 0.0..1e15f64];
    (wants, 1u32..20).prop_map(|(wants, weight)| Demand {
        wants,
        weight: f64::from(weight),
    })
}

fn one(wants: f64) -> Demand {
    Demand { wants, weight: 1.0 }
}

#[derive(Debug, Clone)]
enum Step {
    Insert(i32, Demand),
    Replace(prop::sample::Index, Demand),
    Remove(prop::sample::Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let some = any::<prop::sample::Index>;
    let step = prop_oneof![
        3 => (-25i32..25, demand()).prop_map(|(priority, demand)| Step::Insert(priority, demand)),
        2 => (some(), demand()).prop_map(|(at, demand)| Step::Replace(at, demand)),
        2 => some().prop_map(Step::Remove),
    ];
    prop::collection::vec(step, 1..600)
}

proptest! {
    #[test]
    fn tree_keeps_order_balance_and_sums(steps in steps()) {
        let mut tree = DemandTree::default();
        let mut list: Vec<PlacedDemand> = Vec::new();
        for step in steps {
            match step {
                Step::Insert(_, demand) => list.push(tree.insert(0, demand)),
                _ if list.is_empty() => {}
                Step::Replace(at, demand) => {
                    let at = at.index(list.len());
                    list[at] = tree.replace(0, list[at], demand);
                }
                Step::Remove(at) => tree.remove(0, list.swap_remove(at.index(list.len()))),
            }
            tree.root.check(true);
            let wants: f64 = list.iter().map(|placed| placed.demand.wants).sum();
            let weight: f64 = list.iter().map(|placed| placed.demand.weight).sum();
            prop_assert!((tree.total().wants - wants).abs() <= 1e-9 * wants);
            prop_assert_eq!(tree.total().weight, weight);
            let ratio = list.first().map_or(1.0, |placed| placed.demand.ratio());
            let below = list.iter().filter(|placed| placed.demand.ratio() <= ratio);
            let below: f64 = below.map(|placed| placed.demand.weight).sum();
            prop_assert_eq!(tree.all().split_at(ratio).0.weight, below);
            prop_assert_eq!(tree.all().split_at(ratio).1.weight, weight - below);
        }
        list.sort_by(|a, b| a.demand.ratio().total_cmp(&b.demand.ratio()).then(a.number.cmp(&b.number)));
        let mut before = 0.0;
        for placed in &list {
            prop_assert_eq!(tree.all().sums_before(*placed, f64::INFINITY).0.weight, before);
            before += placed.demand.weight;
        }
        for placed in list {
            tree.remove(0, placed);
            tree.root.check(true);
        }
        prop_assert_eq!(tree.total(), DemandSum::default());
    }

    #[test]
    fn bands_have_exact_sums(steps in steps()) {
        let mut tree = DemandTree::new(true);
        let mut list: Vec<(i32, PlacedDemand)> = Vec::new();
        for step in steps {
            match step {
                Step::Insert(priority, demand) => list.push((priority, tree.insert(priority, demand))),
                _ if list.is_empty() => {}
                Step::Replace(at, demand) => {
                    let at = at.index(list.len());
                    let (priority, placed) = list[at];
                    list[at].1 = tree.replace(priority, placed, demand);
                }
                Step::Remove(at) => {
                    let (priority, placed) = list.swap_remove(at.index(list.len()));
                    tree.remove(priority, placed);
                }
            }
            tree.root.check(true);
        }
        for (priority, placed) in &mut list {
            *placed = tree.replace(*priority, *placed, placed.demand);
        }
        let mut priorities: Vec<i32> = list.iter().map(|(priority, _)| *priority).collect();
        priorities.sort_unstable_by_key(|priority| std::cmp::Reverse(*priority));
        priorities.dedup();
        priorities.truncate(MAX_BANDS);
        let lowest = priorities.last().copied().unwrap_or(0);
        let sum = |is_in: &dyn Fn(i32) -> bool| -> (f64, f64) {
            let demands = list.iter().filter(|(priority, _)| is_in((*priority).max(lowest)));
            demands.fold((0.0, 0.0), |sum, (_, it)| (sum.0 + it.demand.wants, sum.1 + it.demand.weight))
        };
        let same = |got: DemandSum, (wants, weight): (f64, f64)| {
            got.weight == weight && (got.wants - wants).abs() <= 1e-9 * wants
        };
        let mut above = None;
        for band in priorities {
            prop_assert_eq!(tree.highest_band(above), Some(band));
            above = Some(band);
            prop_assert!(same(tree.band(band).sum(), sum(&|it| it == band)));
            prop_assert!(same(tree.bands_from(band).sum(), sum(&|it| it <= band)));
            prop_assert!(same(tree.sum_above(band), sum(&|it| it > band)));
            prop_assert!(same(tree.sum_below(band), sum(&|it| it < band)));
        }
        prop_assert_eq!(tree.highest_band(above), None);
        for (priority, placed) in list {
            tree.remove(priority, placed);
        }
        prop_assert_eq!(tree.total(), DemandSum::default());
        prop_assert_eq!(tree.band_of(i32::MIN), i32::MIN);
    }

    #[test]
    fn levels_split_all_demands_without_loss(
        demands in prop::collection::vec((0u32..1000, 1u32..20), 0..400),
        level in prop::option::of(0.0..200.0f64),
    ) {
        let mut tree = DemandTree::default();
        for (wants, weight) in &demands {
            let (wants, weight) = (f64::from(*wants), f64::from(*weight));
            tree.insert(0, Demand { wants, weight });
        }
        let sum = |is_in: &dyn Fn(f64) -> bool| {
            let demands = demands.iter().map(|(wants, weight)| (f64::from(*wants), f64::from(*weight)));
            let within = demands.filter(|(wants, weight)| is_in(wants / weight));
            within.fold(DemandSum::default(), |sum, (wants, weight)| sum.plus(DemandSum { wants, weight }))
        };
        let expected = match level {
            None => [sum(&|_| true), DemandSum::default(), DemandSum::default()],
            Some(level) => [
                sum(&|ratio| ratio <= level),
                sum(&|ratio| level < ratio && ratio <= 2.0 * level),
                sum(&|ratio| 2.0 * level < ratio),
            ],
        };
        // Sums of whole numbers are exact.
        prop_assert_eq!(tree.all().split_in_levels(level), expected);
    }

    #[test]
    fn fill_level_uses_up_the_capacity(
        demands in prop::collection::vec(demand(), 1..400), part in 0.0..1.0f64
    ) {
        let mut tree = DemandTree::default();
        for demand in &demands {
            tree.insert(0, *demand);
        }
        let capacity = tree.total().wants * part;
        let level = tree.all().fill_level(capacity);
        let used: f64 = demands.iter().map(|demand| demand.wants.min(level * demand.weight)).sum();
        prop_assert!((used - capacity).abs() <= 1e-9 * capacity, "{used} of {capacity}");
    }
}

/// The demand of each number.
type Order = fn(u32) -> f64;

#[test]
fn tree_stays_shallow_in_any_order() {
    let orders: [Order; 4] = [
        f64::from,
        |number| -f64::from(number),
        |_| 1.0,
        |number| f64::from(number.wrapping_mul(0x9e37_79b9)),
    ];
    for order in orders {
        let mut tree = DemandTree::default();
        let placed: Vec<_> = (0..50_000)
            .map(|number| tree.insert(0, one(order(number))))
            .collect();
        assert!(tree.root.check(true) <= 6);
        // Removes most demands; the rest are far apart.
        for (number, placed) in placed.into_iter().enumerate() {
            if number % 100 > 0 {
                tree.remove(0, placed);
            }
        }
        assert!(tree.root.check(true) <= 4);
        assert_eq!(tree.total().weight, 500.0);
    }
}
