//! The verdict on a window of a rate, and the cut to just below what the target accepts.
//!
//! The level falls by the refused share of what is leased, not to the measured rate of successes:
//! with small shares holders cannot use all that they lease, and successes per second would
//! undercut a level that is right.

use doorman_openapi::Moment;

use crate::ledger::feedback::{
    control::{Change, Cut, FeedbackControl},
    probe::{HOLD, Probe},
    rules::FeedbackRule,
    survey::{ClassCounts, Evidence},
    traffic::Load,
    window::{self, EARLIEST, Window},
};

/// The part by which a level is below what the target accepts.
const MARGIN: f64 = 0.015;
/// The share of overloads from which on nothing is accepted: it says nothing of the level.
const HOPELESS: f64 = 0.9;
/// The factor of a level when nothing is known, and the least after a cut on few requests.
pub(super) const HALF: f64 = 0.5;
/// Fewer requests are few.
const FEW_REQUESTS: f64 = 100.0;

impl FeedbackControl {
    /// Gives the verdict on the window of a rate, once there is one.
    pub(super) fn judge_rate(
        &mut self,
        window: &Window,
        counts: &ClassCounts,
        load: &Load,
        now: Moment,
    ) -> Option<Change> {
        let age = window.age(now);
        let evidence = counts.evidence(load, age);
        let is_complete = age >= window::LENGTH && evidence.is_enough(&self.terms);
        let tolerated = self.baseline.tolerated(self.terms.tolerate);
        let may_cut = is_complete || evidence.is_sure(self.suffering);
        if age >= EARLIEST && evidence.exceeds(tolerated) && may_cut {
            return Some(self.cut(&evidence, load, now));
        }
        if is_complete || age >= window::LATEST {
            self.overloaded_share = evidence.share;
            self.baseline.pass(evidence.share);
            self.window = None;
            self.level.has_passed = true;
        }
        None
    }

    fn cut(&mut self, evidence: &Evidence, load: &Load, now: Moment) -> Change {
        let share = evidence.share;
        self.overloaded_share = share;
        if share >= HOPELESS && self.terms.has(FeedbackRule::Pause) {
            return self.stop(load.leased, share, evidence.requests, now);
        }
        self.forget_common_suffering();
        self.baseline.fail_trial(now);
        let leased = load.leased * evidence.burst;
        let accepted = leased * (1.0 - share) / self.baseline.acceptable();
        let level = self.level.capacity();
        if self.terms.has(FeedbackRule::Trial) {
            let has_probed = self.probe.has_begun;
            if let Some(before) = self.baseline.count_cut(level, share, has_probed, now) {
                return self.try_level(before, now);
            }
        }
        let requests = self.requests_per_second(accepted);
        let hold = (self.probe).hold(accepted, &self.plateau, requests, &self.terms);
        let at_least = if evidence.requests < FEW_REQUESTS {
            HALF * level
        } else {
            0.0
        };
        self.plateau.measure(accepted);
        self.lower(accepted, at_least, hold, now);
        Change::Cut(Cut {
            leased,
            share,
            requests: evidence.requests,
            accepted,
        })
    }

    /// Sets the level to just below what the target accepts, and holds it for so many seconds.
    pub(super) fn lower(&mut self, accepted: f64, at_least: f64, hold: f64, now: Moment) {
        self.probe = Probe::held_until(now.after_seconds(hold));
        let level = self.level.capacity().min(below(accepted));
        self.set_level(level.max(at_least), now);
    }

    /// Nothing is accepted. Pauses if the target says until when, else halves the level.
    pub(super) fn stop(&mut self, leased: f64, share: f64, requests: f64, now: Moment) -> Change {
        let level = self.level.capacity();
        let Some((until, cycle)) = self.pauses.begin(now) else {
            let accepted = HALF * level;
            self.plateau.accepted = accepted;
            self.plateau.is_known = false;
            self.probe.hold_until = now.after_seconds(HOLD);
            self.set_level(accepted, now);
            return Change::Cut(Cut {
                leased,
                share,
                requests,
                accepted,
            });
        };
        self.plateau.is_known = cycle.is_some();
        self.plateau.accepted =
            cycle.map_or(level, |cycle| cycle.accepted * self.terms.unit.period());
        self.probe = Probe::held_until(self.probe.hold_until);
        self.set_level(below(self.plateau.accepted), now);
        Change::Pause { until }
    }

    /// Less load did not help: tries the level before the cuts, with the share of overloads as
    /// the baseline.
    fn try_level(&mut self, before: f64, now: Moment) -> Change {
        self.plateau.accepted = 0.0;
        self.probe.has_begun = true;
        self.probe.hold_until = now;
        self.set_level(before, now);
        Change::Trial
    }

    /// All suffered: nobody suffers alone.
    pub(super) fn forget_common_suffering(&mut self) {
        if self.is_common() {
            self.era = self.era.wrapping_add(1);
        }
    }
}

fn below(accepted: f64) -> f64 {
    (1.0 - MARGIN) * accepted
}
