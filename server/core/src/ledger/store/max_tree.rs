//! The largest of many numbers.

/// A number per slot, or none, with the largest of all in O(log n). `f32` is precise enough: the
/// numbers only find candidates.
#[derive(Debug, Clone, Default)]
pub(in crate::ledger) struct MaxTree {
    slots: Vec<f32>,
    /// Each level holds the maxima of [`GROUP`] numbers of the level below.
    levels: Vec<Vec<f32>>,
}

/// Numbers per maximum: a cache line.
const GROUP: usize = 16;

const NONE: f32 = f32::NEG_INFINITY;

impl MaxTree {
    pub(in crate::ledger) fn set(&mut self, slot: usize, value: Option<f64>) {
        let value = value.map_or(NONE, |value| value as f32);
        if slot >= self.slots.len() {
            if value == NONE {
                return;
            }
            self.slots.resize(slot.saturating_add(1), NONE);
        }
        let mut at = slot;
        let Some(mut changed) = set_and_max(&mut self.slots, at, value) else {
            return;
        };
        for level in &mut self.levels {
            at /= GROUP;
            match set_and_max(level, at, changed) {
                Some(max) => changed = max,
                None => return,
            }
        }
        while self.top().len() > GROUP {
            let level = self.top().chunks(GROUP).map(max).collect();
            self.levels.push(level);
        }
    }

    /// The slot of the largest number.
    pub(in crate::ledger) fn largest(&self) -> Option<usize> {
        let mut at = 0;
        for level in self.levels.iter().rev().chain([&self.slots]) {
            let group = group(level, at);
            let (first, _) = group
                .iter()
                .enumerate()
                .max_by(|(_, a), (_, b)| a.total_cmp(b))
                .filter(|(_, value)| **value > NONE)?;
            at = at.saturating_add(first).saturating_mul(GROUP);
        }
        Some(at / GROUP)
    }

    fn top(&self) -> &[f32] {
        self.levels.last().unwrap_or(&self.slots)
    }
}

/// Sets one number and returns the maximum of its group; `None` if nothing changes.
fn set_and_max(numbers: &mut Vec<f32>, at: usize, value: f32) -> Option<f32> {
    if at >= numbers.len() {
        numbers.resize(at.saturating_add(1), NONE);
    } else if numbers.get(at) == Some(&value) {
        return None;
    }
    if let Some(number) = numbers.get_mut(at) {
        *number = value;
    }
    Some(max(group(numbers, at.saturating_sub(at % GROUP))))
}

fn max(numbers: &[f32]) -> f32 {
    numbers.iter().copied().fold(NONE, f32::max)
}

fn group(numbers: &[f32], from: usize) -> &[f32] {
    let rest = numbers.get(from..).unwrap_or_default();
    rest.get(..GROUP).unwrap_or(rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_list(
            changes in prop::collection::vec((0usize..700, prop::option::of(-100i16..100)), 1..300)
        ) {
            let mut tree = MaxTree::default();
            let mut list = [None; 700];
            for (slot, value) in changes {
                tree.set(slot, value.map(f64::from));
                list[slot] = value;
                let found = tree.largest().map(|slot| list[slot]);
                prop_assert_eq!(found.flatten(), list.iter().max().copied().flatten());
            }
        }
    }
}
