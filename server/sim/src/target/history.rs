//! The history of a target, and how fast the fleet followed it.

use tower_doorman::lease::SimulatedLayer;

use super::{TargetResponse, TargetResult};

/// Slots in a second.
const SLOTS: f64 = 10.0;
/// The least change of a level, as a part of it, that is a step; less is a ramp.
const STEP: f64 = 0.1;
/// How near a level counts as reached, as a part of it.
const NEAR: f64 = 0.07;
/// The requests over which a rate is measured, if these come in [`MEAN_SECONDS`].
const MEAN_REQUESTS: f64 = 60.0;
/// The least and the most seconds over which a rate is measured.
const MEAN_SECONDS: [f64; 2] = [1.0, 20.0];
/// Slots after a step in which no level counts as reached.
const EARLIEST: usize = 3;
/// Slots in which a level must be held.
const HELD: usize = 20;
/// The part of them in which it may be missed.
const MISSED: f64 = 0.1;

/// Requests to a target, counted in tenths of a second.
#[derive(Debug, Default)]
pub(crate) struct History {
    slots: Vec<Slot>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    sent: u32,
    served: u32,
    refused: u32,
    /// Seconds that the served requests took.
    served_seconds: f64,
    /// Seconds in this slot for which requests used the units of a gauge.
    in_use: f64,
}

/// The right level at each second, and the seconds that are measured.
pub(crate) struct Expected<'a> {
    /// The seconds in which requests are counted.
    pub(crate) from: f64,
    pub(crate) until: f64,
    /// The length of the run. Steps are timed in all of it.
    pub(crate) seconds: f64,
    /// The requests a second that the target accepts of those that there are.
    pub(crate) level: &'a dyn Fn(f64) -> f64,
    /// Of a gauge: the seconds for which one of them uses its units, if these are the right number.
    pub(crate) in_use: Option<f64>,
    /// The seconds at which it may change, in order.
    pub(crate) changes: &'a [f64],
}

/// Figures of the targets of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TargetFigures {
    /// Requests sent while it was measured.
    pub sent: f64,
    /// Those that were served.
    pub served: f64,
    /// Those that were refused.
    pub refused: f64,
    /// Those that could have been served.
    pub possible: f64,
    /// Seconds that those took that were served.
    pub served_seconds: f64,
    /// The longest time from a fall of a level until no more than that was sent, or in use of a
    /// gauge; `None` without a fall. A level that is not reached counts as reached at the next step
    /// or the end.
    pub drop_seconds: Option<f64>,
    /// The longest time from a rise of a level until as much was served.
    pub rise_seconds: Option<f64>,
}

impl TargetFigures {
    /// The share of the requests that could be served that were.
    #[must_use]
    pub fn target_use(&self) -> f64 {
        if self.possible > 0.0 {
            self.served / self.possible
        } else {
            1.0
        }
    }

    /// The share of the requests that were refused.
    #[must_use]
    pub fn overloaded_share(&self) -> f64 {
        self.refused / self.sent.max(1.0)
    }

    /// The mean seconds of the requests that were served.
    #[must_use]
    pub fn mean_seconds(&self) -> f64 {
        self.served_seconds / self.served.max(1.0)
    }

    /// The figures of two targets.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let longest = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
        Self {
            sent: self.sent + other.sent,
            served: self.served + other.served,
            refused: self.refused + other.refused,
            possible: self.possible + other.possible,
            served_seconds: self.served_seconds + other.served_seconds,
            drop_seconds: longest(self.drop_seconds, other.drop_seconds),
            rise_seconds: longest(self.rise_seconds, other.rise_seconds),
        }
    }
}

impl History {
    pub(crate) fn record(&mut self, now: f64, response: &TargetResponse) {
        let mut until = now + response.after;
        let first = (now * SLOTS) as usize;
        let slot = self.slot(first);
        slot.sent += 1;
        match response.result {
            TargetResult::Served => {
                slot.served += 1;
                slot.served_seconds += response.after;
            }
            TargetResult::Refused => {
                slot.refused += 1;
                until += SimulatedLayer::COOL_DOWN.as_secs_f64();
            }
            TargetResult::TimedOut => {}
        }
        for index in first..=(until * SLOTS) as usize {
            let (from, to) = (second_of(index).max(now), second_of(index + 1).min(until));
            self.slot(index).in_use += (to - from).max(0.0);
        }
    }

