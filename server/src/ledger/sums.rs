//! Sums that do not drift: every sum is recomputed from the few that it is made of, so that nothing is ever subtracted.

/// A number for each slot, with the sum of all and of all but one in O(log n).
///
/// Adding and subtracting single numbers would leave rounding behind (1e18 in and out again leaves 28 of 100); a tree, of which one path
/// is recomputed on a change, cannot: empty books sum to exactly zero.
#[derive(Debug, Default)]
pub(super) struct Sums {
    /// The numbers of the slots.
    slots: Vec<f64>,
    /// Each level has the sums of so many numbers of the one below; the last fits into one sum. None while the slots do.
    levels: Vec<Vec<f64>>,
}

/// How many numbers make a sum: two lines of the cache.
const GROUP: usize = 16;

impl Sums {
    /// Sets the number of a slot.
    pub(super) fn set(&mut self, slot: u32, value: f64) {
        let mut at = slot as usize;
        let mut changed = put(&mut self.slots, at, value);
        for level in &mut self.levels {
            at /= GROUP;
            changed = put(level, at, changed);
        }
        while self.top().len() > GROUP {
            let sums = self.top().chunks(GROUP).map(sum);
            let level = sums.collect();
            self.levels.push(level);
        }
    }

    /// The sum of all slots.
    pub(super) fn total(&self) -> f64 {
        sum(self.top())
    }

    /// The sum of all slots but this one.
    pub(super) fn all_but(&self, slot: u32) -> f64 {
        let mut at = slot as usize;
        if at >= self.slots.len() {
            return self.total();
        }
        let mut others = 0.0;
        for level in std::iter::once(&self.slots).chain(&self.levels) {
            let place = at % GROUP;
            let group = group(level, at);
            let (before, rest) = group.split_at_checked(place).unwrap_or((group, &[]));
            others += sum(before) + sum(rest.get(1..).unwrap_or_default());
            at /= GROUP;
        }
        others
    }

    fn top(&self) -> &[f64] {
        self.levels.last().unwrap_or(&self.slots)
    }
}

/// Sets one number; returns the sum of the group it is in.
fn put(numbers: &mut Vec<f64>, at: usize, value: f64) -> f64 {
    if at >= numbers.len() {
        numbers.resize(at.saturating_add(1), 0.0);
    }
    if let Some(number) = numbers.get_mut(at) {
        *number = value;
    }
    sum(group(numbers, at))
}

/// From zero on: the standard library's sum of nothing is −0.
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
        fn agrees_with_a_plain_list_and_ends_at_exactly_zero(
            changes in prop::collection::vec((0u32..700, 0.0f64..1e15), 1..200)
        ) {
            let mut sums = Sums::default();
            let mut list = [0.0; 700];
            for (slot, value) in changes {
                // Asked before the slot has ever been set, too.
                let others = list.iter().sum::<f64>() - list[slot as usize];
                prop_assert!((sums.all_but(slot) - others).abs() <= 1e-9 * list.iter().sum::<f64>());
                sums.set(slot, value);
                list[slot as usize] = value;
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
