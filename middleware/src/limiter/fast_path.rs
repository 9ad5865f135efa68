//! Admission without waiting, rejecting or locking: the path of nearly every request.

use doorman_openapi::{Moment, Unit};

use super::{
    Limiter, Reading, RegisteredSettings, Shortage, View,
    bucket::{TokenRange, runs_low},
    record::{Lease, is_banded},
};
use crate::{clock::COARSE_SLACK_NANOS, cost::Cost};

/// Tokens taken on the fast path, until [committed](Limiter::commit) or [undone](Limiter::undo).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Acquired {
    range: TokenRange,
    runs_low: bool,
    left: f64,
    /// Tokens a second; infinite when unlimited.
    rate: f64,
    changes_at: Moment,
    /// Whether there is no lease.
    pub(crate) is_fallback: bool,
}

impl Acquired {
    #[inline]
    pub(crate) fn shortage(&self) -> Option<Shortage> {
        self.runs_low.then_some(Shortage::RunningLow)
    }
}

impl Limiter<'_> {
    /// Takes tokens that are available by the [coarse clock](crate::clock::coarse_now). `None`
    /// leaves the decision to the slow path, which reads the precise clock and gives permits.
    /// `settings` are those of the limit that asks, and `priority` that of the request. One that
    /// `awaits_lease` is not admitted by the fallback before the first lease.
    pub(crate) fn try_acquire(
        self,
        settings: &RegisteredSettings,
        priority: i32,
        cost: Cost,
        awaits_lease: bool,
        recent: Moment,
    ) -> Option<Acquired> {
        match self.lease(settings, recent) {
            Some(lease) => self.acquire_of(&lease, settings, cost, recent),
            None => self.acquire_otherwise(priority, cost, awaits_lease, recent),
        }
    }

    /// Takes tokens that are available by the coarse clock under a lease, as nearly all requests
    /// do. [`try_acquire`](Self::try_acquire) may still admit others.
    #[expect(
        clippy::inline_always,
        reason = "measured: copies of its result cost more"
    )]
    #[inline(always)]
    pub(crate) fn try_acquire_leased(
        self,
        settings: &RegisteredSettings,
        cost: Cost,
        recent: Moment,
    ) -> Option<Acquired> {
        let lease = self.lease(settings, recent)?;
        self.acquire_of(&lease, settings, cost, recent)
    }

    /// A lease with a rate that does not end soon, of a limiter with these settings. No request has
    /// a higher priority than those of the limit that asks.
    #[expect(
        clippy::inline_always,
        reason = "measured: copies of its result cost more"
    )]
    #[inline(always)]
    fn lease(self, settings: &RegisteredSettings, recent: Moment) -> Option<Lease> {
        let slack = recent.as_nanos().saturating_add(COARSE_SLACK_NANOS);
        let lease = self.record.lease(self.generation, settings.number);
        lease.filter(|lease| lease.ends.as_nanos() > slack)
    }

    #[expect(
        clippy::inline_always,
        reason = "measured: copies of its result cost more"
    )]
    #[inline(always)]
    fn acquire_of(
        self,
        lease: &Lease,
        settings: &RegisteredSettings,
        cost: Cost,
        recent: Moment,
    ) -> Option<Acquired> {
        let bucket = settings.settings.burst.load().tokens(lease.rate);
        let issued = lease.issued + lease.rate * seconds_between(lease.since, recent);
        // Tokens that overflowed earlier are below *spent*.
        let floor = issued - bucket;
        let range = self.take(lease.head, lease.spent, |spent| {
            let range = TokenRange {
                start: if spent > floor { spent } else { floor },
                cost: cost.get(),
            };
            range.is_available(issued, bucket).then_some(range)
        })?;
        let left = issued - range.end();
        Some(Acquired {
            range,
            runs_low: runs_low(left, bucket),
            left,
            rate: lease.rate,
            changes_at: lease.ends,
            is_fallback: false,
        })
    }

    /// Takes tokens without a lease, of a limit with other settings or of a lower priority, or of
    /// an unusual lease.
    #[cold]
    #[inline(never)]
    fn acquire_otherwise(
        self,
        priority: i32,
        cost: Cost,
        awaits_lease: bool,
        recent: Moment,
    ) -> Option<Acquired> {
        let View {
            published,
            view,
            unit,
            head,
            ..
        } = self.view(recent);
        let schedule = &published.schedule;
        let left = schedule.ends.as_nanos().saturating_sub(recent.as_nanos());
        let about_to_end = left > 0 && left <= COARSE_SLACK_NANOS;
        let awaits_lease = awaits_lease && !schedule.ever_leased();
        let is_usual = unit == Unit::Rate && !published.is_suppressed();
        if !self.is_of(head) || about_to_end || awaits_lease || !is_usual {
            return None;
        }
        let mut kept = 0.0;
        if is_banded(head) {
            let of_band = self.with_band(priority, |band| {
                (!band.is_behind_others()).then(|| band.kept(unit, 0.0))
            });
            kept = of_band.unwrap_or(Some(0.0))?;
        }
        let range = self.take(head, self.record.spent.load(), |spent| {
            let range = view.next(spent, cost.get());
            view.admits_beside(range, kept).then_some(range)
        })?;
        if is_banded(head) {
            self.with_band(priority, |band| band.count(cost.get()));
        }
        let end = range.end();
        Some(Acquired {
            range,
            runs_low: view.runs_low(end),
            left: view.left(end) - kept,
            rate: view.rate().unwrap_or(f64::INFINITY),
            changes_at: published.changes_at(&view),
            is_fallback: !view.leased,
        })
    }

    /// Takes the range that `next` makes of what is spent; `None` when it makes none, or the
    /// limiter was forgotten.
    #[inline]
    fn take(
        self,
        head: u64,
        mut spent: f64,
        next: impl Fn(f64) -> Option<TokenRange>,
    ) -> Option<TokenRange> {
        loop {
            let range = next(spent)?;
            match self.record.spent.replace(spent, range.end()) {
                Ok(()) if self.record.has_same_owner(head) => return Some(range),
                Ok(()) => {
                    self.restore(range.end() - spent);
                    return None;
                }
                // The totals of another resource may be far from these.
                Err(_) if !self.record.has_same_owner(head) => return None,
                Err(actual) => spent = actual,
            }
        }
    }

    /// Takes back a change of *spent* that was made to another resource.
    #[cold]
    pub(super) fn restore(self, change: f64) {
        self.record.spent.update(|spent| spent - change);
    }

    #[inline]
    pub(crate) fn commit(self, acquired: &Acquired) {
        self.record
            .admitted
            .update(|total| total + acquired.range.cost);
    }

    pub(crate) fn undo(self, acquired: &Acquired, priority: i32, now: Moment) {
        self.with_band(priority, |band| band.count(-acquired.range.cost));
        self.take_back(acquired.range, self.queue(), f64::NEG_INFINITY, now);
    }

    /// The values of the response headers for a request that took these tokens.
    #[inline]
    pub(crate) fn reading_after(self, acquired: &Acquired) -> Reading {
        Reading {
            policy: self.store.policy(self.record),
            left: acquired.left,
            rate: Some(acquired.rate).filter(|rate| rate.is_finite()),
            changes_at: acquired.changes_at,
        }
    }
}

/// Less than 1e-9, by more than the rounding errors of a multiplication and a division.
const SECONDS_PER_NANO: f64 = 1e-9 * (1.0 - 3.0 * f64::EPSILON);

/// [`Moment::seconds_since`], or a few units in the last place less: by a multiplication instead of
/// a division, for which every request would wait. A token that is not yet available by it is left
/// to the slow path, so that none is taken too early.
#[inline]
fn seconds_between(earlier: Moment, later: Moment) -> f64 {
    let nanos = later.as_nanos().saturating_sub(earlier.as_nanos());
    // At most 292 years.
    nanos.cast_signed().max(0) as f64 * SECONDS_PER_NANO
}
