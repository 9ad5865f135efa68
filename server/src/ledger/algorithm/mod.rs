//! How a capacity is divided: pure functions from the demands known now to one holder's share.
//!
//! A share is what should be, not what may be granted: that depends on what others still hold.

mod division;
mod fair;
mod proportional;

use doorman_openapi::AlgorithmKind;

use self::division::Division;
use super::demands::{Demands, Placed};

/// How the capacity of a resource is divided.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rule {
    pub(super) kind: AlgorithmKind,
    pub(super) capacity: f64,
    /// The part of what nobody wants that is handed out on top, from 0 to 1, so that a holder can absorb a spike.
    pub(super) surplus: f64,
    /// Shares come in whole steps of this size; 0: of any size.
    pub(super) granularity: f64,
}

impl Rule {
    /// Whether the shares of all holders together stay within the capacity, so that what one may be granted depends on the others.
    pub(super) fn divides(&self) -> bool {
        match self.kind {
            AlgorithmKind::NoAlgorithm
            | AlgorithmKind::Static
            | AlgorithmKind::Suppression
            | AlgorithmKind::SharedBucket => false,
            AlgorithmKind::ProportionalShare | AlgorithmKind::FairShare => true,
        }
    }

    /// What the holder of these demands gets when all others get theirs.
    pub(super) fn share(
        &self,
        demands: &Demands,
        own: impl Iterator<Item = Placed> + Clone,
    ) -> f64 {
        let wants = || own.clone().map(|placed| placed.demand().wants).sum::<f64>();
        let division = match self.kind {
            // No more than whole steps is ever granted: a share that promised more would be waited for in vain.
            AlgorithmKind::NoAlgorithm => return self.round_down(wants()),
            AlgorithmKind::Static => return self.round_down(wants().min(self.capacity)),
            AlgorithmKind::Suppression | AlgorithmKind::SharedBucket => {
                return self.round_down(self.capacity);
            }
            AlgorithmKind::ProportionalShare | AlgorithmKind::FairShare if self.fits(demands) => {
                Division::content(self.surplus_per_weight(demands))
            }
            AlgorithmKind::ProportionalShare => proportional::divide(self.capacity, demands),
            AlgorithmKind::FairShare => fair::divide(self.capacity, demands),
        };
        own.map(|placed| {
            if self.granularity > 0.0 {
                division.whole_steps(demands, placed, self.granularity)
            } else {
                division.share(placed.demand())
            }
        })
        .sum()
    }

    /// What the share would be if it did not come in whole steps; `None` when it does not.
    pub(super) fn exact_share(
        &self,
        demands: &Demands,
        own: impl Iterator<Item = Placed> + Clone,
    ) -> Option<f64> {
        let of_any_size = Self {
            granularity: 0.0,
            ..*self
        };
        (self.granularity > 0.0).then(|| of_any_size.share(demands, own))
    }

    /// How much one client gets at most, by FAIR_SHARE while not all get what they want.
    pub(super) fn fill_level(&self, demands: &Demands) -> Option<f64> {
        let is_filled = self.kind == AlgorithmKind::FairShare && !self.fits(demands);
        let level = is_filled.then(|| demands.water_level(self.capacity));
        // Sums that differ by a rounding may say that it does not fit, and then that it does.
        level.filter(|level| level.is_finite())
    }

    /// As much of an amount as there are whole steps in it.
    pub(super) fn round_down(&self, amount: f64) -> f64 {
        if self.granularity > 0.0 {
            division::whole_steps_in(amount, self.granularity) * self.granularity
        } else {
            amount
        }
    }

    fn fits(&self, demands: &Demands) -> bool {
        demands.total().wants <= self.capacity
    }

    fn surplus_per_weight(&self, demands: &Demands) -> f64 {
        let total = demands.total();
        self.surplus * (self.capacity - total.wants) / total.weight.max(1.0)
    }
}

#[cfg(test)]
mod tests;