    fn slot(&mut self, index: usize) -> &mut Slot {
        if index >= self.slots.len() {
            self.slots.resize(index + 1, Slot::default());
        }
        &mut self.slots[index]
    }

    pub(crate) fn figures(&self, expected: &Expected<'_>) -> TargetFigures {
        let mut figures = TargetFigures::default();
        let measured = slot_at(expected.from)..slot_at(expected.until);
        for index in measured {
            let slot = self.slots.get(index).copied().unwrap_or_default();
            figures.sent += f64::from(slot.sent);
            figures.served += f64::from(slot.served);
            figures.refused += f64::from(slot.refused);
            figures.served_seconds += slot.served_seconds;
            figures.possible += (expected.level)(second_of(index)) / SLOTS;
        }
        let steps = expected.steps();
        for (index, step) in steps.iter().enumerate() {
            let next = steps.get(index + 1).map_or(expected.seconds, |it| it.at);
            let seconds = self.seconds_to_follow(step, next, expected);
            let longest = if step.is_rise {
                &mut figures.rise_seconds
            } else {
                &mut figures.drop_seconds
            };
            *longest = Some(longest.unwrap_or(0.0).max(seconds));
        }
        figures
    }

    /// The units in use, in the mean of a slot.
    fn in_use(&self, index: usize) -> f64 {
        self.slots.get(index).map_or(0.0, |it| it.in_use * SLOTS)
    }

    fn seconds_to_follow(&self, step: &Step, next: f64, expected: &Expected<'_>) -> f64 {
        let [least, most] = MEAN_SECONDS;
        let window = (MEAN_REQUESTS / step.level).clamp(least, most) * SLOTS;
        let window = window as usize;
        let end = slot_at(next);
        let mean = |index: usize, of: fn(&Slot) -> f64| {
            let slots = (index + 1).saturating_sub(window)..=index;
            let sum: f64 = slots.filter_map(|it| self.slots.get(it)).map(of).sum();
            sum * SLOTS / window as f64
        };
        let load = |index: usize| match expected.in_use {
            Some(seconds) => self.in_use(index) / seconds,
            None => mean(index, |it| it.sent.into()),
        };
        let is_reached = |index: usize| {
            let level = (expected.level)(second_of(index));
            if step.is_rise {
                mean(index, |it| it.served.into()) >= (1.0 - NEAR) * level
            } else {
                load(index) <= (1.0 + NEAR) * level
            }
        };
        let reached: Vec<_> = (slot_at(step.at)..end).map(is_reached).collect();
        let followed = (EARLIEST..reached.len()).find(|start| {
            let held = &reached[*start..(start + HELD).min(reached.len())];
            let missed = held.iter().filter(|it| !**it).count();
            missed as f64 <= MISSED * held.len() as f64
        });
        match followed {
            Some(slots) => (slots + 1) as f64 / SLOTS,
            None => next - step.at,
        }
    }
}

/// A change of the level.
struct Step {
    at: f64,
    is_rise: bool,
    /// The larger level, before or after it.
    level: f64,
}

impl Expected<'_> {
    fn steps(&self) -> Vec<Step> {
        let changes = self.changes.iter().filter(|at| **at < self.seconds);
        let steps = changes.filter_map(|at| {
            let before = (self.level)((at - 1.0).max(0.0).floor());
            let after = (self.level)(at.ceil());
            let change = (after - before) / before.max(f64::MIN_POSITIVE);
            (change.abs() >= STEP).then(|| Step {
                at: *at,
                is_rise: change > 0.0,
                level: before.max(after),
            })
        });
        steps.collect()
    }
}

fn slot_at(second: f64) -> usize {
    (second * SLOTS).round() as usize
}

