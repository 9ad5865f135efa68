//! Ranges of the tree: all demands, or those of one band.

use std::ops::RangeInclusive;

use smallvec::SmallVec;

use super::{
    DemandSum, DemandTree, PlacedDemand, SortKey, fill_level,
    node::{Branch, Node, Span},
    split, sum,
};

/// A range of the tree with more spans allocates.
pub(super) const USUAL_SPANS: usize = 64;

/// A range of the demands of a tree, in its order.
#[derive(Debug, Clone)]
pub(in super::super) struct Demands<'a> {
    spans: Spans<'a>,
}

#[derive(Debug, Clone)]
#[expect(
    clippy::large_enum_variant,
    reason = "it lives on the stack, for one decision"
)]
enum Spans<'a> {
    Leaf(&'a [PlacedDemand]),
    Inner(&'a [Branch]),
    Parts(SmallVec<[Part<'a>; USUAL_SPANS]>),
}

/// The largest parts of the tree that are in a range.
#[derive(Debug, Clone, Copy)]
enum Part<'a> {
    Demand(&'a PlacedDemand),
    Branch(&'a Branch),
}

impl Span for Part<'_> {
    fn sum(&self) -> DemandSum {
        match self {
            Self::Demand(demand) => demand.sum(),
            Self::Branch(branch) => branch.sum(),
        }
    }

    fn last(&self) -> SortKey {
        match self {
            Self::Demand(demand) => demand.last(),
            Self::Branch(branch) => branch.last(),
        }
    }

    fn node(&self) -> Option<&Node> {
        match self {
            Self::Demand(_) => None,
            Self::Branch(branch) => Some(&branch.node),
        }
    }
}

impl DemandTree {
    /// All demands. Only without priorities are they ordered by ratio.
    pub(in super::super) fn all(&self) -> Demands<'_> {
        let spans = match &self.root {
            Node::Leaf(demands) => Spans::Leaf(demands),
            Node::Inner(branches) => Spans::Inner(branches),
        };
        Demands { spans }
    }

    /// The demands of one band, ordered by ratio.
    pub(in super::super) fn band(&self, band: i32) -> Demands<'_> {
        self.range(band..=band)
    }

    /// The demands of this band and all lower ones.
    pub(in super::super) fn bands_from(&self, band: i32) -> Demands<'_> {
        self.range(i32::MIN..=band)
    }

    /// The highest band that has demands; below another one, if given.
    pub(in super::super) fn highest_band(&self, below: Option<i32>) -> Option<i32> {
        let is_before = |key: SortKey| below.is_some_and(|below| key.band >= below);
        let mut node = &self.root;
        loop {
            node = match node {
                Node::Leaf(demands) => {
                    let first = demands.iter().find(|demand| !is_before(demand.last()))?;
                    return Some(first.band);
                }
                Node::Inner(branches) => {
                    &branches
                        .iter()
                        .find(|branch| !is_before(branch.last()))?
                        .node
                }
            };
        }
    }

    /// The sum of the demands in higher bands.
    pub(in super::super) fn sum_above(&self, band: i32) -> DemandSum {
        self.all().split(|key| key.band > band).0
    }

    /// The sum of the demands in lower bands.
    pub(in super::super) fn sum_below(&self, band: i32) -> DemandSum {
        self.all().split(|key| key.band >= band).1
    }

    fn range(&self, range: RangeInclusive<i32>) -> Demands<'_> {
        let mut parts = SmallVec::new();
        collect(&self.root, false, &range, &mut parts);
        Demands {
            spans: Spans::Parts(parts),
        }
    }
}

/// Collects the parts of a node in a range. `starts_inside`: its first demand is in the range.
fn collect<'a>(
    node: &'a Node,
    starts_inside: bool,
    range: &RangeInclusive<i32>,
    parts: &mut SmallVec<[Part<'a>; USUAL_SPANS]>,
) {
    let is_before = |key: SortKey| key.band > *range.end();
    let is_within = |key: SortKey| key.band >= *range.start();
    match node {
        Node::Leaf(demands) => {
            let rest = demands.iter().skip_while(|demand| is_before(demand.last()));
            let within = rest.take_while(|demand| is_within(demand.last()));
            for demand in within {
                parts.push(Part::Demand(demand));
            }
        }
        Node::Inner(branches) => {
            let mut starts_inside = starts_inside;
            for branch in branches
                .iter()
                .skip_while(|branch| is_before(branch.last()))
            {
                let ends_inside = is_within(branch.last());
                if starts_inside && ends_inside {
                    parts.push(Part::Branch(branch));
                } else {
                    collect(&branch.node, starts_inside, range, parts);
                }
                if !ends_inside {
                    return;
                }
                starts_inside = true;
            }
        }
    }
}

impl Demands<'_> {
    pub(in super::super) fn sum(&self) -> DemandSum {
        match &self.spans {
            Spans::Leaf(demands) => sum(demands),
            Spans::Inner(branches) => sum(branches),
            Spans::Parts(parts) => sum(parts),
        }
    }

    /// The ratio at which the capacity is used up if every demand is met up to it (water-filling).
    /// Infinite if all demands fit. The demands must be ordered by ratio.
    pub(in super::super) fn fill_level(&self, capacity: f64) -> f64 {
        match &self.spans {
            Spans::Leaf(demands) => fill_level(demands, capacity),
            Spans::Inner(branches) => fill_level(branches, capacity),
            Spans::Parts(parts) => fill_level(parts, capacity),
        }
    }

    /// The sums of the demands up to `ratio`, and of those above.
    pub(in super::super) fn split_at(&self, ratio: f64) -> (DemandSum, DemandSum) {
        self.split(|key| key.ratio <= ratio)
    }

    /// The sums of the demands up to `level`, up to twice that, and of those above: a level that
    /// rises is then closer to one of them.
    pub(in super::super) fn split_in_levels(&self, level: Option<f64>) -> [DemandSum; 3] {
        let Some(level) = level else {
            return [self.sum(), DemandSum::default(), DemandSum::default()];
        };
        let (below, _) = self.split_at(level);
        let (_, above) = self.split_at(2.0 * level);
        let all = self.sum();
        let between = DemandSum {
            wants: (all.wants - below.wants - above.wants).max(0.0),
            weight: (all.weight - below.weight - above.weight).max(0.0),
        };
        [below, between, above]
    }

    /// The sums of the demands before this one: of those up to `ratio`, and of those above.
    pub(in super::super) fn sums_before(
        &self,
        placed: PlacedDemand,
        ratio: f64,
    ) -> (DemandSum, DemandSum) {
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

    fn split(&self, is_before: impl Fn(SortKey) -> bool) -> (DemandSum, DemandSum) {
        match &self.spans {
            Spans::Leaf(demands) => split(demands, &is_before),
            Spans::Inner(branches) => split(branches, &is_before),
            Spans::Parts(parts) => split(parts, &is_before),
        }
    }
}
