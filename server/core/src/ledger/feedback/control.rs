//! The state of one resource, and the order in which its rules apply.

use doorman_openapi::Moment;

use crate::ledger::feedback::{
    baseline::{Baseline, CLEAN},
    holder::HolderEvidence,
    level::Level,
    pace::Pace,
    pauses::Pauses,
    probe::{HOLD, Plateau, Probe},
    report::{self, Bookings, OutcomeReport},
    survey::{COMMON, Survey},
    terms::{ControlTerms, bounded},
    traffic::{Load, Traffic},
    window::{TICK, Window},
};

/// Requests in a second that a holder which suffers alone may want at least: it must notice when
/// the target accepts it again.
const LEAST_REQUESTS: f64 = 0.2;
/// The factor of what the target accepts of such a holder that it may want.
const ROOM: f64 = 1.1;

/// The law of one resource: its effective capacity, by what holders report.
#[derive(Debug, Clone)]
pub(in crate::ledger) struct FeedbackControl {
    pub(super) terms: ControlTerms,
    pub(super) level: Level,
    pub(super) plateau: Plateau,
    pub(super) probe: Probe,
    pub(super) baseline: Baseline,
    pub(super) pauses: Pauses,
    pub(super) pace: Pace,
    pub(super) traffic: Traffic,
    pub(super) window: Option<Window>,
    /// The number of the last window.
    pub(super) windows: u32,
    /// The era in which holders suffer: a new one begins when all of them did.
    pub(super) era: u32,
    /// The part of the bookings of holders that suffer, as of the last window.
    pub(super) suffering: f64,
    /// The share of recent overloads of all holders in the window.
    recent_share: Option<f32>,
    /// The share of overloads by the last verdict.
    pub(super) overloaded_share: f64,
    last_overload: Option<Moment>,
    /// When less than the level was wanted last.
    pub(super) unloaded: Moment,
    ticked: Moment,
    /// Whether this server has lowered the level by itself.
    pub(super) has_cut: bool,
    /// Whether the last cut of a gauge was because requests took too long.
    pub(super) is_slow: bool,
    /// The state that views show, and since when.
    pub(super) state: (ControlState, Moment),
}

/// A state of the law, for views.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ledger) enum ControlState {
    /// The effective capacity is the configured one.
    Open,
    /// It is lower.
    Held,
    /// It is lower, and has been raised since the last cut.
    Probing,
    /// The target accepts nothing and has said until when.
    Paused,
}

/// A change of the effective capacity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::ledger) enum Change {
    Cut(Cut),
    /// More is tried.
    Raise,
    /// Nothing may be sent until then.
    Pause {
        until: Moment,
    },
    /// A pause has ended.
    Resume,
    /// The level before the last cuts is tried, since they did not help.
    Trial,
    /// The pace at which the target's own limit lasts has moved.
    Pace,
}

/// The reason for a cut. Amounts are in the unit of the resource.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cut {
    /// The amount leased and wanted.
    pub leased: f64,
    /// The part of the requests that was overloaded.
    pub share: f64,
    /// The number of requests.
    pub requests: f64,
    /// The amount that the target accepts.
    pub accepted: f64,
}

impl FeedbackControl {
    /// `effective` is the capacity by which a predecessor held the resource back, if it did.
    pub(in crate::ledger) fn new(terms: ControlTerms, effective: Option<f64>, now: Moment) -> Self {
        let terms = terms.bounded();
        let level = terms.allowed(effective.map_or(terms.configured, bounded));
        let hold = if effective.is_some() { HOLD } else { 0.0 };
        let mut control = Self {
            terms,
            level: Level::settled(level, now),
            plateau: Plateau::assumed(level, &terms),
            probe: Probe::held_until(now.after_seconds(hold)),
            baseline: Baseline::none(level),
            pauses: Pauses::NONE,
            pace: Pace::NONE,
            traffic: Traffic::none(now),
            window: None,
            windows: 0,
            era: 0,
            suffering: 0.0,
            recent_share: None,
            overloaded_share: 0.0,
            last_overload: None,
            unloaded: Moment::ORIGIN,
            ticked: now,
            has_cut: false,
            is_slow: false,
            state: (ControlState::Open, now),
        };
        control.note_state(now);
        control
    }

    /// Continues at the level that the claims of holders echo, until the first own cut.
    /// Returns whether the level changes.
    pub(in crate::ledger) fn follow_claims(&mut self, effective: f64, now: Moment) -> bool {
        let level = self.terms.allowed(bounded(effective));
        if self.has_cut || level == self.level.capacity() {
            return false;
        }
        self.level = Level::settled(level, now);
        self.plateau = Plateau::assumed(level, &self.terms);
        self.probe = Probe::held_until(now.after_seconds(HOLD));
        self.window = None;
        self.note_state(now);
        true
    }

