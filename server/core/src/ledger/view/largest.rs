//! The largest of many, in one pass and in bounded memory.

use std::{cmp::Reverse, collections::BinaryHeap};

/// The keys with the largest amounts. Of equal amounts the smaller key counts as larger.
#[derive(Debug)]
pub(in crate::ledger) struct Largest<K: Ord> {
    limit: usize,
    /// The least of them on top. Amounts are not negative, so their bits have the order of amounts.
    heap: BinaryHeap<(Reverse<u64>, K)>,
}

impl<K: Ord + Clone> Largest<K> {
    pub(in crate::ledger) fn new(limit: usize) -> Self {
        Self {
            limit,
            heap: BinaryHeap::new(),
        }
    }

    pub(in crate::ledger) fn consider(&mut self, amount: f64, key: &K) {
        // An empty sum may be -0.
        let amount = Reverse((amount + 0.0).to_bits());
        if self.heap.len() < self.limit {
            self.heap.push((amount, key.clone()));
        } else if let Some(mut least) = self.heap.peek_mut()
            && (amount, key) < (least.0, &least.1)
        {
            *least = (amount, key.clone());
        }
    }

    /// The keys, largest amount first.
    pub(in crate::ledger) fn into_keys(self) -> Vec<K> {
        let sorted = self.heap.into_sorted_vec();
        sorted.into_iter().map(|(_, key)| key).collect()
    }

    pub(in crate::ledger) fn keys(&self) -> impl Iterator<Item = &K> {
        self.heap.iter().map(|(_, key)| key)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_sorting(
            amounts in prop::collection::vec(0u8..20, 0..100), limit in 0usize..12
        ) {
            let mut largest = Largest::new(limit);
            for (key, amount) in amounts.iter().enumerate() {
                largest.consider(f64::from(*amount), &key);
            }
            let mut sorted: Vec<_> = (0..amounts.len()).collect();
            sorted.sort_by_key(|key| (Reverse(amounts[*key]), *key));
            sorted.truncate(limit);
            prop_assert_eq!(largest.into_keys(), sorted);
        }
    }
}
