//! Who wants how much: a tree ordered by wants per weight, with sums that do not drift.

mod node;

#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use self::node::{Node, Run};

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

/// A demand that is in the tree: whoever put it there keeps this, to find it again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Placed {
    demand: Demand,
    /// Tells it from others that want as much per weight.
    number: u64,
}

impl Placed {
    pub(super) fn demand(self) -> Demand {
        self.demand
    }

    fn key(self) -> Key {
        Key {
            ratio: self.demand.ratio(),
            number: self.number,
        }
    }
}

/// Where a demand stands among the others.
#[derive(Debug, Clone, Copy)]
struct Key {
    ratio: f64,
    number: u64,
}

impl Key {
    /// Before all others.
    const FIRST: Self = Self {
        ratio: f64::NEG_INFINITY,
        number: 0,
    };

    fn precedes(self, other: Self) -> bool {
        self.ratio
            .total_cmp(&other.ratio)
            .then(self.number.cmp(&other.number))
            == Ordering::Less
    }
}

/// The demands of a resource, ordered by wants per weight, those that want as much in the order in which they came.
///
/// A B⁺-tree (Comer, "The Ubiquitous B-Tree", Computing Surveys, 1979) whose inner nodes keep the sums of their children beside them: a
/// decision among a million demands touches half a dozen places in memory. All leaves lie equally deep whatever the clients ask for.
#[derive(Debug, Default)]
pub(super) struct Demands {
    root: Node,
    total: Total,
    /// How many came so far.
    came: u64,
}

impl Demands {
    /// Adds a demand.
    pub(super) fn insert(&mut self, demand: Demand) -> Placed {
        let number = self.came;
        self.came = self.came.wrapping_add(1);
        self.place(Placed { demand, number })
    }

    /// Takes a demand out.
    pub(super) fn remove(&mut self, placed: Placed) {
        self.root.remove(placed.key());
        self.root.drop_needless_levels();
        self.total = self.root.total();
    }

    /// Puts another demand in the place of one.
    pub(super) fn replace(&mut self, placed: Placed, demand: Demand) -> Placed {
        self.root.remove(placed.key());
        self.place(Placed { demand, ..placed })
    }

    /// The sums of all demands.
    pub(super) fn total(&self) -> Total {
        self.total
    }

    /// The water level at which `capacity` is used up: the most per weight that everyone can have of what they want. Infinite when
    /// all have what they want.
    pub(super) fn water_level(&self, capacity: f64) -> f64 {
        let mut water = Water {
            capacity,
            satisfied: 0.0,
            above: 0.0,
        };
        let mut at = Some(&self.root);
        while let Some(node) = at {
            at = match node {
                Node::Leaf(demands) => {
                    let dry = water.rise(demands);
                    water.above += dry.map_or(0.0, |placed| placed.demand.weight);
                    None
                }
                Node::Inner(branches) => water.rise(branches).map(|branch| &branch.below),
            };
        }
        if water.above > 0.0 {
            (capacity - water.satisfied).max(0.0) / water.above
        } else {
            f64::INFINITY
        }
    }

    /// The sums of the demands that want at most `ratio` per weight, and of those that want more.
    pub(super) fn split_at(&self, ratio: f64) -> (Total, Total) {
        self.split(|key| key.ratio <= ratio)
    }

    /// The sums of the demands that stand before this one: of those that want at most `ratio` per weight, and of the others.
    pub(super) fn before(&self, placed: Placed, ratio: f64) -> (Total, Total) {
        let (before, _) = self.split(|key| key.precedes(placed.key()));
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

    /// The sums of the demands that are `before`, which are the first in the order, and of the others.
    fn split(&self, before: impl Fn(Key) -> bool) -> (Total, Total) {
        let mut sums = (Total::default(), Total::default());
        let mut at = Some(&self.root);
        while let Some(node) = at {
            at = match node {
                Node::Leaf(demands) => {
                    let (first, rest) = part(demands, &before);
                    sums = (sums.0.plus(sum(first)), sums.1.plus(sum(rest)));
                    None
                }
                Node::Inner(branches) => {
                    let (first, rest) = part(branches, &before);
                    sums.0 = sums.0.plus(sum(first));
                    rest.split_first().map(|(cut, rest)| {
                        sums.1 = sums.1.plus(sum(rest));
                        &cut.below
                    })
                }
            };
        }
        sums
    }

    fn place(&mut self, placed: Placed) -> Placed {
        if let Some(upper) = self.root.insert(placed) {
            self.root.add_level(upper);
        } else {
            self.root.drop_needless_levels();
        }
        self.total = self.root.total();
        placed
    }
}

fn part<R: Run>(runs: &[R], before: impl Fn(Key) -> bool) -> (&[R], &[R]) {
    let end = runs.iter().take_while(|run| before(run.last())).count();
    runs.split_at_checked(end).unwrap_or((runs, &[]))
}

fn sum<R: Run>(runs: &[R]) -> Total {
    runs.iter()
        .fold(Total::default(), |sum, run| sum.plus(run.total()))
}

/// Water that rises among the demands.
struct Water {
    capacity: f64,
    /// What those want that are satisfied.
    satisfied: f64,
    /// The weight of those that stand behind the last run that was looked at.
    above: f64,
}

impl Water {
    /// Satisfies runs of demands in their order; returns the first one of which not all can be.
    ///
    /// At each: if all up to its end are satisfied and all above have as much per weight as its last one wants, is there enough?
    fn rise<'a, R: Run>(&mut self, runs: &'a [R]) -> Option<&'a R> {
        let mut above = [0.0; node::MOST];
        let mut weight = self.above;
        for (above, run) in above.iter_mut().zip(runs).rev() {
            *above = weight;
            weight += run.total().weight;
        }
        for (run, above) in runs.iter().zip(above) {
            let satisfied = self.satisfied + run.total().wants;
            if satisfied + run.last().ratio * above > self.capacity {
                self.above = above;
                return Some(run);
            }
            self.satisfied = satisfied;
        }
        None
    }
}
