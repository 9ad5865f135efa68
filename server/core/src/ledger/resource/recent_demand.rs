//! Demand for long buckets, over the time of the limit. For operators; leases do not depend on it.
//!
//! Holders state a demand that they measured within seconds, because leases have to follow it. For
//! a limit of six requests an hour, three requests at one moment are then a demand of thousands,
//! although the bucket admits them. So here the tokens of the last hour count: those spent, by the
//! buckets that holders state, and an estimate of those of rejected requests.

use std::collections::BTreeMap;

use doorman_openapi::Moment;

use crate::ledger::keys::EntrySlot;

/// The time over which `tower-doorman` measures its demand, in refresh intervals and in seconds.
const MEASURED_INTERVALS: f64 = 2.0;
const SHORTEST_MEASURED: f64 = 1.0;
const LONGEST_MEASURED: f64 = 10.0;
/// A demand that grows more than this has begun anew, and is measured over the shortest time.
const BEGINS_ANEW: f64 = 2.0;
/// Hides the rounding of a rate of one request.
const NEARLY_ONE: f64 = 0.999;

/// The time over which holders measure the demand that they state.
pub(in crate::ledger) fn measured_seconds(refresh_interval: f64) -> f64 {
    (MEASURED_INTERVALS * refresh_interval).clamp(SHORTEST_MEASURED, LONGEST_MEASURED)
}

#[derive(Debug, Clone)]
pub(in crate::ledger) struct RecentDemand {
    /// The time of the limit: its period, or that of the bucket if it is longer.
    span: f64,
    /// The seconds of its rate that a bucket holds, by the last request.
    burst: f64,
    all: Tokens,
    holders: BTreeMap<EntrySlot, OfHolder>,
}

/// A request of a holder that states its bucket.
#[derive(Debug, Clone, Copy)]
pub(in crate::ledger) struct BucketReport {
    /// The demand that it states, in tokens per second.
    pub(in crate::ledger) wants: f64,
    /// The tokens that it has spent since its last request.
    pub(in crate::ledger) spent: f64,
    /// The tokens in its bucket; `None` before it has one.
    pub(in crate::ledger) tokens: Option<f64>,
    pub(in crate::ledger) burst: f64,
    pub(in crate::ledger) per: f64,
    pub(in crate::ledger) refresh_interval: f64,
}

#[derive(Debug, Clone, Copy)]
struct OfHolder {
    recent: Tokens,
    /// The demand in its last request, in tokens per second.
    wants: f64,
    /// The tokens of its requests before its first lease, which are charged to that.
    undecided: f64,
    /// Whether its bucket had no token then.
    is_empty: bool,
}

/// Tokens, which fade with their age.
#[derive(Debug, Clone, Copy)]
struct Tokens {
    spent: f64,
    rejected: f64,
    since: Moment,
}

impl RecentDemand {
    pub(in crate::ledger) fn new(now: Moment) -> Self {
        Self {
            span: SHORTEST_MEASURED,
            burst: 0.0,
            all: Tokens::none(now),
            holders: BTreeMap::new(),
        }
    }

    pub(in crate::ledger) fn record(
        &mut self,
        slot: EntrySlot,
        report: &BucketReport,
        now: Moment,
    ) {
        let (span, known) = (
            report.per.max(report.burst),
            self.holders.get(&slot).copied(),
        );
        (self.span, self.burst) = (span, report.burst);
        let is_first = known.is_none();
        let known = known.unwrap_or_else(|| OfHolder::before_first(now));
        let elapsed = if is_first {
            SHORTEST_MEASURED
        } else {
            now.seconds_since(known.recent.since)
        };
        let is_empty = match report.tokens {
            Some(tokens) => tokens < 1.0,
            // It has asked before, and had no lease.
            None => !is_first,
        };
        let attempts = known.attempts(report, elapsed) + known.undecided;
        let rejected = if is_empty {
            (attempts - report.spent).max(0.0)
        } else {
            0.0
        };
        let is_undecided = is_first && report.tokens.is_none();
        let mut recent = known.recent;
        for tokens in [&mut self.all, &mut recent] {
            *tokens = tokens.faded(span, now);
            tokens.spent += report.spent;
            tokens.rejected += rejected;
        }
        let holder = OfHolder {
            recent,
            wants: report.wants,
            undecided: if is_undecided { attempts } else { 0.0 },
            is_empty,
        };
        self.holders.insert(slot, holder);
    }

    /// The lease of a holder ends. Its demand of the last time still counts for the resource.
    pub(in crate::ledger) fn remove(&mut self, slot: EntrySlot) {
        self.holders.remove(&slot);
    }

    /// Whether it has the demand of all these clients.
    pub(in crate::ledger) fn covers(&self, clients: f64) -> bool {
        !self.holders.is_empty() && self.holders.len() as f64 >= clients
    }

    /// Of all holders, in tokens per second. What was admitted is no more than this `rate`: a
    /// bucket that was full admits more for a while.
    pub(in crate::ledger) fn per_second(&self, rate: f64, now: Moment) -> f64 {
        let Tokens {
            spent, rejected, ..
        } = self.all.faded(self.span, now);
        (spent / self.span).min(rate) + rejected / self.span
    }

    /// The requests of all holders in the time of the limit, if each costs one token.
    pub(in crate::ledger) fn requests(&self, rate: f64, now: Moment) -> f64 {
        self.per_second(rate, now) * self.span
    }

    /// Of a holder, in tokens per second.
    pub(in crate::ledger) fn per_second_of(&self, slot: EntrySlot, now: Moment) -> Option<f64> {
        let recent = self.holders.get(&slot)?.recent.faded(self.span, now);
        Some((recent.spent + recent.rejected) / self.span)
    }

    /// Whether the bucket of a holder had tokens at its last request.
    pub(in crate::ledger) fn has_tokens(&self, slot: EntrySlot) -> bool {
        self.holders.get(&slot).is_some_and(|it| !it.is_empty)
    }

    /// The seconds of its rate that a bucket holds.
    pub(in crate::ledger) fn burst(&self) -> f64 {
        self.burst
    }
}

impl OfHolder {
    fn before_first(now: Moment) -> Self {
        Self {
            recent: Tokens::none(now),
            wants: 0.0,
            undecided: 0.0,
            is_empty: false,
        }
    }

    /// The tokens of the requests since its last report. The demands of two reports count the
    /// requests between them, and both those shortly before.
    fn attempts(&self, report: &BucketReport, elapsed: f64) -> f64 {
        let measured = measured_seconds(report.refresh_interval);
        if report.wants * measured < NEARLY_ONE {
            // Less than one request in that time is the demand of an earlier one, which fades.
            0.0
        } else if self.wants * measured < NEARLY_ONE {
            report.wants * SHORTEST_MEASURED
        } else if report.wants > BEGINS_ANEW * self.wants {
            report.wants * elapsed.min(SHORTEST_MEASURED)
        } else {
            let before = self.wants * (measured - elapsed).max(0.0);
            (report.wants * measured.max(elapsed) - before).max(0.0)
        }
    }
}

impl Tokens {
    fn none(now: Moment) -> Self {
        Self {
            spent: 0.0,
            rejected: 0.0,
            since: now,
        }
    }

    fn faded(self, span: f64, now: Moment) -> Self {
        let left = (-now.seconds_since(self.since) / span).exp();
        Self {
            spent: self.spent * left,
            rejected: self.rejected * left,
            since: self.since.max(now),
        }
    }
}
