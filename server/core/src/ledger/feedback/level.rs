//! The level: the effective capacity beside pauses and headers, and whether holders follow it yet.

use doorman_openapi::Moment;

use crate::ledger::feedback::terms::ControlTerms;

/// Bookings this close to a level follow it.
const FOLLOWS: f64 = 1.02;
/// Seconds after which a level counts as followed: a holder may be out of reach.
const LATEST: f64 = 10.0;
/// Seconds until reports of refusals are those of a level that is followed.
pub(super) const CADENCE: f64 = 0.5;

#[derive(Debug, Clone, Copy)]
pub(super) struct Level {
    capacity: f64,
    set: Moment,
    /// From when on overloads are those of this level; `None` while holders still have more.
    settled: Option<Moment>,
    /// Whether a window has ended without a cut.
    pub(super) has_passed: bool,
    /// Outcomes that were reported since holders follow it.
    pub(super) outcomes: u64,
}

impl Level {
    /// A level that holders follow already.
    pub(super) fn settled(capacity: f64, now: Moment) -> Self {
        Self {
            capacity,
            set: now,
            settled: Some(now),
            has_passed: false,
            outcomes: 0,
        }
    }

    /// A level that holders are yet to follow.
    pub(super) fn new(capacity: f64, now: Moment) -> Self {
        Self {
            settled: None,
            ..Self::settled(capacity, now)
        }
    }

    pub(super) fn capacity(&self) -> f64 {
        self.capacity
    }

    pub(super) fn is_held_back(&self, terms: &ControlTerms) -> bool {
        self.capacity < terms.configured
    }

    /// Notices that the level has arrived at the holders. Reports after a cut still carry
    /// refusals from before it; the bookings say exactly until when.
    pub(super) fn settle(&mut self, booked: f64, now: Moment) {
        let follow = booked <= FOLLOWS * self.capacity;
        if self.settled.is_none() && (follow || self.age(now) > LATEST) {
            self.settled = Some(now.after_seconds(CADENCE));
        }
    }

    /// Counts outcomes that are reported at it.
    pub(super) fn count(&mut self, outcomes: u64) {
        if self.settled.is_some() {
            self.outcomes = self.outcomes.saturating_add(outcomes);
        }
    }

    pub(super) fn is_followed(&self) -> bool {
        self.settled.is_some()
    }

    /// Whether the level has been settled for so many seconds.
    pub(super) fn is_settled_for(&self, seconds: f64, now: Moment) -> bool {
        (self.settled).is_some_and(|settled| settled.after_seconds(seconds) <= now)
    }

    /// Seconds since the level has settled.
    pub(super) fn settled_age(&self, now: Moment) -> f64 {
        (self.settled).map_or(0.0, |settled| now.seconds_since(settled))
    }

    /// Seconds since the level was set.
    pub(super) fn age(&self, now: Moment) -> f64 {
        now.seconds_since(self.set)
    }

    /// Converts the level to another unit.
    pub(super) fn scale(&mut self, factor: f64) {
        self.capacity *= factor;
    }
}
