//! Pure functions from all demands for a capacity to shares. `decide` limits the grants.

mod priority_share;
mod shared_bucket;
mod suppression;

#[cfg(test)]
pub(super) mod tests;

pub(super) use self::{
    priority_share::{BandShares, PriorityLimit},
    shared_bucket::{BucketTerms, SharedBucket},
    suppression::RecentDemand,
};

use doorman_openapi::{AlgorithmKind, Capacity, FillLevel};

use super::demands::{Demand, DemandSum, DemandTree, Demands, PlacedDemand};

/// Relative tolerance, so that three whole steps are not rounded to 2.999.
const TOLERANCE: f64 = 1e-9;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ShareRule {
    pub(super) kind: AlgorithmKind,
    pub(super) capacity: f64,
    pub(super) surplus: Surplus,
    /// Shares are multiples of this; 0 means any amount.
    pub(super) granularity: f64,
    /// PRIORITY_SHARE: the part that a band leaves to the lower ones, from 0 to 1.
    pub(super) floor: f64,
    /// PROPORTIONAL_SHARE: the equal share of all clients of the tree, as the parent node told it;
    /// 0 if there is no parent.
    pub(super) equal_share: f64,
}

/// The unused capacity that is handed out on top of the demands, to absorb spikes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Surplus {
    /// This part of it, from 0 to 1.
    Part(f64),
    /// As much as [`Polling`] says: from a holder that polls it can be recalled at once.
    Recallable,
}

/// How a holder polls for hints, which decides its surplus by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Polling {
    /// It does not, and has no recallable surplus.
    No,
    /// This is its first lease. Others may start beside it, so it gets its part, by weight, of
    /// [`RECALLABLE_AT_FIRST`].
    First,
    /// It gets its part, by weight, of [`RECALLABLE`].
    Yes,
    /// It is the only holder. It leaves capacity for a process that takes its place after a crash:
    /// as much as it wants, and at least [`LEFT_BY_ONE`].
    Alone,
}

/// The part of the unused capacity that is handed out to holders that poll.
const RECALLABLE: f64 = 0.75;

/// The part of it for holders with their first lease.
const RECALLABLE_AT_FIRST: f64 = 0.5;

/// The part of it that a lone holder gets at least.
const RECALLABLE_OF_ONE: f64 = 0.1;

/// The part of the capacity that a lone holder leaves, unless it gets more by
/// [`RECALLABLE_OF_ONE`].
const LEFT_BY_ONE: f64 = 0.1;

/// Whether all shares of an algorithm add up to at most the capacity.
pub(super) fn divides(kind: AlgorithmKind) -> bool {
    match kind {
        AlgorithmKind::NoAlgorithm
        | AlgorithmKind::Static
        | AlgorithmKind::Suppression
        | AlgorithmKind::SharedBucket => false,
        AlgorithmKind::ProportionalShare
        | AlgorithmKind::FairShare
        | AlgorithmKind::PriorityShare => true,
    }
}

impl ShareRule {
    /// Whether the shares add up to at most the capacity, so that a grant depends on the others.
    pub(super) fn divides(&self) -> bool {
        divides(self.kind)
    }

    /// Whether the demands must be ordered by priority.
    pub(super) fn reads_priorities(&self) -> bool {
        self.kind == AlgorithmKind::PriorityShare
    }

    pub(super) fn share(
        &self,
        demands: &DemandTree,
        own: impl Iterator<Item = PlacedDemand> + Clone,
        polling: Polling,
    ) -> f64 {
        self.share_with(&mut BandShares::default(), demands, own, polling)
    }

    /// The same, for several holders. `bands` is for one order and state of the demands, and one
    /// capacity and floor.
    pub(super) fn share_with(
        &self,
        bands: &mut BandShares,
        demands: &DemandTree,
        own: impl Iterator<Item = PlacedDemand> + Clone,
        polling: Polling,
    ) -> f64 {
        let wants = || own.clone().map(|placed| placed.demand().wants).sum::<f64>();
        let curve = match self.kind {
            // Only whole steps are granted, so a larger share would never be reached.
            AlgorithmKind::NoAlgorithm => return self.round_down(wants()),
            AlgorithmKind::Static => return self.round_down(wants().min(self.capacity)),
            AlgorithmKind::Suppression | AlgorithmKind::SharedBucket => {
                return self.round_down(self.capacity);
            }
            AlgorithmKind::PriorityShare => {
                return self.priority_share(bands, demands, own, polling);
            }
            AlgorithmKind::ProportionalShare | AlgorithmKind::FairShare if self.fits(demands) => {
                ShareCurve::as_wanted(self.surplus_per_weight(demands, polling))
            }
            AlgorithmKind::ProportionalShare => {
                proportional_share(self.capacity, self.equal_share(demands), &demands.all())
            }
            AlgorithmKind::FairShare => fair_share(self.capacity, &demands.all()),
        };
        own.map(|placed| self.share_by(&curve, &demands.all(), placed, 0.0))
            .sum()
    }

