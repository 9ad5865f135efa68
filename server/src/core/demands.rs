//! Who wants how much: a balanced tree ordered by wants per weight, with sums that do not drift.

/// What one client, or the clients of a node at one priority, want together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Demand {
    pub(super) wants: f64,
    /// How many clients it stands for.
    pub(super) weight: f64,
}

impl Demand {
    /// How much is wanted for each client.
    pub(super) fn ratio(self) -> f64 {
        self.wants / self.weight
    }
}

/// The sums of a set of demands.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Total {
    pub(super) wants: f64,
    pub(super) weight: f64,
}

impl Total {
    fn plus(self, other: Self) -> Self {
        Self {
            wants: self.wants + other.wants,
            weight: self.weight + other.weight,
        }
    }
}

impl From<Demand> for Total {
    fn from(demand: Demand) -> Self {
        Self {
            wants: demand.wants,
            weight: demand.weight,
        }
    }
}

/// Names a demand in the tree.
pub(super) type DemandId = u32;

/// No node. A tree holds fewer demands than this: the books are bounded long before.
const NIL: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Node {
    demand: Demand,
    /// Of the subtree: recomputed from the children, never added to or taken from.
    total: Total,
    left: u32,
    right: u32,
    /// The heap order that keeps the tree balanced.
    height_key: u32,
}

/// The demands of a resource: a treap in an arena, ordered by wants per weight, ties by id.
///
/// Seidel and Aragon, "Randomized Search Trees" (Algorithmica, 1996): expected depth O(log n) whatever the order of insertion. The
/// heap keys are drawn at random, so that no client can know them and choose what it wants by them.
#[derive(Debug)]
pub(super) struct Demands {
    chance: fastrand::Rng,
    nodes: Vec<Node>,
    free: Vec<u32>,
    root: u32,
}

impl Default for Demands {
    fn default() -> Self {
        Self {
            chance: fastrand::Rng::new(),
            nodes: Vec::new(),
            free: Vec::new(),
            root: NIL,
        }
    }
}

impl Demands {
    /// Adds a demand.
    pub(super) fn insert(&mut self, demand: Demand) -> DemandId {
        let id = self
            .free
            .pop()
            .unwrap_or_else(|| u32::try_from(self.nodes.len()).unwrap_or(NIL));
        let node = Node {
            demand,
            total: demand.into(),
            left: NIL,
            right: NIL,
            height_key: self.chance.u32(..),
        };
        match self.nodes.get_mut(id as usize) {
            Some(place) => *place = node,
            None => self.nodes.push(node),
        }
        self.root = self.insert_below(self.root, id);
        id
    }

    /// Takes a demand out.
    pub(super) fn remove(&mut self, id: DemandId) {
        self.root = self.remove_below(self.root, id);
        self.free.push(id);
    }

    /// The demand of this name.
    pub(super) fn get(&self, id: DemandId) -> Option<Demand> {
        self.nodes.get(id as usize).map(|node| node.demand)
    }

    /// The sums of all demands.
    pub(super) fn total(&self) -> Total {
        self.total_of(self.root)
    }

    /// The water level at which `capacity` is used up: the most per weight that everyone can have of what they want. Infinite when
    /// all have what they want.
    ///
    /// At each node: if all up to it are satisfied and all above it have as much per weight as it wants, is there enough?
    pub(super) fn water_level(&self, capacity: f64) -> f64 {
        let mut satisfied = 0.0;
        let mut above = 0.0;
        let mut at = self.root;
        while let Some(node) = self.node(at) {
            let before = satisfied + self.total_of(node.left).wants;
            let rest = node.demand.weight + self.total_of(node.right).weight + above;
            if before + node.demand.ratio() * rest <= capacity {
                satisfied = before + node.demand.wants;
                at = node.right;
            } else {
                above = rest;
                at = node.left;
            }
        }
        if above > 0.0 {
            (capacity - satisfied).max(0.0) / above
        } else {
            f64::INFINITY
        }
    }