    /// Takes a report of a holder, before the decision on its request. `slot` is its number.
    pub(in crate::ledger) fn report(
        &mut self,
        slot: usize,
        evidence: &mut HolderEvidence,
        report: &OutcomeReport,
        now: Moment,
    ) {
        let report = &report.bounded(self.traffic.cost(), self.terms.unit);
        let share = self.window.and(self.recent_share);
        evidence.count(report, &self.terms, (self.era, share), now);
        self.traffic.add(report, &self.terms, now);
        self.probe.lost += report.overloaded as f64;
        self.level.count(report.outcomes());
        self.pauses.accepted += if self.terms.unit.is_gauge() {
            report.ok_seconds
        } else {
            report.accepted()
        };
        if report.overloaded > 0 {
            self.last_overload = Some(now);
        }
        if let Some(pause) = report.pause {
            self.pauses.record(slot, pause, now);
        }
        if let Some(seen) = report.seen.filter(|_| self.terms.follows_pace()) {
            self.pace.record(slot, seen, now);
        }
        let opens = self.opens_window(report, now);
        if opens {
            self.windows = self.windows.wrapping_add(1);
            self.window = Some(Window::open(self.windows, now));
            self.recent_share = None;
        }
        if let Some(window) = &self.window {
            evidence.count_in(window, report, opens, &self.terms);
        }
    }

    /// Requests that take too long are no overloads: where their time counts, windows need none.
    fn opens_window(&self, report: &OutcomeReport, now: Moment) -> bool {
        let has_evidence =
            report.overloaded > 0 || self.terms.latency.is_some() && report.outcomes() > 0;
        has_evidence && self.window.is_none() && self.level.is_settled_for(0.0, now)
    }

    /// Applies the rules, at [`Self::next_tick`]. `holders` are all that report outcomes which
    /// count, with their bookings; they are visited only while a window is open.
    pub(in crate::ledger) fn tick(
        &mut self,
        bookings: Bookings,
        holders: impl Iterator<Item = (HolderEvidence, f64)>,
        now: Moment,
    ) -> Option<Change> {
        let bookings = bookings.bounded();
        self.ticked = now;
        self.level.settle(bookings.booked, now);
        if self.pauses.is_paused(now) {
            return None;
        }
        let load = (self.traffic).load(self.level.capacity(), bookings, &self.terms);
        let resumed = self.resume(now);
        let judged = self.judge(&load, holders, now);
        self.end_baseline(&load, now);
        let raised = self.grow_quietly(&load, now);
        let paced = self.follow_pace(&load, now);
        self.has_cut |= matches!(judged, Some(Change::Cut(_) | Change::Pause { .. }));
        self.note_state(now);
        judged.or(raised).or(resumed).or(paced)
    }

    /// Ends a pause that is over. The level is a new one for the holders, which had nothing.
    fn resume(&mut self, now: Moment) -> Option<Change> {
        let hold = self.pauses.end_due(now)?;
        self.tell_level(now);
        self.probe.hold_until = now.after_seconds(hold.max(HOLD));
        Some(Change::Resume)
    }

    fn judge(
        &mut self,
        load: &Load,
        holders: impl Iterator<Item = (HolderEvidence, f64)>,
        now: Moment,
    ) -> Option<Change> {
        let window = self.window?;
        let most = |lease: f64| {
            let (seconds, unit) = (window.age(now), self.terms.unit);
            if unit.is_gauge() {
                f64::INFINITY
            } else {
                report::most_requests(lease, seconds, self.traffic.cost(), unit)
            }
        };
        let survey = Survey::take(&window, holders, self.era, most);
        self.suffering = survey.suffering_part(load.bookings.booked);
        self.recent_share = Some(survey.recent_share());
        let counts = survey.counted(self.is_common());
        if self.terms.unit.is_gauge() {
            self.judge_gauge(&window, &counts, load, now)
        } else {
            self.judge_rate(&window, &counts, load, now)
        }
    }

    /// Ends the baseline once the target refuses nothing any more, or after a minute.
    fn end_baseline(&mut self, load: &Load, now: Moment) {
        let requests = load.requests * self.level.settled_age(now);
        if self.window.is_none()
            && self.level.is_settled_for(CLEAN, now)
            && requests >= self.terms.enough()
            && (!self.was_overloaded_within(CLEAN, now) || now > self.baseline.until)
        {
            self.baseline.share = 0.0;
        }
    }

