//! The highest of many ranks.

use super::group_tree::GroupTree;

/// A rank per slot, with the slot of the highest in O(log n). A slot without a rank has 0.
#[derive(Debug, Clone, Default)]
pub(in crate::ledger) struct MaxTree(GroupTree<u64>);

impl MaxTree {
    pub(in crate::ledger) fn set(&mut self, slot: usize, rank: u64) {
        self.0.set(slot, rank, 0, highest);
    }

    pub(super) fn get(&self, slot: usize) -> u64 {
        self.0.get(slot).unwrap_or(0)
    }

    /// The highest rank.
    pub(super) fn max(&self) -> u64 {
        highest(self.0.top())
    }

    /// The slot of the highest rank.
    pub(in crate::ledger) fn first(&self) -> Option<usize> {
        self.0.descend(|ranks| {
            let (at, highest) = ranks.iter().enumerate().max_by_key(|(_, rank)| **rank)?;
            (*highest > 0).then_some(at)
        })
    }
}

fn highest(ranks: &[u64]) -> u64 {
    ranks.iter().copied().fold(0, u64::max)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_list(
            changes in prop::collection::vec((0usize..700, 0u64..200), 1..300)
        ) {
            let mut tree = MaxTree::default();
            let mut list = [0; 700];
            for (slot, rank) in changes {
                tree.set(slot, rank);
                list[slot] = rank;
                let highest = list.iter().max().copied().unwrap_or(0);
                prop_assert_eq!((tree.get(slot), tree.max()), (rank, highest));
                prop_assert_eq!(tree.first().map_or(0, |slot| list[slot]), highest);
            }
        }
    }
}
