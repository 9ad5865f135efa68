//! The nodes of the tree of demands: how they split, and how they even out.

use super::{Key, Placed, Total, sum};

/// A node has fewer children than this. A leaf's are 24 bytes each, an inner node's one line of the cache.
pub(super) const MOST: usize = 16;

/// A node with fewer children than this takes some from a neighbour, or becomes one with it.
const FEWEST: usize = MOST / 4;

/// Some demands that follow each other.
pub(super) trait Run {
    fn total(&self) -> Total;
    /// Where the last of them stands.
    fn last(&self) -> Key;
}

impl Run for Placed {
    fn total(&self) -> Total {
        self.demand.into()
    }

    fn last(&self) -> Key {
        self.key()
    }
}

/// A node with what its parent knows of it.
#[derive(Debug)]
pub(super) struct Branch {
    /// Recomputed from the node's children whenever they change, never added to or taken from.
    total: Total,
    last: Key,
    pub(super) below: Node,
}

impl Branch {
    fn of(below: Node) -> Self {
        Self {
            total: below.total(),
            last: below.last(),
            below,
        }
    }

    fn look_again(&mut self) {
        self.total = self.below.total();
        self.last = self.below.last();
    }
}

impl Run for Branch {
    fn total(&self) -> Total {
        self.total
    }

    fn last(&self) -> Key {
        self.last
    }
}

#[derive(Debug)]
pub(super) enum Node {
    Leaf(Vec<Placed>),
    Inner(Vec<Branch>),
}

impl Default for Node {
    fn default() -> Self {
        Self::Leaf(Vec::new())
    }
}

impl Node {
    pub(super) fn total(&self) -> Total {
        match self {
            Self::Leaf(demands) => sum(demands),
            Self::Inner(branches) => sum(branches),
        }
    }

    fn last(&self) -> Key {
        let last = match self {
            Self::Leaf(demands) => demands.last().map(Run::last),
            Self::Inner(branches) => branches.last().map(Run::last),
        };
        last.unwrap_or(Key::FIRST)
    }

    fn len(&self) -> usize {
        match self {
            Self::Leaf(demands) => demands.len(),
            Self::Inner(branches) => branches.len(),
        }
    }

    /// Adds a demand; returns the upper half of a node that has become full.
    pub(super) fn insert(&mut self, new: Placed) -> Option<Branch> {
        match self {
            Self::Leaf(demands) => {
                demands.insert(position(demands, new.key()), new);
                upper_half(demands).map(|upper| Branch::of(Self::Leaf(upper)))
            }
            Self::Inner(branches) => {
                let at = position(branches, new.key()).min(branches.len().saturating_sub(1));
                let branch = branches.get_mut(at)?;
                let upper = branch.below.insert(new);
                branch.look_again();
                branches.insert(at.saturating_add(1), upper?);
                upper_half(branches).map(|upper| Branch::of(Self::Inner(upper)))
            }
        }
    }

    /// Takes out the demand that stands there.
    pub(super) fn remove(&mut self, old: Key) {
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
                branch.below.remove(old);
                if branch.below.len() < FEWEST {
                    even_out_beside(branches, at);
                } else {
                    branch.look_again();
                }
            }
        }
    }

    /// As the root: puts a node above itself and what has been split off.
    pub(super) fn add_level(&mut self, upper: Branch) {
        let mut branches = Vec::with_capacity(MOST);
        branches.extend([Branch::of(std::mem::take(self)), upper]);
        *self = Self::Inner(branches);
    }

    /// As the root: gives way to an only child.
    pub(super) fn drop_needless_levels(&mut self) {
        while let Self::Inner(branches) = self
            && branches.len() <= 1
        {
            *self = branches.pop().map(|only| only.below).unwrap_or_default();
        }
    }
}

/// Where something stands, or would, among runs. One is looked at after the other, as memory is read fastest; all of them will be summed.
fn position<R: Run>(runs: &[R], key: Key) -> usize {
    let before = runs.iter().take_while(|run| run.last().precedes(key));
    before.count()
}

fn upper_half<T>(children: &mut Vec<T>) -> Option<Vec<T>> {
    (children.len() >= MOST).then(|| {
        let mut upper = Vec::with_capacity(MOST);
        upper.extend(children.drain(MOST / 2..));
        upper
    })
}

/// Evens out a node that has become small and the one before it; the first one with the second.
fn even_out_beside(branches: &mut Vec<Branch>, small: usize) {
    let second = small.max(1);
    if let Some([first, second]) = branches.get_mut(second.saturating_sub(1)..=second) {
        match (&mut first.below, &mut second.below) {
            (Node::Leaf(first), Node::Leaf(second)) => even_out(first, second),
            (Node::Inner(first), Node::Inner(second)) => even_out(first, second),
            // All leaves lie equally deep.
            _ => {}
        }
        first.look_again();
        second.look_again();
    }
    if branches
        .get(second)
        .is_some_and(|second| second.below.len() == 0)
    {
        branches.remove(second);
    }
}

/// Empties the second when both together are no more than one may have.
fn even_out<T>(first: &mut Vec<T>, second: &mut Vec<T>) {
    let all = first.len().saturating_add(second.len());
    let stay = if all < MOST { all } else { all / 2 };
    if first.len() > stay {
        second.splice(..0, first.drain(stay..));
    } else {
        first.extend(second.drain(..stay.saturating_sub(first.len())));
    }
}

#[cfg(test)]
impl Node {
    /// How many levels there are, when the node keeps all that it promises.
    pub(super) fn check(&self, is_root: bool) -> usize {
        assert!(
            self.len() < MOST && (is_root || self.len() >= FEWEST),
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
                    assert_eq!(branch.total, branch.below.total());
                    assert_eq!(branch.last.number, branch.below.last().number);
                    branch.below.check(false)
                });
                let depths: std::collections::BTreeSet<_> = depths.collect();
                assert_eq!(depths.len(), 1, "leaves at {depths:?}");
                1 + depths.first().unwrap()
            }
        }
    }
}