    fn follow_pace(&mut self, load: &Load, now: Moment) -> Option<Change> {
        let before = self.effective(now);
        let period = self.terms.unit.period();
        let has_moved = self.pace.update(load.used, period, now);
        (has_moved && before != self.effective(now)).then_some(Change::Pace)
    }

    /// The effective capacity: at most the configured one, and 0 in a pause.
    pub(in crate::ledger) fn effective(&self, now: Moment) -> f64 {
        if self.pauses.is_paused(now) {
            return 0.0;
        }
        let level = self.level.capacity();
        self.pace.told().map_or(level, |pace| level.min(pace))
    }

    /// The level is a new one for the holders.
    pub(in crate::ledger) fn tell_level(&mut self, now: Moment) {
        self.set_level(self.level.capacity(), now);
    }

    /// Raises nothing until then: not all holders are known.
    pub(in crate::ledger) fn hold_until(&mut self, until: Moment) {
        self.probe.hold_until = self.probe.hold_until.max(until);
    }

    /// Whether the level is the least that is allowed, or nothing may be sent.
    pub(in crate::ledger) fn is_at_floor(&self) -> bool {
        let is_least = self.level.capacity() <= self.terms.allowed(0.0);
        self.level.is_held_back(&self.terms) && is_least || self.pauses.until.is_some()
    }

    /// The effective capacity beside pauses and headers.
    pub(in crate::ledger) fn level(&self) -> f64 {
        self.level.capacity()
    }

    /// When the rules are to be applied next: not before the next report if nothing can change.
    /// Each report, tick and change of the terms may change it.
    pub(in crate::ledger) fn next_tick(&self, now: Moment) -> Moment {
        if let Some(until) = self.pauses.until {
            return until;
        }
        let soon = self.ticked.after_seconds(TICK);
        let is_busy = self.window.is_some()
            || !self.level.is_followed()
            || self.baseline.share > 0.0 && !self.traffic.is_silent(now)
            || self.pace.is_active(now);
        if is_busy {
            soon
        } else if self.level.is_held_back(&self.terms) && !self.traffic.is_silent(now) {
            soon.max(self.probe.hold_until)
        } else {
            Moment::NEVER
        }
    }

    /// Adopts an operator's change. If nothing was held back, nothing will be.
    pub(in crate::ledger) fn set_terms(&mut self, terms: ControlTerms, now: Moment) {
        let terms = terms.bounded();
        let Some(factor) = terms.unit.factor_from(self.terms.unit) else {
            // Holders keep their evidence: none of it may count again.
            *self = Self {
                windows: self.windows,
                era: self.era.wrapping_add(1),
                ..Self::new(terms, None, now)
            };
            return;
        };
        let was_held_back = self.level.is_held_back(&self.terms);
        self.scale(factor);
        if factor != 1.0 {
            // Rates that holders remember are in the old unit.
            self.era = self.era.wrapping_add(1);
        }
        self.terms = terms;
        let before = self.level.capacity();
        let level = if was_held_back {
            terms.allowed(before)
        } else {
            terms.configured
        };
        if level != before {
            self.set_level(level, now);
        }
        if !terms.follows_pace() {
            self.pace = Pace::NONE;
        }
        self.note_state(now);
    }

    /// Converts amounts to another unit.
    fn scale(&mut self, factor: f64) {
        self.level.scale(factor);
        self.plateau.accepted *= factor;
        self.baseline.scale(factor);
        self.pace.scale(factor);
    }

    /// The most that the demand of a holder counts: a holder that suffers alone gets about what
    /// the target accepts of it, and the others get the rest.
    pub(in crate::ledger) fn demand_cap(&self, evidence: &HolderEvidence) -> Option<f64> {
        let suffers_alone = evidence.suffers(self.era) && !self.is_common();
        let least = self.terms.least_demand(LEAST_REQUESTS, self.traffic.cost());
        suffers_alone.then(|| (ROOM * evidence.ok_rate()).max(least))
    }

    /// Whether so many suffer that nobody suffers alone.
    pub(super) fn is_common(&self) -> bool {
        self.suffering > COMMON
    }

    pub(super) fn was_overloaded_within(&self, seconds: f64, now: Moment) -> bool {
        let within = |last: Moment| now.seconds_since(last) < seconds;
        self.last_overload.is_some_and(within)
    }

    /// Requests per second of an amount.
    pub(super) fn requests_per_second(&self, amount: f64) -> f64 {
        amount / self.terms.unit.period() / self.traffic.cost()
    }
}
