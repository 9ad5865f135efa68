//! The window: a few seconds after the first overload, in which outcomes are counted.

use doorman_openapi::Moment;

use crate::ledger::feedback::level::CADENCE;

/// Seconds between two ticks.
pub(super) const TICK: f64 = 0.25;
/// Seconds until the first verdict: one report of each refused holder.
pub(super) const EARLIEST: f64 = CADENCE + TICK;
/// Seconds after which a verdict need not be sure, and a window without overload ends.
pub(super) const LENGTH: f64 = 2.25;
/// Seconds after which a window ends without enough requests.
pub(super) const LATEST: f64 = 60.0;

/// A window of a resource.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    number: u32,
    opened: Moment,
    /// Whether it follows a window in which the target fell: all its outcomes are from after that.
    pub(super) is_second: bool,
}

impl Window {
    pub(super) fn open(number: u32, now: Moment) -> Self {
        Self {
            number,
            opened: now,
            is_second: false,
        }
    }

    pub(super) fn second(number: u32, now: Moment) -> Self {
        Self {
            is_second: true,
            ..Self::open(number, now)
        }
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn age(&self, now: Moment) -> f64 {
        now.seconds_since(self.opened)
    }
}
