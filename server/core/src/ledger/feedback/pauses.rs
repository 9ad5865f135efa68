//! Pauses of the fleet, while the target accepts nothing and says when to come back.

use doorman_openapi::Moment;

use crate::ledger::feedback::slots::{Slots, lower_median};

/// The longest pause, in seconds: a wrong end costs at most that.
const LONGEST: f64 = 60.0;
/// A longer time between two pauses is no cycle of the target.
const LONGEST_CYCLE: f64 = 600.0;

#[derive(Debug, Clone, Copy)]
pub(super) struct Pauses {
    /// When holders may send again, by the target.
    ends: Slots<Moment>,
    /// The end of the pause, while there is one.
    pub(super) until: Option<Moment>,
    /// When the last one ended.
    pub(super) ended: Option<Moment>,
    /// The cost that the target has accepted since then; of a gauge units times seconds.
    pub(super) accepted: f64,
    /// Seconds to hold the level after the pause.
    pub(super) hold: f64,
}

/// The amount that the target accepted between two pauses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cycle {
    /// Cost per second; of a gauge the units in use.
    pub(super) accepted: f64,
    pub(super) seconds: f64,
}

impl Pauses {
    pub(super) const NONE: Self = Self {
        ends: Slots::EMPTY,
        until: None,
        ended: None,
        accepted: 0.0,
        hold: 0.0,
    };

    /// Takes the `Retry-After` of a holder, in seconds.
    pub(super) fn record(&mut self, slot: usize, pause: f64, now: Moment) {
        self.ends.set(slot, now.after_seconds(pause));
    }

    /// When holders may send again; `None` if the target does not say.
    fn end(&self, now: Moment) -> Option<Moment> {
        let ahead = self.ends.values().filter(|end| *end > now);
        let end = lower_median(ahead, Moment::cmp)?;
        Some(end.min(now.after_seconds(LONGEST)))
    }

    /// Begins a pause, if the target wants one. Returns its end, and the cycle that ends with it
    /// if there was a pause before: what was accepted in a whole cycle is what a window of the
    /// target allows.
    pub(super) fn begin(&mut self, now: Moment) -> Option<(Moment, Option<Cycle>)> {
        let end = self.end(now)?;
        self.until = Some(end);
        let seconds = self.ended.map(|before| end.seconds_since(before));
        let cycle = seconds
            .filter(|seconds| *seconds > 0.0 && *seconds < LONGEST_CYCLE)
            .map(|seconds| Cycle {
                accepted: self.accepted / seconds,
                seconds,
            });
        self.hold = cycle.map_or(0.0, |cycle| 2.0 * cycle.seconds);
        Some((end, cycle))
    }

    pub(super) fn is_paused(&self, now: Moment) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// Ends a pause that is over. Returns the seconds to hold the level.
    pub(super) fn end_due(&mut self, now: Moment) -> Option<f64> {
        let until = self.until.filter(|until| *until <= now)?;
        self.until = None;
        self.ended = Some(until);
        self.accepted = 0.0;
        Some(self.hold)
    }
}