    /// The sums of the demands that want at most `ratio` per weight, and of those that want more.
    pub(super) fn split_at(&self, ratio: f64) -> (Total, Total) {
        let (mut below, mut above) = (Total::default(), Total::default());
        let mut at = self.root;
        while let Some(node) = self.node(at) {
            if node.demand.ratio() <= ratio {
                below = below
                    .plus(self.total_of(node.left))
                    .plus(node.demand.into());
                at = node.right;
            } else {
                above = above
                    .plus(self.total_of(node.right))
                    .plus(node.demand.into());
                at = node.left;
            }
        }
        (below, above)
    }

    /// The sums of the demands that stand before this one: of those that want at most `ratio` per weight, and of the others.
    pub(super) fn before(&self, id: DemandId, ratio: f64) -> (Total, Total) {
        let mut before = Total::default();
        let mut at = self.root;
        while let Some(node) = self.node(at) {
            if self.precedes(at, id) {
                before = before
                    .plus(self.total_of(node.left))
                    .plus(node.demand.into());
                at = node.right;
            } else {
                at = node.left;
            }
        }
        let (below, _) = self.split_at(ratio);
        if before.weight <= below.weight {
            return (before, Total::default());
        }
        // The demands are in order, so all that want little stand before it.
        let above = Total {
            wants: (before.wants - below.wants).max(0.0),
            weight: (before.weight - below.weight).max(0.0),
        };
        (below, above)
    }

    fn node(&self, at: u32) -> Option<&Node> {
        self.nodes.get(at as usize)
    }

    fn total_of(&self, at: u32) -> Total {
        self.node(at).map_or_else(Total::default, |node| node.total)
    }

    /// Whether `a` stands before `b`.
    fn precedes(&self, a: u32, b: u32) -> bool {
        let ratio = |at| self.node(at).map_or(f64::NAN, |node| node.demand.ratio());
        ratio(a).total_cmp(&ratio(b)).then(a.cmp(&b)).is_lt()
    }

    /// Gives a node its children, and recomputes its sums.
    fn join(&mut self, at: u32, left: u32, right: u32) -> u32 {
        let children = self.total_of(left).plus(self.total_of(right));
        if let Some(node) = self.nodes.get_mut(at as usize) {
            node.left = left;
            node.right = right;
            node.total = children.plus(node.demand.into());
        }
        at
    }

    fn insert_below(&mut self, root: u32, new: u32) -> u32 {
        let Some(&Node {
            left,
            right,
            height_key,
            ..
        }) = self.node(root)
        else {
            return new;
        };
        if self
            .node(new)
            .is_some_and(|node| node.height_key > height_key)
        {
            let (before, after) = self.split(root, new);
            return self.join(new, before, after);
        }
        if self.precedes(new, root) {
            let left = self.insert_below(left, new);
            self.join(root, left, right)
        } else {
            let right = self.insert_below(right, new);
            self.join(root, left, right)
        }
    }

    fn remove_below(&mut self, root: u32, old: u32) -> u32 {
        let Some(&Node { left, right, .. }) = self.node(root) else {
            return NIL;
        };
        if root == old {
            return self.merge(left, right);
        }
        if self.precedes(old, root) {
            let left = self.remove_below(left, old);
            self.join(root, left, right)
        } else {
            let right = self.remove_below(right, old);
            self.join(root, left, right)
        }
    }

    /// Splits a subtree into what stands before `at` and what stands after it.
    fn split(&mut self, root: u32, at: u32) -> (u32, u32) {
        let Some(&Node { left, right, .. }) = self.node(root) else {
            return (NIL, NIL);
        };
        if self.precedes(root, at) {
            let (before, after) = self.split(right, at);
            (self.join(root, left, before), after)
        } else {
            let (before, after) = self.split(left, at);
            (before, self.join(root, after, right))
        }
    }

