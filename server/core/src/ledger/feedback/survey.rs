//! The counts of a window by class of holders, and what they say.

use crate::ledger::feedback::{
    holder::{HolderEvidence, Recent},
    report::MOST_USE,
    terms::{ControlTerms, bounded},
    traffic::Load,
    window::Window,
};

/// The standard error of the share of overloads, from which on a verdict is sure.
const SURE: f64 = 0.025;
/// The part of the expected outcomes below which refusals are counted against what is leased: with
/// few requests per holder, few intervals lie in a window.
const FEW: f64 = 0.25;
/// Use beyond the leases from which on the burst counts: refusals of it say nothing of the leases.
const BURST: f64 = 1.1;
/// The largest factor of a burst. A wrong report could state more.
const LARGEST_BURST: f64 = 1e3;
/// The parts of the bookings of holders that suffer, between which it is not clear at once whether
/// they suffer alone. Above the upper one the overload is common.
const UNCLEAR: (f64, f64) = (0.1, COMMON);
pub(super) const COMMON: f64 = 0.5;

/// Counts of all holders that report outcomes, in a window.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Survey {
    suffering: ClassCounts,
    others: ClassCounts,
    recent: Recent,
}

/// Counts of some holders.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ClassCounts {
    pub(super) outcomes: u64,
    pub(super) ok: u64,
    pub(super) overloaded: u64,
    pub(super) all_overloaded: u64,
    pub(super) used: f64,
    pub(super) leased: f64,
    pub(super) booked: f64,
}

/// The evidence of a window about a rate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Evidence {
    pub(super) requests: f64,
    pub(super) overloaded: f64,
    /// The part of the requests that was overloaded.
    pub(super) share: f64,
    /// Use as a factor of the leases, if it is beyond them.
    pub(super) burst: f64,
}

impl Survey {
    /// `most` tells how many requests a lease allows in the window.
    pub(super) fn take(
        window: &Window,
        holders: impl Iterator<Item = (HolderEvidence, f64)>,
        era: u32,
        most: impl Fn(f64) -> f64,
    ) -> Self {
        let mut survey = Self::default();
        for (evidence, booked) in holders {
            let class = if evidence.suffers(era) {
                &mut survey.suffering
            } else {
                &mut survey.others
            };
            let booked = bounded(booked);
            survey.recent.add(&evidence.recent(era));
            class.add(&evidence, booked, window, most(booked));
        }
        survey
    }

    /// The share of overloads of all, lately.
    pub(super) fn recent_share(&self) -> f32 {
        self.recent.share()
    }

    /// The part of all bookings of holders that suffer.
    pub(super) fn suffering_part(&self, booked: f64) -> f64 {
        part(self.suffering.booked, booked)
    }

    /// The counts that are evidence: of those that suffer only if the overload is common.
    pub(super) fn counted(&self, is_common: bool) -> ClassCounts {
        if is_common {
            self.others.with(&self.suffering)
        } else {
            self.others
        }
    }
}

impl ClassCounts {
    /// `most`: the requests that its lease allows in the window, whatever it states.
    fn add(&mut self, evidence: &HolderEvidence, booked: f64, window: &Window, most: f64) {
        let counts = evidence.counts_in(window);
        let weight = (most / f64::from(counts.outcomes.max(1))).min(1.0);
        let weighted = |count: u32| (f64::from(count) * weight).round() as u64;
        self.outcomes += weighted(counts.outcomes);
        self.ok += weighted(counts.ok);
        self.overloaded += weighted(counts.overloaded);
        // An interval that began before the window may have more.
        self.all_overloaded += u64::from(counts.all_overloaded).min(most as u64);
        // One holder must not seem to burst for all. A request to a gauge may take longer than the
        // interval in which it ends.
        self.used += if most < f64::INFINITY {
            counts.used.min(MOST_USE * counts.leased)
        } else {
            counts.used
        };
        self.leased += counts.leased;
        self.booked += booked;
    }

    fn with(mut self, other: &Self) -> Self {
        self.outcomes += other.outcomes;
        self.ok += other.ok;
        self.overloaded += other.overloaded;
        self.all_overloaded += other.all_overloaded;
        self.used += other.used;
        self.leased += other.leased;
        self.booked += other.booked;
        self
    }

    /// The evidence of a window of this age about a rate.
    pub(super) fn evidence(&self, load: &Load, age: f64) -> Evidence {
        let expected = load.requests * part(self.booked, load.bookings.booked) * age;
        let (requests, overloaded) = if (self.outcomes as f64) < FEW * expected {
            (expected, self.all_overloaded as f64)
        } else {
            (self.outcomes as f64, self.overloaded as f64)
        };
        let burst = if self.leased > 0.0 && self.used > BURST * self.leased {
            (self.used / self.leased).min(LARGEST_BURST)
        } else {
            1.0
        };
        Evidence {
            requests,
            overloaded,
            share: part(overloaded, requests),
            burst,
        }
    }
}

impl Evidence {
    /// Whether more requests were overloaded than this share of them, beyond chance.
    pub(super) fn exceeds(&self, share: f64) -> bool {
        exceeds(self.overloaded, share * self.requests)
    }

    /// Whether a verdict may be given before [`LENGTH`](super::window::LENGTH).
    pub(super) fn is_sure(&self, suffering: f64) -> bool {
        let variance = self.share * (1.0 - self.share) / self.requests;
        self.requests > 0.0 && variance <= SURE * SURE && !is_unclear(suffering)
    }

    pub(super) fn is_enough(&self, terms: &ControlTerms) -> bool {
        self.requests >= terms.enough()
    }
}

/// Whether a count exceeds its limit by more than two standard deviations and one.
pub(super) fn exceeds(count: f64, limit: f64) -> bool {
    count > limit + 2.0 * limit.sqrt() + 1.0
}

/// Whether so large a part of holders suffers that they may be few or all.
pub(super) fn is_unclear(suffering: f64) -> bool {
    let (from, to) = UNCLEAR;
    suffering > from && suffering <= to
}

fn part(of: f64, whole: f64) -> f64 {
    if whole > 0.0 {
        (of / whole).min(1.0)
    } else {
        0.0
    }
}
