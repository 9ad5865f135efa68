//! Running sums without rounding drift.

/// A number per slot, with the sum of all and of all but one in O(log n).
///
/// Adding and subtracting accumulates rounding: 1e18 added to 100 and subtracted again leaves 28
/// too many. This tree recomputes one path per change, so an emptied tree sums to exactly zero.
#[derive(Debug, Clone, Default)]
pub(in crate::ledger) struct SumTree {
    slots: Vec<f64>,
    /// Each level holds the sums of [`GROUP`] numbers of the level below.
    levels: Vec<Vec<f64>>,
}

/// Numbers per sum: two cache lines.
const GROUP: usize = 16;

impl SumTree {
    pub(in crate::ledger) fn set(&mut self, slot: usize, value: f64) {
        let mut at = slot;
        let mut changed = set_and_sum(&mut self.slots, at, value);
        for level in &mut self.levels {
            at /= GROUP;
            changed = set_and_sum(level, at, changed);
        }
        while self.top().len() > GROUP {
            let level = self.top().chunks(GROUP).map(sum).collect();
            self.levels.push(level);
        }
    }

    pub(in crate::ledger) fn get(&self, slot: usize) -> f64 {
        self.slots.get(slot).copied().unwrap_or(0.0)
    }

    pub(in crate::ledger) fn total(&self) -> f64 {
        sum(self.top())
    }

    pub(in crate::ledger) fn total_except(&self, slot: usize) -> f64 {
        let mut at = slot;
        if at >= self.slots.len() {
            return self.total();
        }
        let mut others = 0.0;
        for level in std::iter::once(&self.slots).chain(&self.levels) {
            let group = group(level, at);
            let (before, rest) = group.split_at_checked(at % GROUP).unwrap_or((group, &[]));
            others += sum(before) + sum(rest.get(1..).unwrap_or_default());
            at /= GROUP;
        }
        others
    }

    fn top(&self) -> &[f64] {
        self.levels.last().unwrap_or(&self.slots)
    }
}

/// Sets one number and returns the sum of its group.
fn set_and_sum(numbers: &mut Vec<f64>, at: usize, value: f64) -> f64 {
    if at >= numbers.len() {
        numbers.resize(at.saturating_add(1), 0.0);
    }
    if let Some(number) = numbers.get_mut(at) {
        *number = value;
    }
    sum(group(numbers, at))
}

/// Starts from +0.0: `Iterator::sum` of nothing is −0.0.
fn sum(numbers: &[f64]) -> f64 {
    numbers.iter().fold(0.0, |sum, number| sum + number)
}

fn group(numbers: &[f64], at: usize) -> &[f64] {
    let from = at.saturating_sub(at % GROUP);
    let rest = numbers.get(from..).unwrap_or_default();
    rest.get(..GROUP).unwrap_or(rest)
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
