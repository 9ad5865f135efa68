//! Statements of the target to the holders of a node, for its parent: one value of each.

use doorman_openapi::{Capacity, MAX_PAUSE, Moment, Seconds, Seen};

use crate::ledger::feedback::slots::{Slots, lower_median};

/// Seconds for which a statement of the target's own limit counts.
const FRESH: f64 = 10.0;

/// The newest statements to a few holders.
#[derive(Debug, Clone, Copy)]
pub(super) struct TargetSays {
    pauses: Slots<Moment>,
    seen: Slots<SeenAt>,
}

#[derive(Debug, Clone, Copy)]
struct SeenAt {
    remaining: f64,
    whole: Moment,
    at: Moment,
    /// The total that holders had used then.
    used: f64,
}

impl Default for TargetSays {
    fn default() -> Self {
        Self {
            pauses: Slots::EMPTY,
            seen: Slots::EMPTY,
        }
    }
}

impl TargetSays {
    pub(super) fn record(
        &mut self,
        slot: usize,
        pause: Option<f64>,
        seen: Option<(f64, f64)>,
        used: f64,
        now: Moment,
    ) {
        if let Some(pause) = pause {
            self.pauses.set(slot, now.after_seconds(pause));
        }
        if let Some((remaining, reset)) = seen {
            let seen = SeenAt {
                remaining,
                whole: now.after_seconds(reset),
                at: now,
                used,
            };
            self.seen.set(slot, seen);
        }
    }

    /// The lower median of the pauses that have not ended.
    pub(super) fn pause(&self, now: Moment) -> Option<Seconds> {
        let ahead = self.pauses.values().filter(|end| *end > now);
        let end = lower_median(ahead, Moment::cmp)?;
        let left = end.seconds_since(now).min(MAX_PAUSE.get());
        Some(Seconds::saturating(left))
    }

    /// The statement of the lower median pace, once, without what holders have used since: `used` in
    /// total.
    pub(super) fn take_seen(&mut self, used: f64, now: Moment) -> Option<Seen> {
        let fresh = self.seen.values();
        let fresh = fresh.filter(|it| now.seconds_since(it.at) < FRESH && it.whole > now);
        let left = |it: &SeenAt| (it.remaining - (used - it.used)).max(0.0);
        let pace = |it: &SeenAt| left(it) / it.whole.seconds_since(now);
        let seen = lower_median(fresh, |a, b| pace(a).total_cmp(&pace(b)))?;
        self.seen = Slots::EMPTY;
        let reset = Seconds::saturating(seen.whole.seconds_since(now));
        Seen::new(Capacity::saturating(left(&seen)), reset)
    }
}