    /// The share of a demand among `demands`, after shares of `before` in order.
    fn share_by(
        &self,
        curve: &ShareCurve,
        demands: &Demands<'_>,
        placed: PlacedDemand,
        before: f64,
    ) -> f64 {
        if self.granularity > 0.0 {
            curve.share_in_steps(demands, placed, self.granularity, before)
        } else {
            curve.unrounded_share(placed.demand())
        }
    }

    /// PRIORITY_SHARE. Whole steps are counted from the lowest band up, so that what rounding
    /// leaves in lower bands goes to higher ones.
    fn priority_share(
        &self,
        bands: &mut BandShares,
        demands: &DemandTree,
        own: impl Iterator<Item = PlacedDemand>,
        polling: Polling,
    ) -> f64 {
        if !self.fits(demands) {
            return own.map(|placed| bands.share(self, demands, placed)).sum();
        }
        let curve = ShareCurve::as_wanted(self.surplus_per_weight(demands, polling));
        own.map(|placed| {
            if self.granularity == 0.0 {
                return curve.unrounded_share(placed.demand());
            }
            let before = curve.below.at(demands.sum_below(placed.band()));
            self.share_by(&curve, &demands.band(placed.band()), placed, before)
        })
        .sum()
    }

    /// Why PRIORITY_SHARE does not meet a holder's demand, at the lowest priority that lacks
    /// something; `None` if it does.
    pub(super) fn priority_limit(
        &self,
        bands: &mut BandShares,
        demands: &DemandTree,
        own: impl Iterator<Item = PlacedDemand>,
    ) -> Option<PriorityLimit> {
        if !self.reads_priorities() || self.fits(demands) {
            return None;
        }
        own.filter_map(|placed| bands.limit(self, demands, placed))
            .last()
    }

    /// The share before rounding to whole steps; `None` without granularity.
    pub(super) fn unrounded_share(
        &self,
        bands: &mut BandShares,
        demands: &DemandTree,
        own: impl Iterator<Item = PlacedDemand> + Clone,
        polling: Polling,
    ) -> Option<f64> {
        let unrounded = Self {
            granularity: 0.0,
            ..*self
        };
        (self.granularity > 0.0).then(|| unrounded.share_with(bands, demands, own, polling))
    }

    /// The most that FAIR_SHARE gives one client; `None` while every demand is met.
    pub(super) fn fill_level(&self, demands: &DemandTree) -> Option<f64> {
        let is_limited = self.kind == AlgorithmKind::FairShare && !self.fits(demands);
        let level = is_limited.then(|| demands.all().fill_level(self.capacity));
        // Rounding can make the demands fit here that did not fit above.
        level.filter(|level| level.is_finite())
    }

    /// The demand per client up to which clients are treated alike: a node that splits the demand
    /// of its clients there loses nothing by adding it up. Empty while every demand is met.
    pub(super) fn levels(&self, demands: &DemandTree) -> Vec<FillLevel> {
        let one = |level| {
            vec![FillLevel {
                priority: None,
                level: Capacity::saturating(level),
            }]
        };
        match self.kind {
            AlgorithmKind::Static => one(self.capacity),
            AlgorithmKind::FairShare => self.fill_level(demands).map_or_else(Vec::new, one),
            AlgorithmKind::ProportionalShare if !self.fits(demands) => {
                one(self.equal_share(demands))
            }
            AlgorithmKind::PriorityShare if !self.fits(demands) => {
                BandShares::default().levels(self, demands)
            }
            AlgorithmKind::ProportionalShare
            | AlgorithmKind::PriorityShare
            | AlgorithmKind::NoAlgorithm
            | AlgorithmKind::Suppression
            | AlgorithmKind::SharedBucket => Vec::new(),
        }
    }

    /// The largest multiple of the granularity up to `amount`.
    pub(super) fn round_down(&self, amount: f64) -> f64 {
        if self.granularity > 0.0 {
            whole_steps(amount, self.granularity) * self.granularity
        } else {
            amount
        }
    }

    /// PROPORTIONAL_SHARE: the equal share of a client. That of the whole tree counts if the
    /// capacity covers it: only then do the shares of a node's clients equal those in one server.
    fn equal_share(&self, demands: &DemandTree) -> f64 {
        let (below, above) = demands.all().split_at(self.equal_share);
        let needed = below.wants + self.equal_share * above.weight;
        if self.equal_share > 0.0 && needed <= self.capacity {
            self.equal_share
        } else {
            self.capacity / demands.total().weight.max(1.0)
        }
    }

