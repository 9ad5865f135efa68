//! Evidence of one holder: whether it suffers alone, and its outcomes in the window.

use doorman_openapi::Moment;

use crate::ledger::feedback::{
    report::OutcomeReport,
    rules::FeedbackRule,
    terms::{ControlTerms, bounded},
    window::Window,
};

/// Recent outcomes that count. Beyond it all are halved, so that older ones fade.
const RECENT: f32 = 50.0;
/// The share of recent overloads above which a holder suffers, and from how many overloads on.
const SUFFERS: f32 = 0.25;
const SUFFERS_FROM: f32 = 5.0;
/// The share, and the seconds after its last overload, until which it suffers.
const SUFFERED: f32 = 0.05;
const SUFFERED_SECONDS: f64 = 10.0;
/// Seconds over which the accepted rate is a mean.
const OK_SECONDS: f64 = 2.0;

/// The use of a lease, as a factor, that a full bucket allows in a window, and the requests beside.
const MOST_USE: f64 = 2.0;
const MOST_REQUESTS: f64 = 20.0;

/// Evidence of one holder, for one [`FeedbackControl`](super::control::FeedbackControl).
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::ledger) struct HolderEvidence {
    counts: WindowCounts,
    last_overload: Moment,
    recent: Recent,
    /// The rate that the target accepts of it, in the unit of the resource.
    ok_rate: f32,
    /// The window of `counts`.
    window: u32,
    /// The era of `recent` and `suffers`.
    era: u32,
    suffers: bool,
}

/// Outcomes of a holder in a window.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WindowCounts {
    /// Of intervals that lie in the window.
    pub(super) outcomes: u32,
    pub(super) ok: u32,
    pub(super) overloaded: u32,
    /// Of all reports since the window opened.
    pub(super) all_overloaded: u32,
    /// Use and lease in intervals that lie in the window.
    pub(super) used: f64,
    pub(super) leased: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Recent {
    outcomes: f32,
    overloaded: f32,
}

impl HolderEvidence {
    /// Takes the outcomes of a report. A new `era` makes all holders forget that they suffered.
    pub(super) fn count(
        &mut self,
        report: &OutcomeReport,
        terms: &ControlTerms,
        era: u32,
        now: Moment,
    ) {
        if self.era != era {
            (self.era, self.recent, self.suffers) = (era, Recent::default(), false);
        }
        self.count_ok(report, terms);
        self.recent.add(report);
        if report.overloaded > 0 {
            self.last_overload = now;
        }
        let Recent {
            outcomes,
            overloaded,
        } = self.recent;
        self.suffers = if !terms.has(FeedbackRule::SuffersAlone) {
            false
        } else if self.suffers {
            overloaded > SUFFERED * outcomes
                && now.seconds_since(self.last_overload) < SUFFERED_SECONDS
        } else {
            overloaded >= SUFFERS_FROM && overloaded > SUFFERS * outcomes
        };
    }

    fn count_ok(&mut self, report: &OutcomeReport, terms: &ControlTerms) {
        if report.elapsed <= 0.0 {
            return;
        }
        let accepted = if terms.unit.is_gauge() {
            report.ok_seconds
        } else {
            report.accepted() * terms.unit.period()
        };
        // Of a short interval the part is small, and the rate may be infinite.
        let part = -(-report.elapsed / OK_SECONDS).exp_m1();
        let before = f64::from(self.ok_rate) * (1.0 - part);
        self.ok_rate = bounded(before + accepted * (part / report.elapsed)) as f32;
    }

    /// Takes a report while a window is open. `opens`: the window opened with this report.
    ///
    /// An interval that began before the window is no evidence: holders report at once when they
    /// are refused, and calm ones after seconds, so the sums of both are no rate.
    pub(super) fn count_in(
        &mut self,
        window: &Window,
        report: &OutcomeReport,
        opens: bool,
        terms: &ControlTerms,
    ) {
        let lies_within = self.window == window.number();
        if !lies_within {
            (self.window, self.counts) = (window.number(), WindowCounts::default());
        }
        if !opens {
            add(&mut self.counts.all_overloaded, report.overloaded);
        }
        if lies_within || !terms.has(FeedbackRule::IntervalInWindow) {
            self.counts.add(report, terms);
        }
    }

    pub(super) fn counts_in(&self, window: &Window) -> WindowCounts {
        if self.window == window.number() {
            self.counts
        } else {
            WindowCounts::default()
        }
    }

    /// Whether the target refuses much more of it than of most holders.
    pub(super) fn suffers(&self, era: u32) -> bool {
        self.suffers && self.era == era
    }

    pub(super) fn ok_rate(&self) -> f64 {
        f64::from(self.ok_rate)
    }
}

impl WindowCounts {
    fn add(&mut self, report: &OutcomeReport, terms: &ControlTerms) {
        add(&mut self.outcomes, report.outcomes());
        add(&mut self.ok, report.ok);
        add(&mut self.overloaded, report.overloaded);
        self.used += report.amount(terms.unit);
        self.leased += report.leased(terms.unit);
    }

    /// The part of the counts that is evidence: a lease allows no more requests, whatever its holder
    /// states.
    pub(super) fn weight(&self, cost: f64) -> f64 {
        let most = MOST_USE * self.leased / cost + MOST_REQUESTS;
        (most / f64::from(self.outcomes.max(1))).min(1.0)
    }
}

impl Recent {
    fn add(&mut self, report: &OutcomeReport) {
        self.outcomes += report.outcomes() as f32;
        self.overloaded += report.overloaded as f32;
        while self.outcomes > RECENT {
            self.outcomes *= 0.5;
            self.overloaded *= 0.5;
        }
    }
}

fn add(count: &mut u32, more: u64) {
    *count = count.saturating_add(u32::try_from(more).unwrap_or(u32::MAX));
}
