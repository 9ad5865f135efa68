//! Sums that do not drift: every inner node is recomputed from its two children, so that nothing is ever subtracted.

/// A number for each slot, with the sum of all and of all but one in O(log n).
///
/// Adding and subtracting single numbers would leave rounding behind (1e18 in and out again leaves 28 of 100); a complete binary
/// tree, of which one path is recomputed on a change, cannot: empty books sum to exactly zero.
#[derive(Debug, Default)]
pub(super) struct Sums {
    /// The root at 1, the children of `i` at `2i` and `2i + 1`, the slots in the second half.
    nodes: Vec<f64>,
}

impl Sums {
    fn slots(&self) -> usize {
        self.nodes.len() / 2
    }

    fn node(&self, index: usize) -> f64 {
        self.nodes.get(index).copied().unwrap_or(0.0)
    }

    fn put(&mut self, index: usize, value: f64) {
        if let Some(node) = self.nodes.get_mut(index) {
            *node = value;
        }
    }

    /// Sets the number of a slot.
    pub(super) fn set(&mut self, slot: u32, value: f64) {
        let slot = slot as usize;
        if slot >= self.slots() {
            self.grow(slot);
        }
        let mut index = self.slots() + slot;
        self.put(index, value);
        while index > 1 {
            index /= 2;
            self.put(index, self.node(2 * index) + self.node(2 * index + 1));
        }
    }

    /// The sum of all slots.
    pub(super) fn total(&self) -> f64 {
        self.node(1)
    }

    /// The sum of all slots but this one.
    pub(super) fn all_but(&self, slot: u32) -> f64 {
        let slot = slot as usize;
        if slot >= self.slots() {
            return self.total();
        }
        let mut index = self.slots() + slot;
        let mut sum = 0.0;
        while index > 1 {
            sum += self.node(index ^ 1);
            index /= 2;
        }
        sum
    }

    /// Doubles until the slot fits; paid for by the slots that were filled before.
    fn grow(&mut self, slot: usize) {
        let slots = (slot + 1).next_power_of_two();
        let mut nodes = vec![0.0; slots];
        nodes.extend(self.nodes.iter().skip(self.slots()));
        nodes.resize(2 * slots, 0.0);
        self.nodes = nodes;
        for index in (1..slots).rev() {
            self.put(index, self.node(2 * index) + self.node(2 * index + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_plain_list_and_ends_at_exactly_zero(
            changes in prop::collection::vec((0u32..70, 0.0f64..1e15), 1..200)
        ) {
            let mut sums = Sums::default();
            let mut list = [0.0; 70];
            for (slot, value) in changes {
                // Asked before the slot has ever been set, too.
                let others = list.iter().sum::<f64>() - list[slot as usize];
                prop_assert!((sums.all_but(slot) - others).abs() <= 1e-9 * list.iter().sum::<f64>());
                sums.set(slot, value);
                list[slot as usize] = value;
                let total: f64 = list.iter().sum();
                prop_assert!((sums.total() - total).abs() <= 1e-9 * total);
            }
            for slot in 0..70 {
                sums.set(slot, 0.0);
            }
            prop_assert_eq!(sums.total(), 0.0);
        }
    }
}