    /// Merges two subtrees, of which all of the first stands before all of the second.
    fn merge(&mut self, first: u32, second: u32) -> u32 {
        match (self.node(first).copied(), self.node(second).copied()) {
            (None, _) => second,
            (_, None) => first,
            (Some(a), Some(b)) if a.height_key > b.height_key => {
                let right = self.merge(a.right, second);
                self.join(first, a.left, right)
            }
            (Some(_), Some(b)) => {
                let left = self.merge(first, b.left);
                self.join(second, left, b.right)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn demand() -> impl Strategy<Value = Demand> {
        let wants = prop_oneof![Just(0.0), 0.0..100.0f64, 0.0..1e15f64];
        (wants, 1u32..20).prop_map(|(wants, weight)| Demand {
            wants,
            weight: f64::from(weight),
        })
    }

    proptest! {
        #[test]
        fn keeps_order_and_sums_through_any_insertions_and_removals(
            steps in prop::collection::vec((any::<prop::sample::Index>(), prop::option::of(demand())), 1..120)
        ) {
            let mut tree = Demands::default();
            let mut list: Vec<(DemandId, Demand)> = Vec::new();
            for (index, step) in steps {
                match step {
                    Some(demand) => list.push((tree.insert(demand), demand)),
                    None if list.is_empty() => {}
                    None => tree.remove(list.swap_remove(index.index(list.len())).0),
                }
                let wants: f64 = list.iter().map(|(_, demand)| demand.wants).sum();
                let weight: f64 = list.iter().map(|(_, demand)| demand.weight).sum();
                prop_assert!((tree.total().wants - wants).abs() <= 1e-9 * wants);
                prop_assert_eq!(tree.total().weight, weight);
                let ratio = list.first().map_or(1.0, |(_, demand)| demand.ratio());
                let below: f64 = list.iter().filter(|(_, d)| d.ratio() <= ratio).map(|(_, d)| d.weight).sum();
                prop_assert_eq!(tree.split_at(ratio).0.weight, below);
                prop_assert_eq!(tree.split_at(ratio).1.weight, weight - below);
            }
            for (id, _) in list {
                tree.remove(id);
            }
            prop_assert_eq!(tree.total(), Total::default());
        }
    }

    fn depth(tree: &Demands, at: u32) -> usize {
        tree.node(at).map_or(0, |node| {
            1 + depth(tree, node.left).max(depth(tree, node.right))
        })
    }

    /// What the demand of each number wants, and so where it stands; the hash is handed in.
    type Order = fn(u32, fn(u32) -> u32) -> f64;

    #[test]
    fn stays_shallow_in_whatever_order_demands_come() {
        let hash = |id: u32| {
            let key = (id ^ (id >> 16)).wrapping_mul(0x85eb_ca6b);
            let key = (key ^ (key >> 13)).wrapping_mul(0xc2b2_ae35);
            key ^ (key >> 16)
        };
        // The last is the order that turns a treap with this well-known hash of the index for its keys into a list.
        let orders: [Order; 3] = [
            |id, _| f64::from(id),
            |_, _| 1.0,
            |id, hash| f64::from(hash(id)),
        ];
        for order in orders {
            let mut tree = Demands::default();
            for id in 0..50_000 {
                tree.insert(Demand {
                    wants: order(id, hash),
                    weight: 1.0,
                });
            }
            assert!(depth(&tree, tree.root) < 80, "{}", depth(&tree, tree.root));
        }
    }

    #[test]
    fn two_trees_of_the_same_demands_differ_so_that_nobody_can_know_their_shape() {
        let shape = || {
            let mut tree = Demands::default();
            for id in 0..1_000 {
                tree.insert(Demand {
                    wants: f64::from(id),
                    weight: 1.0,
                });
            }
            tree.nodes.iter().map(|node| node.left).collect::<Vec<_>>()
        };
        assert_ne!(shape(), shape());
    }
}
