//! Demand for long buckets, over the time of the limit. For operators; leases do not depend on it.
//!
//! Holders state a demand that they measured within seconds, because leases have to follow it. For
//! a limit of six requests an hour, three requests at one moment are then a demand of thousands,
//! although the bucket admits them. So here the tokens of the last hour count: those spent, by the
//! buckets that holders state, and an estimate of those of rejected requests. Older ones do not
//! count.

use std::collections::BTreeMap;

use doorman_openapi::{LONG_BURST, Moment};

use crate::ledger::keys::EntrySlot;

/// The time over which `tower-doorman` measures its demand, in refresh intervals and in seconds.
const MEASURED_INTERVALS: f64 = 2.0;
const SHORTEST_MEASURED: f64 = 1.0;
const LONGEST_MEASURED: f64 = 10.0;
/// A demand that grows more than this has begun anew, and is measured over the shortest time.
const BEGINS_ANEW: f64 = 2.0;
/// Parts of the time of a limit in which tokens are counted: they count up to one part too long.
const PARTS: usize = 4;
/// Hides the rounding of a rate of one request.
const NEARLY_ONE: f64 = 0.999;

/// The time over which holders measure the demand that they state.
pub(in crate::ledger) fn measured_seconds(refresh_interval: f64) -> f64 {
    (MEASURED_INTERVALS * refresh_interval).clamp(SHORTEST_MEASURED, LONGEST_MEASURED)
}

#[derive(Debug, Clone)]
pub(in crate::ledger) struct RecentDemand {
    /// The period of the limit.
    per: f64,
    /// The largest bucket of a holder, in seconds of its rate.
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
    reported: Moment,
    burst: f64,
    /// The demand in its last request, in tokens per second.
    wants: f64,
    /// The tokens of its requests before its first lease, which are charged to that.
    undecided: f64,
    /// Whether its bucket had too few tokens then.
    is_short: bool,
}

/// Tokens of the last time, by parts of it, the newest first. Of the oldest less and less counts.
#[derive(Debug, Clone, Copy)]
struct Tokens {
    parts: [Count; PARTS + 1],
    /// When the newest part began.
    began: Moment,
}

#[derive(Debug, Clone, Copy, Default)]
struct Count {
    spent: f64,
    rejected: f64,
}

impl RecentDemand {
    pub(in crate::ledger) fn new(now: Moment) -> Self {
        Self {
            per: SHORTEST_MEASURED,
            burst: 0.0,
            all: Tokens::none(now),
            holders: BTreeMap::new(),
        }
    }

    /// Takes over a request of a holder. A short bucket is none: its demand of seconds is right.
    pub(in crate::ledger) fn record(
        &mut self,
        slot: EntrySlot,
        report: &BucketReport,
        now: Moment,
    ) {
        let known = self.holders.get(&slot).copied();
        if known.is_some_and(|it| it.burst > report.burst) {
            self.remove(slot);
        }
        if report.burst <= LONG_BURST {
            return;
        }
        (self.per, self.burst) = (report.per, self.burst.max(report.burst));
        let (mut holder, count) = OfHolder::after(known, report, now);
        let span = self.span();
        holder.recent.add(count, span, now);
        self.all.add(count, span, now);
        self.holders.insert(slot, holder);
    }

    /// The lease of a holder ends, or it states no bucket. Its demand of the last time still counts
    /// for the resource.
    pub(in crate::ledger) fn remove(&mut self, slot: EntrySlot) {
        let has_largest = |it: &OfHolder| it.burst >= self.burst;
        let removed = self.holders.remove(&slot);
        if removed.is_some() && !self.holders.values().any(has_largest) {
            let bursts = self.holders.values().map(|it| it.burst);
            self.burst = bursts.fold(0.0, f64::max);
        }
    }

    /// The time of the limit: its period, or that of the largest bucket if it is longer.
    fn span(&self) -> f64 {
        self.per.max(self.burst)
    }

    /// Whether each of so many clients of the resource has a long bucket.
    pub(in crate::ledger) fn covers(&self, clients: f64) -> bool {
        !self.holders.is_empty() && self.holders.len() as f64 >= clients
    }

