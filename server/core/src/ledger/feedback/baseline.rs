//! Refusals that do not depend on our load: the baseline, and the trial that finds it.
//!
//! Cuts that do not help look like a target that falls. So the level before the cuts is tried, for
//! one window and with a verdict, and the baseline ends after a minute. Without these a fleet stays
//! overloaded after a target has fallen.

use doorman_openapi::Moment;

/// Cuts in so many seconds are of one overload.
const RELATED: f64 = 10.0;
/// The factors between which the share of overloads is the same as before.
const SAME_SHARE: (f64, f64) = (0.5, 1.5);
/// Cuts that did not help, after which the level before them is tried.
const USELESS: u32 = 2;
/// The share from which on refusals depend on the load.
const MOST: f64 = 0.5;
/// Seconds for which a baseline lasts while there are overloads, and until the next trial after
/// one that failed.
const LASTS: f64 = 60.0;
/// Seconds without any overload that end a baseline.
pub(super) const CLEAN: f64 = 2.0;
/// The factor of the baseline that a trial tolerates.
const TRIAL: f64 = 1.5;
/// The part by which a baseline follows a smaller share of overloads.
const FOLLOWS: f64 = 0.2;

#[derive(Debug, Clone, Copy)]
pub(super) struct Baseline {
    /// The share of requests that the target refuses at any load.
    pub(super) share: f64,
    /// Until when it counts beside overloads.
    pub(super) until: Moment,
    is_trial: bool,
    no_trial_until: Moment,
    /// Cuts in a row that did not help.
    useless: u32,
    /// The level before them.
    before: f64,
    last: Option<LastCut>,
}

#[derive(Debug, Clone, Copy)]
struct LastCut {
    share: f64,
    at: Moment,
}

impl Baseline {
    pub(super) fn none(level: f64) -> Self {
        Self {
            share: 0.0,
            until: Moment::ORIGIN,
            is_trial: false,
            no_trial_until: Moment::ORIGIN,
            useless: 0,
            before: level,
            last: None,
        }
    }

    /// The share of overloads that is no reason to cut.
    pub(super) fn tolerated(&self, tolerate: f64) -> f64 {
        let factor = if self.is_trial { TRIAL } else { 1.0 };
        tolerate + factor * self.share
    }

    /// The part of the requests that the target would accept at a level that it bears.
    pub(super) fn acceptable(&self) -> f64 {
        1.0 - self.share
    }

    /// A window ended without a cut: the trial was right, and the baseline may be smaller.
    pub(super) fn pass(&mut self, share: f64) {
        self.is_trial = false;
        self.share += FOLLOWS * (share - self.share).min(0.0);
    }

    /// Takes a trial back that is overloaded: the level before the cuts was our own load.
    pub(super) fn fail_trial(&mut self, now: Moment) {
        if self.is_trial {
            self.is_trial = false;
            self.share = 0.0;
            self.no_trial_until = now.after_seconds(LASTS);
        }
    }

    /// Counts a cut from `level`. `has_probed`: the level was raised since the cut before. Returns
    /// the level to try if less load has not helped.
    pub(super) fn count_cut(
        &mut self,
        level: f64,
        share: f64,
        has_probed: bool,
        now: Moment,
    ) -> Option<f64> {
        let helped_not = |last: &LastCut| {
            let (least, most) = SAME_SHARE;
            let is_same = share > least * last.share && share < most * last.share;
            now.seconds_since(last.at) < RELATED && is_same
        };
        if !has_probed && self.last.as_ref().is_some_and(helped_not) {
            self.useless = self.useless.saturating_add(1);
        } else {
            self.useless = 0;
            self.before = level;
        }
        let before = self.last.replace(LastCut { share, at: now });
        let is_due = self.useless >= USELESS && share < MOST && now >= self.no_trial_until;
        is_due.then(|| self.begin_trial(before.map_or(share, |it| share.max(it.share)), now))
    }

    fn begin_trial(&mut self, share: f64, now: Moment) -> f64 {
        self.share = share;
        self.until = now.after_seconds(LASTS);
        self.is_trial = true;
        self.useless = 0;
        self.before
    }

    /// Converts amounts to another unit.
    pub(super) fn scale(&mut self, factor: f64) {
        self.before *= factor;
    }
}