fn second_of(slot: usize) -> f64 {
    slot as f64 / SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of 60 seconds whose target falls from 100 a second to 40 at 20, and rises at 40.
    fn level(second: f64) -> f64 {
        if (20.0..40.0).contains(&second) {
            40.0
        } else {
            100.0
        }
    }

    /// A fleet that sends at these rates, of which the target serves what it accepts.
    fn figures(sent: impl Fn(f64) -> f64) -> TargetFigures {
        let mut history = History::default();
        for slot in 0..600 {
            let now = f64::from(slot) / 10.0 + 0.01;
            let sent = (sent(now) / 10.0) as usize;
            let served = (level(now) / 10.0) as usize;
            for number in 0..sent {
                let result = if number < served {
                    TargetResult::Served
                } else {
                    TargetResult::Refused
                };
                let response = TargetResponse {
                    result,
                    ..TargetResponse::served(0.02)
                };
                history.record(now, &response);
            }
        }
        history.figures(&Expected {
            from: 25.0,
            until: 40.0,
            seconds: 60.0,
            level: &level,
            in_use: None,
            changes: &[20.0, 40.0],
        })
    }

    #[test]
    fn fleet_that_follows_late_is_timed() {
        let figures = figures(|now| match now {
            ..22.0 => 100.0,
            22.0..45.0 => 40.0,
            _ => 100.0,
        });
        // The rate is measured over a second, and two slots of twenty may miss the level.
        assert_eq!(figures.drop_seconds, Some(2.8));
        assert_eq!(figures.rise_seconds, Some(5.7));
        assert_eq!(
            (figures.target_use(), figures.overloaded_share()),
            (1.0, 0.0)
        );
    }

    #[test]
    fn fleet_that_never_follows_is_timed_to_the_next_step() {
        let figures = figures(|_| 100.0);
        assert_eq!(figures.drop_seconds, Some(20.0));
        assert_eq!(figures.target_use(), 1.0);
        assert_eq!(figures.overloaded_share(), 0.6);
    }

    #[test]
    fn fleet_that_sends_too_little_leaves_the_target_idle() {
        let figures = figures(|_| 20.0);
        assert_eq!(figures.rise_seconds, Some(20.0));
        assert_eq!(
            (figures.target_use(), figures.overloaded_share()),
            (0.5, 0.0)
        );
    }

    /// Whether the target of a gauge that served 100 requests a second, and 40 from 20 on, is
    /// followed at once by requests that take 0.1 seconds, and `after` from then on.
    fn follows(result: TargetResult, after: f64) -> bool {
        let mut history = History::default();
        for number in 0..4_000 {
            let now = f64::from(number) / 100.0;
            let (result, after) = match now {
                ..20.0 => (TargetResult::Served, 0.1),
                _ => (result, after),
            };
            let response = TargetResponse {
                result,
                ..TargetResponse::served(after)
            };
            history.record(now, &response);
        }
        let figures = history.figures(&Expected {
            from: 0.0,
            until: 20.0,
            seconds: 40.0,
            level: &level,
            in_use: Some(0.1),
            changes: &[20.0],
        });
        assert!((figures.mean_seconds() - 0.1).abs() < 1e-9, "{figures:?}");
        figures.drop_seconds == Some(0.4)
    }

    #[test]
    fn units_in_use_tell_whether_a_gauge_is_followed() {
        assert!(follows(TargetResult::Served, 0.04));
        assert!(!follows(TargetResult::Served, 0.045));
        // The units of a refused request are kept for a tenth of a second.
        assert!(!follows(TargetResult::Refused, 0.0));
    }

    #[test]
    fn ramps_are_not_timed() {
        let figures = History::default().figures(&Expected {
            from: 0.0,
            until: 60.0,
            seconds: 60.0,
            level: &|second| 100.0 - second.floor(),
            in_use: None,
            changes: &[1.0, 2.0, 3.0],
        });
        assert_eq!((figures.drop_seconds, figures.rise_seconds), (None, None));
    }
}
