//! The state that a server which stops cleanly leaves to its successor.
//!
//! Windows and the evidence of holders begin anew.

use doorman_openapi::Moment;
use serde::{Deserialize, Serialize};

use crate::ledger::feedback::{
    control::FeedbackControl,
    terms::{ControlTerms, bounded, part},
};

/// The largest share of overloads that is handed over as a baseline.
const LARGEST_SHARE: f64 = 0.95;

/// The law of a resource. Amounts are in its unit, lengths of time in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ControlRecord {
    /// The level: the effective capacity beside pauses and headers.
    pub level: f64,
    /// The amount that the target accepted last.
    pub plateau: f64,
    /// Whether two measurements agree on it.
    pub is_known: bool,
    /// The last step up, as a part of the level.
    pub step: f64,
    /// For how long the level is held.
    pub hold_left: u64,
    /// The share of requests that the target refuses at any load, and for how long that counts.
    pub base: f64,
    /// See `base`.
    pub base_left: u64,
    /// The time until the pause ends, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_left: Option<u64>,
    /// For how long the level is held after it.
    #[serde(default)]
    pub hold_after_pause: u64,
    /// The time since the last pause ended, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_ended_ago: Option<u64>,
    /// The cost that the target has accepted since then.
    #[serde(default)]
    pub accepted: f64,
}

impl FeedbackControl {
    /// Returns nothing if nothing is held back, and no pause was.
    pub(in crate::ledger) fn record(&self, now: Moment) -> Option<ControlRecord> {
        let left = |until: Moment| nanos(now, until);
        let is_idle = !self.level.is_held_back(&self.terms)
            && self.baseline.share <= 0.0
            && self.pauses.until.is_none()
            && self.pauses.ended.is_none();
        (!is_idle).then(|| ControlRecord {
            level: self.level.capacity(),
            plateau: self.plateau.accepted,
            is_known: self.plateau.is_known,
            step: self.probe.step,
            hold_left: left(self.probe.hold_until),
            base: self.baseline.share,
            base_left: left(self.baseline.until),
            pause_left: self.pauses.until.map(left),
            hold_after_pause: Moment::ORIGIN.after_seconds(self.pauses.hold).as_nanos(),
            pause_ended_ago: self.pauses.ended.map(|ended| nanos(ended, now)),
            accepted: self.pauses.accepted,
        })
    }

    /// Continues what a server that stopped at `stopped` has left.
    pub(in crate::ledger) fn restore(
        record: &ControlRecord,
        terms: ControlTerms,
        stopped: Moment,
    ) -> Self {
        let after = |nanos: u64| {
            let nanos = stopped.as_nanos().saturating_add(nanos);
            Moment::from_nanos(nanos)
        };
        let mut control = Self::new(terms, Some(record.level), stopped);
        control.plateau.accepted = bounded(record.plateau);
        control.plateau.is_known = record.is_known;
        control.probe.step = part(record.step);
        control.probe.hold_until = after(record.hold_left);
        control.baseline.share = bounded(record.base).min(LARGEST_SHARE);
        control.baseline.until = after(record.base_left);
        control.pauses.until = record.pause_left.map(after);
        control.pauses.hold =
            Moment::from_nanos(record.hold_after_pause).seconds_since(Moment::ORIGIN);
        // A clock that began since then does not know that time.
        let ended = (record.pause_ended_ago).and_then(|ago| stopped.as_nanos().checked_sub(ago));
        control.pauses.ended = ended.map(Moment::from_nanos);
        control.pauses.accepted = bounded(record.accepted);
        // Its holders may not have followed a cut yet.
        control.tell_level(stopped);
        control.note_state(stopped);
        control
    }
}

fn nanos(earlier: Moment, later: Moment) -> u64 {
    later.as_nanos().saturating_sub(earlier.as_nanos())
}