    /// The demand that no shares can meet.
    pub(super) fn unmet(&self, demands: &DemandTree) -> f64 {
        let unmet = match self.kind {
            AlgorithmKind::NoAlgorithm => return 0.0,
            // Each client may have the whole capacity.
            AlgorithmKind::Static => {
                let (_, above) = demands.all().split_at(self.capacity);
                above.wants - self.capacity * above.weight
            }
            AlgorithmKind::ProportionalShare
            | AlgorithmKind::FairShare
            | AlgorithmKind::PriorityShare
            | AlgorithmKind::Suppression
            | AlgorithmKind::SharedBucket => demands.total().wants - self.capacity,
        };
        self.without_rounding(unmet)
    }

    /// Hides what rounding leaves of an unmet demand.
    pub(super) fn without_rounding(&self, unmet: f64) -> f64 {
        if unmet > self.capacity * TOLERANCE {
            unmet
        } else {
            0.0
        }
    }

    fn fits(&self, demands: &DemandTree) -> bool {
        demands.total().wants <= self.capacity
    }

    fn surplus_per_weight(&self, demands: &DemandTree, polling: Polling) -> f64 {
        let total = demands.total();
        let unused = self.capacity - total.wants;
        let surplus = match (self.surplus, polling) {
            (Surplus::Part(part), _) => part * unused,
            (Surplus::Recallable, Polling::No) => 0.0,
            (Surplus::Recallable, Polling::First) => RECALLABLE_AT_FIRST * unused,
            (Surplus::Recallable, Polling::Yes) => RECALLABLE * unused,
            (Surplus::Recallable, Polling::Alone) => {
                let left = total.wants.max(LEFT_BY_ONE * self.capacity);
                (unused - left).max(RECALLABLE_OF_ONE * unused)
            }
        };
        surplus / total.weight.max(1.0)
    }
}

/// FAIR_SHARE: the weighted max-min fair share. Every demand is met up to one common level per
/// weight, the highest that the capacity allows (Bertsekas and Gallager, "Data Networks", §6.5.2).
/// Google's Doorman approximates it in two rounds; this is exact.
fn fair_share(capacity: f64, demands: &Demands<'_>) -> ShareCurve {
    let level = demands.fill_level(capacity);
    if level.is_infinite() {
        return ShareCurve::as_wanted(0.0);
    }
    ShareCurve {
        threshold: level,
        below: Line::AS_WANTED,
        above: Line {
            per_want: 0.0,
            per_weight: level,
        },
    }
}

/// PROPORTIONAL_SHARE, as defined in the Doorman design document. Each demand is met up to an equal
/// share per weight. Capacity left over by smaller demands goes to the larger ones, in proportion
/// to what they want beyond their equal share.
fn proportional_share(capacity: f64, equal: f64, demands: &Demands<'_>) -> ShareCurve {
    let (met, unmet) = demands.split_at(equal);
    let left_over = (capacity - met.wants - equal * unmet.weight).max(0.0);
    let need = unmet.wants - equal * unmet.weight;
    let part = if need > 0.0 {
        (left_over / need).min(1.0)
    } else {
        0.0
    };
    ShareCurve {
        threshold: equal,
        below: Line::AS_WANTED,
        above: Line {
            per_want: part,
            per_weight: equal * (1.0 - part),
        },
    }
}

/// Share by demand, linear up to and above `threshold` per weight, so that it also maps sums.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ShareCurve {
    threshold: f64,
    below: Line,
    above: Line,
}

impl ShareCurve {
    fn as_wanted(surplus_per_weight: f64) -> Self {
        let line = Line {
            per_weight: surplus_per_weight,
            ..Line::AS_WANTED
        };
        Self {
            threshold: f64::INFINITY,
            below: line,
            above: line,
        }
    }

    fn unrounded_share(&self, demand: Demand) -> f64 {
        if demand.ratio() <= self.threshold {
            self.below.at(demand.into())
        } else {
            self.above.at(demand.into()).min(demand.wants)
        }
    }

    /// The share in whole steps: the steps that fit into the shares up to this demand in tree
    /// order, less those that fit before it. Each share is rounded up or down, and together they
    /// use all whole steps.
    fn share_in_steps(
        &self,
        demands: &Demands<'_>,
        placed: PlacedDemand,
        step: f64,
        before: f64,
    ) -> f64 {
        let (below, above) = demands.sums_before(placed, self.threshold);
        let before = before + self.below.at(below) + self.above.at(above);
        let after = before + self.unrounded_share(placed.demand());
        (whole_steps(after, step) - whole_steps(before, step)) * step
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Line {
    per_want: f64,
    per_weight: f64,
}

impl Line {
    const AS_WANTED: Self = Self {
        per_want: 1.0,
        per_weight: 0.0,
    };

    fn at(self, sum: DemandSum) -> f64 {
        self.per_want * sum.wants + self.per_weight * sum.weight
    }
}

fn whole_steps(amount: f64, step: f64) -> f64 {
    (amount / step + TOLERANCE).floor()
}
