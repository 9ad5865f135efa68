//! The pace at which the rest of the target's own limit lasts until it is whole again.
//!
//! One formula serves fixed windows, whose rest is spent evenly, and buckets that refill, which
//! settle half full. It yields to clients of others without knowing them.

use doorman_openapi::Moment;

use crate::ledger::feedback::slots::{Slots, lower_median};

/// Seconds for which a statement of the target counts, and for which a pace is kept without one.
const FRESH: f64 = 10.0;
/// Seconds before the limit is whole again in which its rest says nothing.
const TOO_CLOSE: f64 = 2.0;
/// The change of the pace that holders are told at once, and the seconds after which any is.
const MOVES: f64 = 0.05;
const TOLD_FOR: f64 = 5.0;

#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    seen: Slots<Seen>,
    /// The pace by the last fresh statement, and when that was, in the unit of the resource.
    current: Option<(f64, Moment)>,
    /// The pace that holders are told, and since when.
    told: Option<(f64, Moment)>,
}

/// A statement of the target about its own limit.
#[derive(Debug, Clone, Copy)]
struct Seen {
    remaining: f64,
    whole: Moment,
    at: Moment,
}

impl Seen {
    fn is_fresh(&self, now: Moment) -> bool {
        now.seconds_since(self.at) < FRESH && now.after_seconds(TOO_CLOSE) < self.whole
    }

    /// Cost per second, while holders use so much.
    fn pace(&self, used: f64, now: Moment) -> f64 {
        let left = self.remaining - used * now.seconds_since(self.at);
        left.max(0.0) / self.whole.seconds_since(now)
    }
}

impl Pace {
    pub(super) const NONE: Self = Self {
        seen: Slots::EMPTY,
        current: None,
        told: None,
    };

    /// Takes what the target told a holder: what remains, and the seconds until it is whole.
    pub(super) fn record(&mut self, slot: usize, (remaining, reset): (f64, f64), now: Moment) {
        let seen = Seen {
            remaining,
            whole: now.after_seconds(reset),
            at: now,
        };
        self.seen.set(slot, seen);
    }

    /// Computes the pace anew. `used` is cost per second. Returns whether holders should know.
    pub(super) fn update(&mut self, used: f64, period: f64, now: Moment) -> bool {
        let fresh = self.seen.values().filter(|seen| seen.is_fresh(now));
        let paces = fresh.map(|seen| seen.pace(used, now));
        if let Some(pace) = lower_median(paces, f64::total_cmp) {
            self.current = Some((pace * period, now));
        }
        let is_kept = |(_, since): &(f64, Moment)| now.seconds_since(*since) <= FRESH;
        self.current = self.current.filter(is_kept);
        let Some((pace, _)) = self.current else {
            return self.told.take().is_some();
        };
        let is_told = self.told.is_some_and(|(told, since)| {
            (pace - told).abs() <= MOVES * told && now.seconds_since(since) <= TOLD_FOR
        });
        if !is_told {
            self.told = Some((pace, now));
        }
        !is_told
    }

    pub(super) fn told(&self) -> Option<f64> {
        self.told.map(|(pace, _)| pace)
    }

    /// Whether there is a pace, or there will be one.
    pub(super) fn is_active(&self, now: Moment) -> bool {
        self.told.is_some() || self.seen.values().any(|seen| seen.is_fresh(now))
    }

    /// Converts the pace to another unit of cost per `factor` times the seconds.
    pub(super) fn scale(&mut self, factor: f64) {
        for (pace, _) in [&mut self.current, &mut self.told].into_iter().flatten() {
            *pace *= factor;
        }
    }
}
