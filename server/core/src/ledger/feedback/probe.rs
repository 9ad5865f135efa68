//! The plateau that was measured last, the size of the next step above it, and the time before it.

use doorman_openapi::Moment;

use crate::ledger::feedback::{rules::FeedbackRule, terms::ControlTerms};

/// The first step, as a part of the level, and each one near a known plateau. A target with a burst
/// hides a small excess: a larger step is first refused at +16 %.
const NEAR: f64 = 0.01;
/// The largest step. Steps double up to it.
const FAR: f64 = 0.16;
/// Up to this factor of a plateau a level is near it.
const ZONE: f64 = 1.08;
/// Seconds for which the level is held after a cut.
pub(super) const HOLD: f64 = 5.0;
/// The part of the requests that probes may cost: a longer hold pays for more.
const BUDGET: f64 = 0.004;
/// The longest hold that a probe pays by, in seconds and in requests.
const REPAY: f64 = 15.0;
const REPAY_REQUESTS: f64 = 100.0;
/// The longest hold of all, in seconds: false reports must not end growth.
const LONGEST_HOLD: f64 = 600.0;
/// A cut below this part of the plateau is no result of the probe: the target has changed.
const SAME: f64 = 0.9;
/// The least rate that is divided by.
const LEAST_RATE: f64 = 1e-9;
/// The difference within which a plateau is the same.
const SAME_PLATEAU: f64 = 0.15;

/// The level that the target accepted last.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plateau {
    pub(super) accepted: f64,
    /// Whether two measurements agree.
    pub(super) is_known: bool,
}

/// The state of growth since the last cut.
#[derive(Debug, Clone, Copy)]
pub(super) struct Probe {
    pub(super) step: f64,
    /// Whether the level was raised since the last cut.
    pub(super) has_begun: bool,
    /// Requests that were overloaded since the last cut.
    pub(super) lost: f64,
    pub(super) hold_until: Moment,
}

impl Plateau {
    /// Of a level at which this server has measured nothing. A predecessor did if it held the
    /// resource back.
    pub(super) fn assumed(level: f64, terms: &ControlTerms) -> Self {
        Self {
            accepted: level,
            is_known: level < terms.configured,
        }
    }

    /// Takes a measurement.
    pub(super) fn measure(&mut self, accepted: f64) {
        let differs_by = (accepted - self.accepted).abs();
        self.is_known = differs_by <= SAME_PLATEAU * self.accepted;
        self.accepted = accepted;
    }

    fn is_near(&self, level: f64, terms: &ControlTerms) -> bool {
        let has_zone = terms.has(FeedbackRule::CarefulZone);
        self.is_known && has_zone && level < ZONE * self.accepted
    }
}

impl Probe {
    pub(super) fn held_until(hold_until: Moment) -> Self {
        Self {
            step: NEAR,
            has_begun: false,
            lost: 0.0,
            hold_until,
        }
    }

    /// Seconds to hold the level after a cut to what the target accepts, of which `requests` are
    /// the requests per second. A probe of the `plateau` earns back what it has cost.
    pub(super) fn hold(
        &self,
        accepted: f64,
        plateau: &Plateau,
        requests: f64,
        terms: &ControlTerms,
    ) -> f64 {
        let is_probe = self.has_begun && accepted > SAME * plateau.accepted;
        if !is_probe || !terms.has(FeedbackRule::EarnBack) {
            return HOLD;
        }
        let requests = requests.max(LEAST_RATE);
        let pays_in = self.lost / (BUDGET * requests);
        HOLD.max(pays_in.min(REPAY.max(REPAY_REQUESTS / requests).min(LONGEST_HOLD)))
    }

    /// The same for a gauge, whose refusals cost little.
    pub(super) fn hold_of_gauge(plateau: &Plateau) -> f64 {
        if plateau.is_known { REPAY } else { HOLD }
    }

    /// Takes the next step from a level. Returns it, as a part of the level.
    pub(super) fn step(&mut self, level: f64, plateau: &Plateau, terms: &ControlTerms) -> f64 {
        self.has_begun = true;
        self.step = if plateau.is_near(level, terms) {
            NEAR
        } else {
            (2.0 * self.step).min(FAR)
        };
        self.step
    }
}
