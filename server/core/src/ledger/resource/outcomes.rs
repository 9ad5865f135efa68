//! Outcomes of the holders' requests, by their reports.
//!
//! Reports are running totals, never deltas: a lost, late or repeated report counts nothing twice.
//! A total that is smaller than before begins a new count.

use doorman_openapi::{
    Capacity, Moment, OutcomeRates, Outcomes, Probability, RequestCount, ResourceOutcomes,
};

use crate::ledger::{
    keys::EntrySlot,
    store::packed::{OptionalCapacity, PackedCount},
};

/// More in one report is no true one: it begins a new count.
const MOST_REQUESTS: u64 = 1_000_000_000;
const MOST_COST: f64 = 1e12;

/// Seconds over which rates are a mean: after these a part of 1/e is left of a sum.
const RATE_SECONDS: f64 = 10.0;

/// The outcomes of a resource. Present once a holder has reported some.
#[derive(Debug, Clone, Default)]
pub(in crate::ledger) struct ReportedOutcomes {
    /// By slot.
    holders: Vec<HolderTotals>,
    /// The new outcomes in the reports of all holders, also of those that have ended.
    total: Tally,
    /// The same, of which older parts fade.
    recent: Tally,
    recent_at: Moment,
    /// The part of the total of holders whose outcomes move capacities: a node reports it.
    evidence: Tally,
    /// The part of the total that is not counted by template yet.
    uncounted: Tally,
    /// Why the last report moves no capacity.
    ignored: Option<Ignored>,
}

/// The last report of a holder, in 40 bytes: there may be a million.
#[derive(Debug, Clone, Copy)]
struct HolderTotals {
    /// Absent before the first report.
    refused: OptionalCapacity,
    ok_seconds: OptionalCapacity,
    ok: PackedCount,
    overloaded: PackedCount,
    failed: PackedCount,
    /// The part of the last outcomes that was overloaded, of [`u16::MAX`].
    overloaded_share: u16,
    /// When the unbroken run of reports with refusals began, in whole seconds; 0 without one.
    refused_since: u32,
}

const _: () = assert!(size_of::<HolderTotals>() == 40);

/// Sums of outcomes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Tally {
    /// The cost of requests that holders did not admit.
    pub refused: f64,
    /// Requests that the target served.
    pub ok: f64,
    /// Requests that the target refused for its load.
    pub overloaded: f64,
    /// Requests that failed for another reason.
    pub failed: f64,
    /// Units times seconds of the served requests of gauges.
    pub ok_seconds: Option<f64>,
}

/// Why the outcomes of a report move no capacity, although the resource has `feedback`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ledger) enum Ignored {
    /// The caller may not move it.
    Scope,
    /// They begin a count.
    Baseline,
    /// The holder suffers alone.
    Suffers,
}

impl Ignored {
    pub(in crate::ledger) fn of(
        has_law: bool,
        counts: bool,
        suffers: bool,
        is_first: bool,
    ) -> Option<Self> {
        let ignored = match (counts, is_first, suffers) {
            (false, ..) => Self::Scope,
            (true, true, _) => Self::Baseline,
            (true, false, true) => Self::Suffers,
            (true, false, false) => return None,
        };
        has_law.then_some(ignored)
    }
}

/// The outcomes of a holder, for views.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::ledger) struct HolderOutcomes {
    pub(in crate::ledger) totals: Outcomes,
    pub(in crate::ledger) refused_since: Option<Moment>,
    /// Absent before the first outcome.
    pub(in crate::ledger) overloaded_share: Option<Probability>,
}

impl ReportedOutcomes {
    /// Takes a report. Returns what is new in it; `None` if it begins a new count.
    pub(in crate::ledger) fn report(
        &mut self,
        slot: EntrySlot,
        outcomes: &Outcomes,
        counts: bool,
        now: Moment,
    ) -> Option<Tally> {
        let outcomes = &packable(outcomes);
        let holder = self.holder_mut(slot)?;
        let before = holder.totals();
        let new = before.and_then(|before| Tally::new_since(outcomes, &before));
        holder.set_totals(outcomes);
        let Some(new) = new else {
            holder.forget();
            return None;
        };
        holder.note(&new, now);
        self.fade(now);
        self.total.add(&new);
        self.recent.add(&new);
        self.uncounted.add(&new);
        if counts {
            self.evidence.add(&new);
        }
        Some(new)
    }

