//! All demands for a resource, ordered by wants per client, with exact sums of any prefix.

mod node;

#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use self::node::{Node, Span};

/// The demand of one client, or of a node's clients at one priority.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Demand {
    pub(super) wants: f64,
    pub(super) weight: f64,
}

impl Demand {
    /// Wants per client.
    pub(super) fn ratio(self) -> f64 {
        self.wants / self.weight
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct DemandSum {
    pub(super) wants: f64,
    pub(super) weight: f64,
}

impl DemandSum {
    fn plus(self, other: Self) -> Self {
        Self {
            wants: self.wants + other.wants,
            weight: self.weight + other.weight,
        }
    }
}

impl From<Demand> for DemandSum {
    fn from(demand: Demand) -> Self {
        Self {
            wants: demand.wants,
            weight: demand.weight,
        }
    }
}

/// A demand in the tree. Its owner keeps it as the key to find it again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PlacedDemand {
    demand: Demand,
    /// Orders demands of equal ratio.
    number: u64,
}

impl PlacedDemand {
    pub(super) fn demand(self) -> Demand {
        self.demand
    }

    fn key(self) -> SortKey {
        SortKey {
            ratio: self.demand.ratio(),
            number: self.number,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct SortKey {
    ratio: f64,
    number: u64,
}

impl SortKey {
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

/// The demands of a resource, ordered by ratio, then by arrival.
///
/// A B⁺-tree (Comer, "The Ubiquitous B-Tree", Computing Surveys, 1979) whose inner nodes hold the
/// sums of their children. A decision among a million demands reads half a dozen nodes.
#[derive(Debug, Default)]
pub(super) struct DemandTree {
    root: Node,
    total: DemandSum,
    next_number: u64,
}

impl DemandTree {
    pub(super) fn insert(&mut self, demand: Demand) -> PlacedDemand {
        let number = self.next_number;
        self.next_number = self.next_number.wrapping_add(1);
        self.place(PlacedDemand { demand, number })
    }

    pub(super) fn remove(&mut self, placed: PlacedDemand) {
        self.root.remove(placed.key());
        self.root.drop_needless_levels();
        self.total = self.root.sum();
    }

    pub(super) fn replace(&mut self, placed: PlacedDemand, demand: Demand) -> PlacedDemand {
        self.root.remove(placed.key());
        self.place(PlacedDemand { demand, ..placed })
    }

    pub(super) fn total(&self) -> DemandSum {
        self.total
    }

    /// The ratio at which the capacity is used up if every demand is met up to it (water-filling).
    /// Infinite if all demands fit.
    pub(super) fn fill_level(&self, capacity: f64) -> f64 {
        let mut filling = Filling {
            capacity,
            met: 0.0,
            weight_above: 0.0,
        };
        let mut at = Some(&self.root);
        while let Some(node) = at {
            at = match node {
                Node::Leaf(demands) => {
                    let unmet = filling.advance(demands);
                    filling.weight_above += unmet.map_or(0.0, |placed| placed.demand.weight);
                    None
                }
                Node::Inner(branches) => filling.advance(branches).map(|branch| &branch.node),
            };
        }
        if filling.weight_above > 0.0 {
            (capacity - filling.met).max(0.0) / filling.weight_above
        } else {
            f64::INFINITY
        }
    }

    /// The sums of the demands up to `ratio`, and of those above.
    pub(super) fn split_at(&self, ratio: f64) -> (DemandSum, DemandSum) {
        self.split(|key| key.ratio <= ratio)
    }

    /// The sums of the demands before this one: of those up to `ratio`, and of those above.
    pub(super) fn sums_before(&self, placed: PlacedDemand, ratio: f64) -> (DemandSum, DemandSum) {
        let (before, _) = self.split(|key| key.precedes(placed.key()));
        let (below, _) = self.split_at(ratio);
        if before.weight <= below.weight {
            return (before, DemandSum::default());
        }
        // The demands are ordered, so all that are `below` come before this one.
        let above = DemandSum {
            wants: (before.wants - below.wants).max(0.0),
            weight: (before.weight - below.weight).max(0.0),
        };
        (below, above)
    }

    /// The sums of the prefix for which `is_before` holds, and of the rest.
    fn split(&self, is_before: impl Fn(SortKey) -> bool) -> (DemandSum, DemandSum) {
        let mut sums = (DemandSum::default(), DemandSum::default());
        let mut at = Some(&self.root);
        while let Some(node) = at {
            at = match node {
                Node::Leaf(demands) => {
                    let (first, rest) = split_spans(demands, &is_before);
                    sums = (sums.0.plus(sum(first)), sums.1.plus(sum(rest)));
                    None
                }
                Node::Inner(branches) => {
                    let (first, rest) = split_spans(branches, &is_before);
                    sums.0 = sums.0.plus(sum(first));
                    rest.split_first().map(|(cut, rest)| {
                        sums.1 = sums.1.plus(sum(rest));
                        &cut.node
                    })
                }
            };
        }
        sums
    }

    fn place(&mut self, placed: PlacedDemand) -> PlacedDemand {
        if let Some(upper) = self.root.insert(placed) {
            self.root.add_level(upper);
        } else {
            self.root.drop_needless_levels();
        }
        self.total = self.root.sum();
        placed
    }
}

fn split_spans<S: Span>(spans: &[S], is_before: impl Fn(SortKey) -> bool) -> (&[S], &[S]) {
    let end = spans.iter().take_while(|it| is_before(it.last())).count();
    spans.split_at_checked(end).unwrap_or((spans, &[]))
}

fn sum<S: Span>(spans: &[S]) -> DemandSum {
    spans
        .iter()
        .fold(DemandSum::default(), |sum, span| sum.plus(span.sum()))
}

struct Filling {
    capacity: f64,
    /// The sum of the demands that are met in full.
    met: f64,
    /// The weight behind the last span that was examined.
    weight_above: f64,
}

impl Filling {
    /// Meets spans in order while they fit; returns the first that does not. A span fits if there
    /// is capacity left when everything up to its end is met, and everything above gets the ratio
    /// of its last demand.
    fn advance<'a, S: Span>(&mut self, spans: &'a [S]) -> Option<&'a S> {
        let mut above = [0.0; node::MAX_CHILDREN];
        let mut weight = self.weight_above;
        for (above, span) in above.iter_mut().zip(spans).rev() {
            *above = weight;
            weight += span.sum().weight;
        }
        for (span, above) in spans.iter().zip(above) {
            let met = self.met + span.sum().wants;
            if met + span.last().ratio * above > self.capacity {
                self.weight_above = above;
                return Some(span);
            }
            self.met = met;
        }
        None
    }
}
