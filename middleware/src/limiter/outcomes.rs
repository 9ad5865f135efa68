//! Outcomes of the requests that a limiter admitted, and what their target tells.

use doorman_holder::SeenLimit;
use doorman_openapi::{Capacity, Moment, Outcomes, RequestCount, Unit};

use super::{
    Limiter, LimiterHandle, TakenUnits,
    atomics::AtomicF64,
    sync::{AtomicU64, Ordering},
};
use crate::outcome::Outcome;

const NANOS_PER_MILLI: u64 = 1_000_000;

/// Running totals of requests.
#[derive(Debug, Default)]
pub(super) struct OutcomeTotals {
    ok: AtomicU64,
    overloaded: AtomicU64,
    failed: AtomicU64,
}

/// Statements that few targets make.
#[derive(Debug, Default)]
pub(super) struct TargetState {
    /// Units times seconds of the requests to a gauge that ended `ok`.
    ok_seconds: AtomicF64,
    /// When the longest pause ends for which it asked.
    paused_until: AtomicU64,
    /// The target's own limit, if it told it since the worker last looked: the bits of what is left
    /// as an `f32`, and the low bits of the milliseconds at which it is whole. One word, so that
    /// both are of one response. 0: nothing new.
    seen: AtomicU64,
}

impl OutcomeTotals {
    fn add(&self, outcome: Outcome, count: u64) {
        let total = match outcome {
            Outcome::Ok => &self.ok,
            Outcome::Overloaded => &self.overloaded,
            Outcome::Failed => &self.failed,
            Outcome::None => return,
        };
        total.fetch_add(count, Ordering::Relaxed);
    }

    /// Starts anew, for another resource.
    pub(super) fn begin(&self) {
        for total in [&self.ok, &self.overloaded, &self.failed] {
            total.store(0, Ordering::Relaxed);
        }
    }
}

impl TargetState {
    /// Starts anew, for another resource.
    pub(super) fn begin(&self) {
        self.ok_seconds.store(0.0);
        self.paused_until.store(0, Ordering::Relaxed);
        self.seen.store(0, Ordering::Relaxed);
    }
}

fn millis(moment: Moment) -> u32 {
    (moment.as_nanos() / NANOS_PER_MILLI) as u32
}

fn seen_to_bits(seen: &SeenLimit) -> u64 {
    let remaining = (seen.remaining.get() as f32).to_bits();
    // Not 0 together.
    let whole_at = millis(seen.whole_at) | 1;
    (u64::from(remaining) << 32) | u64::from(whole_at)
}

fn seen_from_bits(bits: u64, now: Moment) -> Option<SeenLimit> {
    if bits == 0 {
        return None;
    }
    let remaining = f32::from_bits((bits >> 32) as u32);
    // It is at most a day ahead, and the low bits repeat after 49 days.
    let ahead = (bits as u32).wrapping_sub(millis(now)).cast_signed();
    let ahead = u64::try_from(ahead).ok()?;
    let whole_at = now.as_nanos().saturating_add(ahead * NANOS_PER_MILLI);
    Some(SeenLimit {
        remaining: Capacity::saturating(remaining.into()),
        whole_at: Moment::from_nanos(whole_at),
    })
}

impl Limiter<'_> {
    /// Counts outcomes of one kind. Returns whether the worker must be notified of an overload. One
    /// that comes after the limiter was forgotten is lost.
    #[inline]
    pub(super) fn count_outcome(self, outcome: Outcome, count: u64) -> bool {
        if !self.is_current() {
            return false;
        }
        if let Some(totals) = self.store.outcomes_or_allocate(self.number) {
            totals.add(outcome, count);
        }
        outcome == Outcome::Overloaded && self.record.demand.raise_overloaded()
    }

    /// Adds the units times seconds of a request that ended `ok`.
    pub(super) fn add_ok_seconds(self, unit_seconds: f64) {
        self.with_target(|target| target.ok_seconds.update(|it| it + unit_seconds));
    }

    /// The target asked for a pause. The one that ends last counts.
    pub(crate) fn pause_until(self, end: Moment) {
        self.with_target(|target| {
            let end = end.as_nanos();
            target.paused_until.fetch_max(end, Ordering::Relaxed);
        });
    }

    /// The target told its own limit.
    pub(crate) fn see(self, seen: &SeenLimit) {
        self.with_target(|target| target.seen.store(seen_to_bits(seen), Ordering::Relaxed));
    }

    fn with_target(self, change: impl FnOnce(&TargetState)) {
        if self.is_current()
            && let Some(target) = self.store.target_or_allocate(self.number)
        {
            change(target);
        }
    }

    /// Running totals.
    pub(crate) fn outcomes(self) -> Outcomes {
        let totals = self.store.outcomes(self.number);
        let count = |total: fn(&OutcomeTotals) -> &AtomicU64| {
            let total = totals.map(|it| total(it).load(Ordering::Relaxed));
            RequestCount::saturating(total.unwrap_or_default())
        };
        let target = self.store.target(self.number);
        let ok_seconds = target.map_or(0.0, |it| it.ok_seconds.load());
        Outcomes {
            refused: Capacity::saturating(self.tally().refused),
            ok: count(|it| &it.ok),
            overloaded: count(|it| &it.overloaded),
            failed: count(|it| &it.failed),
            ok_seconds: (self.unit() == Unit::Gauge).then(|| Capacity::saturating(ok_seconds)),
        }
    }

    /// When the longest pause ends.
    pub(crate) fn paused_until(self) -> Moment {
        let target = self.store.target(self.number);
        let end = target.map_or(0, |it| it.paused_until.load(Ordering::Relaxed));
        Moment::from_nanos(end)
    }

    /// Takes what the target told of its own limit since the last call.
    pub(crate) fn take_seen(self, now: Moment) -> Option<SeenLimit> {
        let target = self.store.target(self.number)?;
        seen_from_bits(target.seen.swap(0, Ordering::Relaxed), now)
    }

    /// Lets the limiter signal the next overload, before the worker reads the totals.
    pub(crate) fn clear_overloaded(self) {
        self.record.demand.clear_overloaded();
    }

    /// Whether the worker is to hear of the first overload since its last report.
    pub(crate) fn set_hears_overloads(self, hears: bool) {
        self.record.demand.set_hears_overloads(hears);
    }
}

/// Units of a request that was overloaded. They return when this is dropped, after a pause: a full
/// target refuses at once, and the next request would try again.
#[derive(Debug)]
pub(crate) struct CoolingUnits {
    limiter: LimiterHandle,
    units: TakenUnits,
}

impl CoolingUnits {
    pub(super) fn new(limiter: LimiterHandle, units: TakenUnits) -> Self {
        Self { limiter, units }
    }

    pub(crate) fn limiter(&self) -> Limiter<'_> {
        self.limiter.get()
    }

    /// Gives them back now. Returns whether more was in use than the lease allows, so that the
    /// worker should report less.
    pub(crate) fn give_back(mut self) -> bool {
        let units = std::mem::take(&mut self.units);
        self.limiter.get().give_back(&units)
    }
}

impl Drop for CoolingUnits {
    fn drop(&mut self) {
        self.limiter.get().give_back(&self.units);
    }
}
