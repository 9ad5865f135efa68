//! All demands for a resource, ordered by band and by wants per client, with exact sums of ranges.

mod bands;
mod node;
mod priorities;

#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use smallvec::SmallVec;

pub(super) use self::bands::Demands;
use self::{
    node::{Node, Span},
    priorities::Priorities,
};

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
    /// Orders demands of equal ratio. A number comes again after 2³² demands.
    number: u32,
    /// Its priority, or that of the lowest band. Always 0 if the algorithm ignores priorities.
    band: i32,
}

impl PlacedDemand {
    pub(super) fn demand(self) -> Demand {
        self.demand
    }

    pub(super) fn band(self) -> i32 {
        self.band
    }

    fn key(self) -> SortKey {
        SortKey {
            ratio: self.demand.ratio(),
            number: self.number,
            band: self.band,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct SortKey {
    ratio: f64,
    number: u32,
    band: i32,
}

impl SortKey {
    const FIRST: Self = Self {
        ratio: f64::NEG_INFINITY,
        number: 0,
        band: i32::MAX,
    };

    fn precedes(self, other: Self) -> bool {
        other
            .band
            .cmp(&self.band)
            .then(self.ratio.total_cmp(&other.ratio))
            .then(self.number.cmp(&other.number))
            == Ordering::Less
    }
}

/// The demands of a resource, ordered by band, the highest first, then by ratio, then by arrival.
///
/// A B⁺-tree (Comer, "The Ubiquitous B-Tree", Computing Surveys, 1979) whose inner nodes hold the
/// sums of their children. A decision among a million demands reads half a dozen nodes.
#[derive(Debug, Clone, Default)]
pub(super) struct DemandTree {
    root: Node,
    total: DemandSum,
    next_number: u32,
    /// Present if the algorithm reads priorities.
    priorities: Option<Box<Priorities>>,
    /// The demands of clients beyond the first of each. They have a weight, but do not count as
    /// clients.
    further_bands: usize,
}

impl DemandTree {
    /// An empty tree. Without priorities all demands are in one band.
    pub(super) fn new(by_priority: bool) -> Self {
        Self {
            priorities: by_priority.then(Box::default),
            ..Self::default()
        }
    }

    pub(super) fn is_by_priority(&self) -> bool {
        self.priorities.is_some()
    }

    /// Insert the demands of a holder from its highest priority down: a lower one does not change
    /// the band of a higher one.
    pub(super) fn insert(&mut self, priority: i32, demand: Demand) -> PlacedDemand {
        if let Some(priorities) = &mut self.priorities {
            priorities.add(priority);
        }
        let number = self.next_number;
        self.next_number = self.next_number.wrapping_add(1);
        self.place(PlacedDemand {
            demand,
            number,
            band: self.band_of(priority),
        })
    }

    pub(super) fn remove(&mut self, priority: i32, placed: PlacedDemand) {
        if let Some(priorities) = &mut self.priorities {
            priorities.remove(priority);
        }
        self.root.remove(placed.key());
        self.root.drop_needless_levels();
        self.total = self.root.sum();
    }

    /// Also moves the demand to its band if the bands have changed since it was placed.
    pub(super) fn replace(
        &mut self,
        priority: i32,
        placed: PlacedDemand,
        demand: Demand,
    ) -> PlacedDemand {
        let band = self.band_of(priority);
        if placed.demand == demand && placed.band == band {
            return placed;
        }
        self.root.remove(placed.key());
        self.place(PlacedDemand {
            demand,
            band,
            ..placed
        })
    }

    pub(super) fn total(&self) -> DemandSum {
        self.total
    }

    /// The number of clients, including those behind nodes.
    pub(super) fn clients(&self) -> f64 {
        self.total.weight - self.further_bands as f64
    }

    /// The number of clients with demand; one with a demand below that of `one_request` counts as
    /// a part of a client.
    pub(super) fn requesting_clients(&self, one_request: f64) -> f64 {
        let mut clients = 0.0;
        let mut band = self.highest_band(None);
        while let Some(this) = band {
            let (below, above) = self.band(this).split_at(one_request);
            clients += below.wants / one_request + above.weight;
            band = self.highest_band(Some(this));
        }
        // A client may want something at several priorities.
        clients.min(self.clients())
    }

    /// Counts further demands of one client.
    pub(super) fn add_further_bands(&mut self, bands: usize) {
        self.further_bands = self.further_bands.saturating_add(bands);
    }

    pub(super) fn remove_further_bands(&mut self, bands: usize) {
        self.further_bands = self.further_bands.saturating_sub(bands);
    }

    fn band_of(&self, priority: i32) -> i32 {
        self.priorities
            .as_ref()
            .map_or(0, |priorities| priorities.band_of(priority))
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

/// The sums of the prefix for which `is_before` holds, and of the rest.
fn split<S: Span>(spans: &[S], is_before: &impl Fn(SortKey) -> bool) -> (DemandSum, DemandSum) {
    let end = spans.iter().take_while(|it| is_before(it.last())).count();
    let (first, rest) = spans.split_at_checked(end).unwrap_or((spans, &[]));
    let Some((cut, rest)) = rest.split_first() else {
        return (sum(first), DemandSum::default());
    };
    let (before, after) = match cut.node() {
        None => (DemandSum::default(), cut.sum()),
        Some(Node::Leaf(demands)) => split(demands, is_before),
        Some(Node::Inner(branches)) => split(branches, is_before),
    };
    (sum(first).plus(before), after.plus(sum(rest)))
}

fn sum<S: Span>(spans: &[S]) -> DemandSum {
    spans
        .iter()
        .fold(DemandSum::default(), |sum, span| sum.plus(span.sum()))
}

/// The ratio at which the capacity is used up if every demand is met up to it (water-filling).
/// Infinite if all demands fit.
fn fill_level<S: Span>(spans: &[S], capacity: f64) -> f64 {
    let mut filling = Filling {
        capacity,
        met: 0.0,
        weight_above: 0.0,
    };
    filling.fill(spans);
    if filling.weight_above > 0.0 {
        (capacity - filling.met).max(0.0) / filling.weight_above
    } else {
        f64::INFINITY
    }
}

struct Filling {
    capacity: f64,
    /// The sum of the demands that are met in full.
    met: f64,
    /// The weight behind the last span that was examined.
    weight_above: f64,
}

impl Filling {
    fn fill<S: Span>(&mut self, spans: &[S]) {
        let Some(unmet) = self.advance(spans) else {
            return;
        };
        match unmet.node() {
            None => self.weight_above += unmet.sum().weight,
            Some(Node::Leaf(demands)) => self.fill(demands),
            Some(Node::Inner(branches)) => self.fill(branches),
        }
    }

    /// Meets spans in order while they fit; returns the first that does not. A span fits if there
    /// is capacity left when everything up to its end is met, and everything above gets the ratio
    /// of its last demand.
    fn advance<'a, S: Span>(&mut self, spans: &'a [S]) -> Option<&'a S> {
        let mut above: SmallVec<[f64; bands::USUAL_SPANS]> = SmallVec::new();
        let mut weight = self.weight_above;
        for span in spans.iter().rev() {
            above.push(weight);
            weight += span.sum().weight;
        }
        for (span, above) in spans.iter().zip(above.into_iter().rev()) {
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
