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
/// The same beside the share of all: of a network that passes little, one holder may have most, and
/// is refused less than that.
const SUFFERS_BESIDE: f32 = 0.1;
const SUFFERS_TIMES: f32 = 4.0;
/// The share, and the seconds after its last overload, until which it suffers.
const SUFFERED: f32 = 0.05;
const SUFFERED_SECONDS: f64 = 10.0;
/// Seconds over which the accepted rate is a mean.
const OK_SECONDS: f64 = 2.0;

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

/// Recent outcomes, which fade.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Recent {
    outcomes: f32,
    overloaded: f32,
}

impl HolderEvidence {
    /// Takes the outcomes of a report. A new `era` makes all holders forget that they suffered.
    /// `share` is that of the recent overloads of all, if it is known.
    pub(super) fn count(
        &mut self,
        report: &OutcomeReport,
        terms: &ControlTerms,
        (era, share): (u32, Option<f32>),
        now: Moment,
    ) {
        if self.era != era {
            (self.era, self.recent, self.suffers) = (era, Recent::default(), false);
        }
        self.count_ok(report, terms);
        self.recent.count(report);
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
            let beside = |share: f32| (SUFFERS_TIMES * share).clamp(SUFFERS_BESIDE, SUFFERS);
            overloaded >= SUFFERS_FROM && overloaded > share.map_or(SUFFERS, beside) * outcomes
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

    /// The same of a holder that is silent: nobody knows whether it suffers.
    pub(in crate::ledger) fn calm(self) -> Self {
        Self {
            suffers: false,
            ..self
        }
    }

    /// Whether the target refuses much more of it than of most holders.
    pub(super) fn suffers(&self, era: u32) -> bool {
        self.suffers && self.era == era
    }

    pub(super) fn recent(&self, era: u32) -> Recent {
        if self.era == era {
            self.recent
        } else {
            Recent::default()
        }
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
}

impl Recent {
    pub(super) fn add(&mut self, other: &Self) {
        self.outcomes += other.outcomes;
        self.overloaded += other.overloaded;
    }

    pub(super) fn share(&self) -> f32 {
        self.overloaded / self.outcomes.max(1.0)
    }

    fn count(&mut self, report: &OutcomeReport) {
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
