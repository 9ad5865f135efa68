//! Recent traffic of all holders, by their reports: sums that fade.

use doorman_openapi::Moment;

use crate::ledger::feedback::{
    report::{Bookings, OutcomeReport},
    terms::{ControlTerms, ControlUnit, bounded},
};

/// Seconds after which a part of 1/e is left of a sum.
const FADES: f64 = 10.0;
/// The share of failed outcomes above which the target is dead, not overloaded.
const DEAD: f64 = 0.5;
/// The least cost of a request that is divided by.
const LEAST_COST: f64 = 1e-9;

#[derive(Debug, Clone, Copy)]
pub(super) struct Traffic {
    used: f64,
    leased: f64,
    outcomes: f64,
    failed: f64,
    /// When the last report came.
    at: Moment,
}

/// The load of the target, as far as it is ours.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    /// The amount leased and wanted, and all bookings, in the unit of the resource.
    pub(super) leased: f64,
    pub(super) bookings: Bookings,
    /// Cost per second.
    pub(super) used: f64,
    /// Requests per second.
    pub(super) requests: f64,
}

impl Traffic {
    pub(super) fn none(now: Moment) -> Self {
        Self {
            used: 0.0,
            leased: 0.0,
            outcomes: 0.0,
            failed: 0.0,
            at: now,
        }
    }

    pub(super) fn add(&mut self, report: &OutcomeReport, terms: &ControlTerms, now: Moment) {
        let kept = (-now.seconds_since(self.at) / FADES).exp();
        self.used = self.used * kept + report.used;
        self.leased = self.leased * kept + report.leased(terms.unit);
        self.outcomes = self.outcomes * kept + report.outcomes() as f64;
        self.failed = self.failed * kept + report.failed as f64;
        self.at = now;
    }

    /// The cost of a request that had an outcome.
    pub(super) fn cost(&self) -> f64 {
        if self.used > 0.0 && self.outcomes > 0.0 {
            bounded(self.used / self.outcomes).max(LEAST_COST)
        } else {
            1.0
        }
    }

    /// The part of what is leased and wanted that is used.
    fn use_ratio(&self) -> f64 {
        if self.leased > 0.0 {
            (self.used / self.leased).min(1.0)
        } else {
            1.0
        }
    }

    pub(super) fn is_target_dead(&self) -> bool {
        self.failed > DEAD * self.outcomes
    }

    pub(super) fn is_silent(&self, now: Moment) -> bool {
        now.seconds_since(self.at) > FADES
    }

    /// The load while the level is `level`.
    pub(super) fn load(&self, level: f64, bookings: Bookings, terms: &ControlTerms) -> Load {
        let leased = level.max(bookings.booked).min(bookings.wants);
        let used = leased * self.use_ratio() / terms.unit.period();
        let requests = match terms.unit {
            ControlUnit::Rate { .. } => used / self.cost(),
            // Of each unit that is leased, per second.
            ControlUnit::Gauge => leased * bounded(self.outcomes / self.leased),
        };
        Load {
            leased,
            bookings,
            used,
            requests,
        }
    }
}