    /// Takes over what a predecessor has recorded of a holder. What is new in its next report
    /// counts.
    pub(in crate::ledger) fn restore(&mut self, slot: EntrySlot, outcomes: &Outcomes) {
        if let Some(holder) = self.holder_mut(slot) {
            holder.set_totals(outcomes);
        }
    }

    pub(in crate::ledger) fn restore_total(&mut self, total: &Outcomes) {
        self.total = Tally::of(total);
    }

    /// Forgets a holder whose lease has ended.
    pub(in crate::ledger) fn end(&mut self, slot: EntrySlot) {
        if let Some(holder) = self.holders.get_mut(slot.index()) {
            *holder = HolderTotals::NONE;
        }
    }

    /// The outcomes reported since the last call.
    pub(in crate::ledger) fn take_uncounted(&mut self) -> (Tally, Option<Ignored>) {
        (std::mem::take(&mut self.uncounted), self.ignored.take())
    }

    pub(in crate::ledger) fn count_ignored(&mut self, ignored: Option<Ignored>) {
        self.ignored = ignored;
    }

    /// The outcomes that all holders have reported, while this master knew them.
    pub(in crate::ledger) fn total(&self) -> Outcomes {
        self.total.to_outcomes()
    }

    /// The same of holders whose outcomes move capacities.
    pub(in crate::ledger) fn evidence(&self) -> Outcomes {
        self.evidence.to_outcomes()
    }

    /// Outcomes per second, over the last ten.
    pub(in crate::ledger) fn per_second(&self, now: Moment) -> Tally {
        let mut rate = self.recent;
        rate.scale(self.left(now) / RATE_SECONDS);
        rate
    }

    pub(in crate::ledger) fn view(&self, now: Moment) -> ResourceOutcomes {
        let rate = self.per_second(now);
        ResourceOutcomes {
            total: self.total(),
            per_second: OutcomeRates {
                refused: rate.refused,
                ok: rate.ok,
                overloaded: rate.overloaded,
                failed: rate.failed,
            },
        }
    }

    pub(in crate::ledger) fn of_holder(&self, slot: EntrySlot) -> Option<HolderOutcomes> {
        let holder = self.holders.get(slot.index())?;
        let totals = holder.totals()?;
        let has_outcomes = Tally::of(&totals).outcomes() > 0.0;
        let since = u64::from(holder.refused_since);
        Some(HolderOutcomes {
            totals,
            refused_since: (since > 0).then(|| Moment::ORIGIN.after_seconds(since as f64)),
            overloaded_share: has_outcomes.then(|| {
                let share = f64::from(holder.overloaded_share) / f64::from(u16::MAX);
                Probability::saturating(share)
            }),
        })
    }

    /// Grows by an eighth: twice the room would be twice the memory.
    fn holder_mut(&mut self, slot: EntrySlot) -> Option<&mut HolderTotals> {
        let missing = (slot.index() + 1).saturating_sub(self.holders.len());
        if missing > 0 {
            self.holders.reserve_exact(missing + self.holders.len() / 8);
            self.holders.resize(slot.index() + 1, HolderTotals::NONE);
        }
        self.holders.get_mut(slot.index())
    }

    fn fade(&mut self, now: Moment) {
        self.recent.scale(self.left(now));
        self.recent_at = now;
    }

    fn left(&self, now: Moment) -> f64 {
        (-now.seconds_since(self.recent_at) / RATE_SECONDS).exp()
    }
}

/// The same, as far as it is stored: larger counts would be new each time.
fn packable(outcomes: &Outcomes) -> Outcomes {
    let stored = |count| RequestCount::saturating(PackedCount::new(count).get());
    Outcomes {
        ok: stored(outcomes.ok),
        overloaded: stored(outcomes.overloaded),
        failed: stored(outcomes.failed),
        ..*outcomes
    }
}

