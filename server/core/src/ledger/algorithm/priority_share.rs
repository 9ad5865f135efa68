//! Shares of bands in overload (PRIORITY_SHARE): the highest first, each max-min fair in itself.
//!
//! A band takes at most what the higher ones have left, less the floor: a part of that which it
//! leaves to the lower bands if they want it.

use doorman_openapi::{Capacity, FillLevel, MAX_BANDS};
use smallvec::SmallVec;

use super::{
    super::demands::{DemandTree, Demands, PlacedDemand},
    Line, ShareCurve, ShareRule, fair_share,
};

/// The shares of the bands, computed from the highest down as far as they are asked for. They are
/// valid until a demand changes.
#[derive(Debug, Default)]
pub(in super::super) struct BandShares {
    computed: SmallVec<[BandShare; 4]>,
}

#[derive(Debug, Clone, Copy)]
struct BandShare {
    /// One band, or all from the first down that gets no share of its own.
    highest: i32,
    lowest: i32,
    curve: ShareCurve,
    /// The most that it gets.
    most: f64,
    /// The capacity left to lower bands, and the part that they take.
    left: f64,
    taken_by_lower: f64,
}

/// Why a demand is not met.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in super::super) struct PriorityLimit {
    /// Its priority, or the lowest one that has a share of its own.
    pub(in super::super) priority: i32,
    /// The demand of higher priorities.
    pub(in super::super) higher: f64,
    /// The demand of its priority.
    pub(in super::super) wants: f64,
    /// The most that its priority gets.
    pub(in super::super) most: f64,
    /// The most that a client of its priority gets.
    pub(in super::super) level: f64,
}

impl BandShares {
    pub(super) fn share(
        &mut self,
        rule: &ShareRule,
        demands: &DemandTree,
        placed: PlacedDemand,
    ) -> f64 {
        let Some(band) = self.band_of(rule, demands, placed) else {
            return 0.0;
        };
        if rule.granularity == 0.0 {
            return band.curve.unrounded_share(placed.demand());
        }
        let before = band.taken_by_lower;
        rule.share_by(&band.curve, &band.demands(demands), placed, before)
    }

    /// Why a demand is not met; `None` if it is.
    pub(super) fn limit(
        &mut self,
        rule: &ShareRule,
        demands: &DemandTree,
        placed: PlacedDemand,
    ) -> Option<PriorityLimit> {
        let band = self.band_of(rule, demands, placed)?;
        let demand = placed.demand();
        let share = band.curve.unrounded_share(demand);
        (share < demand.wants).then(|| PriorityLimit {
            priority: placed.band(),
            higher: demands.sum_above(placed.band()).wants,
            wants: demands.band(placed.band()).sum().wants,
            most: band.most,
            level: share / demand.weight,
        })
    }

    /// The levels of the bands whose demand is not met.
    pub(super) fn levels(&mut self, rule: &ShareRule, demands: &DemandTree) -> Vec<FillLevel> {
        while let Some(band) = self.next(rule, demands)
            && band.lowest == band.highest
        {
            self.computed.push(band);
        }
        let limited = self
            .computed
            .iter()
            .filter(|it| it.curve.threshold.is_finite());
        let levels = limited.map(|band| FillLevel {
            priority: Some(band.highest),
            level: Capacity::saturating(band.curve.threshold),
        });
        levels.collect()
    }

    fn band_of(
        &mut self,
        rule: &ShareRule,
        demands: &DemandTree,
        placed: PlacedDemand,
    ) -> Option<BandShare> {
        let is_higher = |band: &BandShare| band.lowest > placed.band();
        while self.computed.last().is_none_or(is_higher) {
            let next = self.next(rule, demands)?;
            self.computed.push(next);
        }
        let at = self.computed.partition_point(is_higher);
        self.computed.get(at).copied()
    }

    fn next(&self, rule: &ShareRule, demands: &DemandTree) -> Option<BandShare> {
        let last = self.computed.last();
        let left = last.map_or(rule.capacity, |last| last.left);
        let band = demands.highest_band(last.map(|last| last.lowest))?;
        let is_last = left <= 0.0 || self.computed.len() >= MAX_BANDS;
        Some(if is_last {
            BandShare::rest(band, left, demands)
        } else {
            BandShare::of(band, left, rule, demands)
        })
    }
}

impl BandShare {
    fn of(band: i32, left: f64, rule: &ShareRule, demands: &DemandTree) -> Self {
        let own = demands.band(band);
        let wants = own.sum().wants;
        let lower = demands.sum_below(band).wants;
        let reserved = lower.min(rule.floor * left);
        let most = left - reserved;
        let curve = if wants <= most {
            ShareCurve::as_wanted(0.0)
        } else {
            fair_share(most, &own)
        };
        let left = (left - wants).max(reserved);
        Self {
            highest: band,
            lowest: band,
            curve,
            most,
            left,
            taken_by_lower: left.min(lower),
        }
    }

    /// All bands from this one down if nothing is left for them, or if there are too many: that is
    /// while demands have yet to move to the lowest band. They share in proportion to their wants,
    /// which takes no search for a level.
    fn rest(highest: i32, left: f64, demands: &DemandTree) -> Self {
        let wants = demands.bands_from(highest).sum().wants;
        let line = Line {
            per_want: if wants > left { left / wants } else { 1.0 },
            per_weight: 0.0,
        };
        Self {
            highest,
            lowest: i32::MIN,
            curve: ShareCurve {
                threshold: f64::NEG_INFINITY,
                below: line,
                above: line,
            },
            most: left,
            left: 0.0,
            taken_by_lower: 0.0,
        }
    }

    fn demands<'a>(&self, demands: &'a DemandTree) -> Demands<'a> {
        if self.lowest == self.highest {
            demands.band(self.highest)
        } else {
            demands.bands_from(self.highest)
        }
    }
}
