//! Running sums without rounding drift.

use super::group_tree::GroupTree;

/// A number per slot, with the sum of all and of all but one in O(log n).
///
/// Adding and subtracting accumulates rounding: 1e18 added to 100 and subtracted again leaves 28
/// too many. This tree recomputes one path per change, so an emptied tree sums to exactly zero.
#[derive(Debug, Clone, Default)]
pub(in crate::ledger) struct SumTree(GroupTree<f64>);

impl SumTree {
    pub(in crate::ledger) fn set(&mut self, slot: usize, value: f64) {
        self.0.set(slot, value, 0.0, sum);
    }

    pub(in crate::ledger) fn get(&self, slot: usize) -> f64 {
        self.0.get(slot).unwrap_or(0.0)
    }

    pub(in crate::ledger) fn total(&self) -> f64 {
        sum(self.0.top())
    }

    pub(in crate::ledger) fn total_except(&self, slot: usize) -> f64 {
        if self.0.get(slot).is_none() {
            return self.total();
        }
        let others = self.0.ascend(slot).map(|(group, at)| {
            let (before, rest) = group.split_at_checked(at).unwrap_or((group, &[]));
            sum(before) + sum(rest.get(1..).unwrap_or_default())
        });
        others.fold(0.0, |sum, others| sum + others)
    }
}

/// Starts from +0.0: `Iterator::sum` of nothing is −0.0.
fn sum(numbers: &[f64]) -> f64 {
    numbers.iter().fold(0.0, |sum, number| sum + number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_list_and_empties_to_zero(
            changes in prop::collection::vec((0usize..700, 0.0f64..1e15), 1..200)
        ) {
            let mut sums = SumTree::default();
            let mut list = [0.0; 700];
            for (slot, value) in changes {
                // Some slots are read before they are first set.
                let others = list.iter().sum::<f64>() - list[slot];
                let tolerance = 1e-9 * list.iter().sum::<f64>();
                prop_assert!((sums.total_except(slot) - others).abs() <= tolerance);
                sums.set(slot, value);
                list[slot] = value;
                let total: f64 = list.iter().sum();
                prop_assert!((sums.total() - total).abs() <= 1e-9 * total);
            }
            for slot in 0..700 {
                sums.set(slot, 0.0);
            }
            prop_assert_eq!(sums.total(), 0.0);
        }
    }
}
