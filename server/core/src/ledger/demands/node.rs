//! Nodes of the demand tree: insertion, splitting and rebalancing.

use super::{DemandSum, PlacedDemand, SortKey, sum};

/// A node has fewer children: 24 bytes each in a leaf, a cache line each in an inner node.
pub(super) const MAX_CHILDREN: usize = 16;

/// A node with fewer children borrows from its neighbour, or is merged with it.
const MIN_CHILDREN: usize = MAX_CHILDREN / 4;

pub(super) trait Span {
    fn sum(&self) -> DemandSum;
    fn last(&self) -> SortKey;
    /// The node that it is the sum of; none for a single demand.
    fn node(&self) -> Option<&Node>;
}

impl Span for PlacedDemand {
    fn sum(&self) -> DemandSum {
        self.demand.into()
    }

    fn last(&self) -> SortKey {
        self.key()
    }

    fn node(&self) -> Option<&Node> {
        None
    }
}

#[derive(Debug, Clone)]
pub(super) struct Branch {
    /// Recomputed from the children on every change, so that it does not drift.
    sum: DemandSum,
    last: SortKey,
    pub(super) node: Node,
}

impl Branch {
    fn new(node: Node) -> Self {
        Self {
            sum: node.sum(),
            last: node.last(),
            node,
        }
    }

    fn update(&mut self) {
        self.sum = self.node.sum();
        self.last = self.node.last();
    }
}

impl Span for Branch {
    fn sum(&self) -> DemandSum {
        self.sum
    }

    fn last(&self) -> SortKey {
        self.last
    }

    fn node(&self) -> Option<&Node> {
        Some(&self.node)
    }
}

#[derive(Debug, Clone)]
pub(super) enum Node {
    Leaf(Vec<PlacedDemand>),
    Inner(Vec<Branch>),
}

impl Default for Node {
    fn default() -> Self {
        Self::Leaf(Vec::new())
    }
}

impl Node {
    pub(super) fn sum(&self) -> DemandSum {
        match self {
            Self::Leaf(demands) => sum(demands),
            Self::Inner(branches) => sum(branches),
        }
    }

    fn last(&self) -> SortKey {
        let last = match self {
            Self::Leaf(demands) => demands.last().map(Span::last),
            Self::Inner(branches) => branches.last().map(Span::last),
        };
        last.unwrap_or(SortKey::FIRST)
    }

    fn len(&self) -> usize {
        match self {
            Self::Leaf(demands) => demands.len(),
            Self::Inner(branches) => branches.len(),
        }
    }

    /// Returns the upper half if the node was split.
    pub(super) fn insert(&mut self, new: PlacedDemand) -> Option<Branch> {
        match self {
            Self::Leaf(demands) => {
                demands.insert(position(demands, new.key()), new);
                split_off(demands).map(|upper| Branch::new(Self::Leaf(upper)))
            }
            Self::Inner(branches) => {
                let at = position(branches, new.key()).min(branches.len().saturating_sub(1));
                let branch = branches.get_mut(at)?;
                let upper = branch.node.insert(new);
                branch.update();
                branches.insert(at.saturating_add(1), upper?);
                split_off(branches).map(|upper| Branch::new(Self::Inner(upper)))
            }
        }
    }

    pub(super) fn remove(&mut self, old: SortKey) {
        match self {
            Self::Leaf(demands) => {
                let at = position(demands, old);
                if demands
                    .get(at)
                    .is_some_and(|found| !old.precedes(found.key()))
                {
                    demands.remove(at);
                }
            }
            Self::Inner(branches) => {
                let at = position(branches, old);
                let Some(branch) = branches.get_mut(at) else {
                    return;
                };
                branch.node.remove(old);
                if branch.node.len() < MIN_CHILDREN {
                    rebalance(branches, at);
                } else {
                    branch.update();
                }
            }
        }
    }

    /// On the root: puts a level above it and its split-off half.
    pub(super) fn add_level(&mut self, upper: Branch) {
        let mut branches = Vec::with_capacity(MAX_CHILDREN);
        branches.extend([Branch::new(std::mem::take(self)), upper]);
        *self = Self::Inner(branches);
    }

    /// On the root: replaces it by an only child.
    pub(super) fn drop_needless_levels(&mut self) {
        while let Self::Inner(branches) = self
            && branches.len() <= 1
        {
            *self = branches.pop().map(|only| only.node).unwrap_or_default();
        }
    }
}

/// Scans in order, which is fast for so few; the caller sums all of them anyway.
fn position<S: Span>(spans: &[S], key: SortKey) -> usize {
    let before = spans.iter().take_while(|span| span.last().precedes(key));
    before.count()
}

fn split_off<T>(children: &mut Vec<T>) -> Option<Vec<T>> {
    (children.len() >= MAX_CHILDREN).then(|| {
        let mut upper = Vec::with_capacity(MAX_CHILDREN);
        upper.extend(children.drain(MAX_CHILDREN / 2..));
        upper
    })
}

/// Evens out a small node and the one before it; the first one with the second.
fn rebalance(branches: &mut Vec<Branch>, small: usize) {
    let second = small.max(1);
    if let Some([first, second]) = branches.get_mut(second.saturating_sub(1)..=second) {
        match (&mut first.node, &mut second.node) {
            (Node::Leaf(first), Node::Leaf(second)) => even_out(first, second),
            (Node::Inner(first), Node::Inner(second)) => even_out(first, second),
            // All leaves are at the same depth.
            _ => {}
        }
        first.update();
        second.update();
    }
    if branches
        .get(second)
        .is_some_and(|second| second.node.len() == 0)
    {
        branches.remove(second);
    }
}

/// Empties the second if both fit into one node.
fn even_out<T>(first: &mut Vec<T>, second: &mut Vec<T>) {
    let all = first.len().saturating_add(second.len());
    let stay = if all < MAX_CHILDREN { all } else { all / 2 };
    if first.len() > stay {
        second.splice(..0, first.drain(stay..));
    } else {
        first.extend(second.drain(..stay.saturating_sub(first.len())));
    }
}

#[cfg(test)]
impl Node {
    /// Checks the invariants of the tree; returns its depth.
    pub(super) fn check(&self, is_root: bool) -> usize {
        assert!(
            self.len() < MAX_CHILDREN && (is_root || self.len() >= MIN_CHILDREN),
            "{}",
            self.len()
        );
        match self {
            Self::Leaf(demands) => {
                assert!(demands.is_sorted_by(|a, b| a.key().precedes(b.key())));
                1
            }
            Self::Inner(branches) => {
                assert!(branches.len() > 1);
                assert!(branches.is_sorted_by(|a, b| a.last.precedes(b.last)));
                let depths = branches.iter().map(|branch| {
                    assert_eq!(branch.sum, branch.node.sum());
                    assert_eq!(branch.last.number, branch.node.last().number);
                    branch.node.check(false)
                });
                let depths: std::collections::BTreeSet<_> = depths.collect();
                assert_eq!(depths.len(), 1, "leaves at {depths:?}");
                1 + depths.first().unwrap()
            }
        }
    }
}
