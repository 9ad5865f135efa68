//! Growth of a level whose overloads are reported at once, and a change of any level.

use doorman_openapi::Moment;

use crate::ledger::feedback::{
    control::{Change, FeedbackControl},
    level::Level,
    rules::FeedbackRule,
    terms::{ControlUnit, ONE_UNIT},
    traffic::Load,
    window::TICK,
};

/// The part of the level that must be wanted to raise it, and for how many seconds: holders with few
/// requests want much for moments.
const LOADED: f64 = 0.9;
const LOADED_SECONDS: f64 = 2.0;
/// Seconds at a level before the next, and without overloads if there was no verdict.
const QUIET: f64 = 1.0;

impl FeedbackControl {
    /// Takes one step up, if the level may rise. No silence tells that requests are fast enough.
    pub(super) fn grow_quietly(&mut self, load: &Load, now: Moment) -> Option<Change> {
        let may_grow = self.terms.latency.is_none() && self.may_grow(load, now);
        may_grow.then(|| self.grow(now))
    }

    /// Whether the level may rise: never without a verdict, without load, or into a target that is
    /// dead.
    fn may_grow(&mut self, load: &Load, now: Moment) -> bool {
        let age = self.level.age(now);
        // Requests to a gauge may take long: only those that have ended say anything.
        let requests = match self.terms.unit {
            ControlUnit::Rate { .. } => load.requests * age,
            ControlUnit::Gauge => self.level.outcomes as f64,
        };
        let was_quiet = self.level.has_passed
            || !self.was_overloaded_within(QUIET, now)
            || !self.terms.has(FeedbackRule::GrowthAfterVerdict);
        let is_loaded = self.may_grow_under(load, now);
        self.window.is_none()
            && is_loaded
            && self.level.is_settled_for(TICK, now)
            && age >= QUIET
            && requests >= self.terms.enough()
            && was_quiet
    }

    /// Whether hold and load allow a higher level.
    pub(super) fn may_grow_under(&mut self, load: &Load, now: Moment) -> bool {
        if load.bookings.wants < LOADED * self.level.capacity() {
            self.unloaded = now;
        }
        let is_loaded = now.seconds_since(self.unloaded) >= LOADED_SECONDS
            || !self.terms.has(FeedbackRule::GrowthUnderLoad);
        self.level.is_held_back(&self.terms)
            && now >= self.probe.hold_until
            && is_loaded
            && !self.traffic.is_target_dead()
    }

    /// Takes one step up, of at least one unit of a gauge.
    pub(super) fn grow(&mut self, now: Moment) -> Change {
        let level = self.level.capacity();
        let step = self.probe.step(level, &self.plateau, &self.terms);
        let least = match self.terms.unit {
            ControlUnit::Rate { .. } => level,
            ControlUnit::Gauge => level + ONE_UNIT,
        };
        self.set_level((level * (1.0 + step)).max(least), now);
        Change::Raise
    }

    /// Sets a level that holders are yet to follow. Counts at another one are no evidence.
    pub(super) fn set_level(&mut self, level: f64, now: Moment) {
        let level = self.terms.allowed(level);
        self.level = if self.terms.has(FeedbackRule::CutArrived) {
            Level::new(level, now)
        } else {
            Level::settled(level, now)
        };
        self.window = None;
    }
}