    /// Of all holders, in tokens per second. Admitted ones count up to this `rate`: a
    /// bucket that was full admits more for a while.
    pub(in crate::ledger) fn per_second(&self, rate: f64, now: Moment) -> f64 {
        let span = self.span();
        let Count { spent, rejected } = self.all.recent(span, now);
        (spent / span).min(rate) + rejected / span
    }

    /// The requests of all holders in the time of the limit, if each costs one token.
    pub(in crate::ledger) fn requests(&self, rate: f64, now: Moment) -> f64 {
        self.per_second(rate, now) * self.span()
    }

    /// Of a holder, in tokens per second.
    pub(in crate::ledger) fn per_second_of(&self, slot: EntrySlot, now: Moment) -> Option<f64> {
        let span = self.span();
        let Count { spent, rejected } = self.holders.get(&slot)?.recent.recent(span, now);
        Some((spent + rejected) / span)
    }

    /// Whether the bucket of a holder had tokens for its requests when it reported last.
    pub(in crate::ledger) fn has_tokens(&self, slot: EntrySlot) -> bool {
        self.holders.get(&slot).is_some_and(|it| !it.is_short)
    }

    /// The seconds of its rate that the largest bucket holds.
    pub(in crate::ledger) fn burst(&self) -> f64 {
        self.burst
    }
}

impl OfHolder {
    fn before_first(now: Moment) -> Self {
        Self {
            recent: Tokens::none(now),
            reported: now,
            burst: 0.0,
            wants: 0.0,
            undecided: 0.0,
            is_short: false,
        }
    }

    /// A holder after a report, before its tokens are added to `recent`; and these.
    fn after(known: Option<Self>, report: &BucketReport, now: Moment) -> (Self, Count) {
        let is_first = known.is_none();
        let known = known.unwrap_or_else(|| Self::before_first(now));
        let elapsed = if is_first {
            SHORTEST_MEASURED
        } else {
            now.seconds_since(known.reported)
        };
        let attempts = known.attempts(report, elapsed) + known.undecided;
        let missing = (attempts - report.spent).max(0.0);
        let is_short = match report.tokens {
            // One request may cost more than one token, and is rejected whole.
            Some(tokens) => tokens < missing.max(1.0),
            // It has asked before, and had no lease.
            None => !is_first,
        };
        let is_undecided = is_first && report.tokens.is_none();
        let holder = Self {
            recent: known.recent,
            reported: now,
            burst: report.burst,
            wants: report.wants,
            undecided: if is_undecided { attempts } else { 0.0 },
            is_short,
        };
        let count = Count {
            spent: report.spent,
            rejected: if is_short { missing } else { 0.0 },
        };
        (holder, count)
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
            parts: [Count::default(); PARTS + 1],
            began: now,
        }
    }

    fn add(&mut self, count: Count, span: f64, now: Moment) {
        *self = self.at(span, now);
        let [newest, ..] = &mut self.parts;
        newest.spent += count.spent;
        newest.rejected += count.rejected;
    }

    /// The tokens of the last `span` seconds, as if those of the oldest part were even.
    fn recent(self, span: f64, now: Moment) -> Count {
        let Self { parts, began } = self.at(span, now);
        let newest = now.seconds_since(began) / part_of(span);
        let [whole @ .., oldest] = parts;
        let left = (1.0 - newest).max(0.0);
        let first = Count {
            spent: oldest.spent * left,
            rejected: oldest.rejected * left,
        };
        whole.iter().fold(first, |sum, part| Count {
            spent: sum.spent + part.spent,
            rejected: sum.rejected + part.rejected,
        })
    }

    /// Begins the parts that are due, and forgets the oldest ones.
    fn at(mut self, span: f64, now: Moment) -> Self {
        let begun = (now.seconds_since(self.began) / part_of(span)).floor();
        if begun > PARTS as f64 {
            return Self::none(now);
        }
        let new = begun as usize;
        self.parts.rotate_right(new);
        for part in self.parts.iter_mut().take(new) {
            *part = Count::default();
        }
        self.began = self.began.after_seconds(begun * part_of(span));
        self
    }
}

fn part_of(span: f64) -> f64 {
    span / PARTS as f64
}
