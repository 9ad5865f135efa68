//! Growth of the level of a rate, and a change of any level.

use doorman_openapi::Moment;

use crate::ledger::feedback::{
    control::{Change, FeedbackControl},
    level::Level,
    rules::FeedbackRule,
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
    /// Takes one step up with a rate, if it may rise.
    pub(super) fn grow_rate(&mut self, load: &Load, now: Moment) -> Option<Change> {
        let may_grow = !self.terms.unit.is_gauge() && self.may_grow(load, now);
        may_grow.then(|| self.grow(0.0, now))
    }

    /// Whether the level of a rate may rise: never without a verdict, without load, or into a
    /// target that is dead.
    fn may_grow(&mut self, load: &Load, now: Moment) -> bool {
        let age = self.level.age(now);
        let was_quiet = self.level.has_passed
            || !self.was_overloaded_within(QUIET, now)
            || !self.terms.has(FeedbackRule::GrowthAfterVerdict);
        let is_loaded = self.may_grow_under(load, now);
        self.window.is_none()
            && is_loaded
            && self.level.is_settled_for(TICK, now)
            && age >= QUIET
            && load.requests * age >= self.terms.enough()
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

    /// Takes one step up, of at least `least`.
    pub(super) fn grow(&mut self, least: f64, now: Moment) -> Change {
        let level = self.level.capacity();
        let step = self.probe.step(level, &self.plateau, &self.terms);
        self.set_level((level * (1.0 + step)).max(level + least), now);
        Change::Raise
    }

    /// Sets a level that holders are yet to follow. What was counted at another one is no evidence.
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
