//! A capacity divided: who gets how much.

use super::super::demands::{Demand, Demands, Placed, Total};

/// Whole steps are counted with this tolerance, so that rounding does not turn three steps into 2.999.
const TOLERANCE: f64 = 1e-9;

/// So much for each unit wanted, and so much for each client.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Line {
    pub(super) per_want: f64,
    pub(super) per_weight: f64,
}

impl Line {
    /// What is wanted, and nothing else.
    pub(super) const AS_WANTED: Self = Self {
        per_want: 1.0,
        per_weight: 0.0,
    };

    fn of(self, total: Total) -> f64 {
        self.per_want * total.wants + self.per_weight * total.weight
    }
}

/// A capacity divided. Those who want at most `threshold` per weight get theirs by one line, the others by another; so the shares
/// of any run of demands can be told from its sums.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Division {
    pub(super) threshold: f64,
    pub(super) below: Line,
    pub(super) above: Line,
}

impl Division {
    /// All get what they want, and so much for each client on top.
    pub(super) fn content(surplus_per_weight: f64) -> Self {
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

    /// The exact share of a demand.
    pub(super) fn share(&self, demand: Demand) -> f64 {
        if demand.ratio() <= self.threshold {
            self.below.of(demand.into())
        } else {
            self.above.of(demand.into()).min(demand.wants)
        }
    }

    /// The share of a demand in whole steps: with all demands in their order, as many as fit into the shares up to and with this
    /// one, less those that fit before it. Each so gets its share rounded down or up, and all together as many as there are.
    pub(super) fn whole_steps(&self, demands: &Demands, placed: Placed, step: f64) -> f64 {
        let (below, above) = demands.before(placed, self.threshold);
        let before = self.below.of(below) + self.above.of(above);
        (whole_steps_in(before + self.share(placed.demand()), step) - whole_steps_in(before, step))
            * step
    }
}

/// How many whole steps there are in an amount.
pub(super) fn whole_steps_in(amount: f64, step: f64) -> f64 {
    (amount / step + TOLERANCE).floor()
}