impl HolderTotals {
    const NONE: Self = Self {
        refused: OptionalCapacity::NONE,
        ok_seconds: OptionalCapacity::NONE,
        ok: PackedCount::ZERO,
        overloaded: PackedCount::ZERO,
        failed: PackedCount::ZERO,
        overloaded_share: 0,
        refused_since: 0,
    };

    fn totals(&self) -> Option<Outcomes> {
        Some(Outcomes {
            refused: self.refused.get()?,
            ok: RequestCount::saturating(self.ok.get()),
            overloaded: RequestCount::saturating(self.overloaded.get()),
            failed: RequestCount::saturating(self.failed.get()),
            ok_seconds: self.ok_seconds.get(),
        })
    }

    fn set_totals(&mut self, outcomes: &Outcomes) {
        self.refused = OptionalCapacity::new(Some(outcomes.refused));
        self.ok_seconds = OptionalCapacity::new(outcomes.ok_seconds);
        self.ok = PackedCount::new(outcomes.ok);
        self.overloaded = PackedCount::new(outcomes.overloaded);
        self.failed = PackedCount::new(outcomes.failed);
    }

    /// Begins a new count.
    fn forget(&mut self) {
        (self.overloaded_share, self.refused_since) = (0, 0);
    }

    fn note(&mut self, new: &Tally, now: Moment) {
        if new.refused == 0.0 {
            self.refused_since = 0;
        } else if self.refused_since == 0 {
            let seconds = now.seconds_since(Moment::ORIGIN);
            self.refused_since = (seconds as u32).max(1);
        }
        if new.outcomes() > 0.0 {
            let share = new.overloaded / new.outcomes();
            self.overloaded_share = (share * f64::from(u16::MAX)).round() as u16;
        }
    }
}

impl Tally {
    fn of(outcomes: &Outcomes) -> Self {
        Self {
            refused: outcomes.refused.get(),
            ok: outcomes.ok.get() as f64,
            overloaded: outcomes.overloaded.get() as f64,
            failed: outcomes.failed.get() as f64,
            ok_seconds: outcomes.ok_seconds.map(Capacity::get),
        }
    }

    /// The new part of totals; `None` if one of them is smaller than before.
    fn new_since(outcomes: &Outcomes, before: &Outcomes) -> Option<Self> {
        let count = |now: RequestCount, before: RequestCount| {
            Some(now.get().checked_sub(before.get())? as f64)
        };
        let count = |now, before| count(now, before).filter(|new| *new <= MOST_REQUESTS as f64);
        let refused = outcomes.refused.get() - before.refused.get();
        (0.0..=MOST_COST).contains(&refused).then_some(())?;
        let ok_seconds = match (outcomes.ok_seconds, before.ok_seconds) {
            (Some(seconds), Some(before)) => Some(seconds.get() - before.get()),
            (Some(_), None) => Some(0.0),
            (None, _) => None,
        };
        (ok_seconds.unwrap_or(0.0) >= 0.0).then_some(())?;
        Some(Self {
            refused,
            ok: count(outcomes.ok, before.ok)?,
            overloaded: count(outcomes.overloaded, before.overloaded)?,
            failed: count(outcomes.failed, before.failed)?,
            ok_seconds,
        })
    }

    /// Requests that ended.
    pub(in crate::ledger) fn outcomes(&self) -> f64 {
        self.ok + self.overloaded + self.failed
    }

    pub(in crate::ledger) fn add(&mut self, other: &Self) {
        self.refused += other.refused;
        self.ok += other.ok;
        self.overloaded += other.overloaded;
        self.failed += other.failed;
        if let Some(seconds) = other.ok_seconds {
            *self.ok_seconds.get_or_insert(0.0) += seconds;
        }
    }

    fn scale(&mut self, factor: f64) {
        self.refused *= factor;
        self.ok *= factor;
        self.overloaded *= factor;
        self.failed *= factor;
        self.ok_seconds = self.ok_seconds.map(|seconds| seconds * factor);
    }

    fn to_outcomes(self) -> Outcomes {
        let count = |count: f64| RequestCount::saturating(count as u64);
        Outcomes {
            refused: Capacity::saturating(self.refused),
            ok: count(self.ok),
            overloaded: count(self.overloaded),
            failed: count(self.failed),
            ok_seconds: self.ok_seconds.map(Capacity::saturating),
        }
    }
}
