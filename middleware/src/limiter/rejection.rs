//! Why a limiter rejects a request, and when a retry can succeed.

use doorman_openapi::Moment;

use super::{
    Limiter,
    bucket::{BucketView, Refill, TokenRange},
    published::{OVERDUE, Published},
};
use crate::RefusalReason;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rejected {
    pub(crate) reason: RefusalReason,
    /// The earliest moment at which a retry can succeed; `None` when unknown.
    pub(crate) retry_at: Option<Moment>,
}

impl Limiter {
    /// Rejects a request whose tokens are not available, and counts it.
    pub(super) fn reject(
        &self,
        range: TokenRange,
        published: &Published,
        view: &BucketView,
        now: Moment,
    ) -> Rejected {
        self.rejected.update(|total| total + range.cost);
        let reach = self.reach(range, published, now);
        let reason = match (view.leased, view.refill) {
            (true, Refill::PerSecond(_)) if published.may_grow_before(reach, now) => {
                RefusalReason::WarmingUp
            }
            (true, Refill::PerSecond(0.0)) => RefusalReason::NoLease,
            (true, Refill::PerSecond(_) | Refill::Unlimited) => RefusalReason::Spent,
            (true, Refill::Blocked) => RefusalReason::Blocked,
            (false, _) => RefusalReason::NoLease,
        };
        let retry_at = Self::retry_at(range, reach, published, view, now);
        self.rejection(reason, retry_at, published)
    }

    /// Rejects a request by chance, and counts it. A retry makes sense after the mean time between
    /// two admitted requests, or when the probability may have changed.
    pub(super) fn suppress(
        &self,
        range: TokenRange,
        published: &Published,
        view: &BucketView,
        now: Moment,
    ) -> Rejected {
        self.rejected.update(|total| total + range.cost);
        let may_change = published
            .next_refresh()
            .filter(|&refresh| refresh > now)
            .unwrap_or_else(|| now.after(OVERDUE));
        let rate = view.rate().unwrap_or_default() * published.admit_probability;
        let retry_at = now.after_seconds(1.0 / rate).min(may_change);
        self.rejection(RefusalReason::Suppressed, Some(retry_at), published)
    }

    /// Only a spent or suppressed limit depends on its requests. The next refresh may change all
    /// else.
    pub(super) fn rejection(
        &self,
        reason: RefusalReason,
        retry_at: Option<Moment>,
        published: &Published,
    ) -> Rejected {
        let reason = if self.retention.is_overflow() {
            RefusalReason::Overflow
        } else {
            reason
        };
        let is_spent = matches!(reason, RefusalReason::Spent | RefusalReason::Suppressed);
        let retry_at = if is_spent {
            retry_at
        } else {
            published.next_refresh().or(retry_at)
        };
        Rejected { reason, retry_at }
    }

    /// When a range becomes available if nothing changes; `None` if never.
    pub(super) fn reach(
        &self,
        range: TokenRange,
        published: &Published,
        now: Moment,
    ) -> Option<Moment> {
        let burst = self.settings.burst.get();
        published.schedule.reach(range, now, burst)
    }

    /// The earliest moment for a retry of a range that becomes available at `reach`.
    pub(super) fn retry_at(
        range: TokenRange,
        reach: Option<Moment>,
        published: &Published,
        view: &BucketView,
        now: Moment,
    ) -> Option<Moment> {
        match view.refill {
            // A rate of 0 changes with the next refresh at the earliest.
            Refill::PerSecond(0.0) if !view.admits(range) => published.next_refresh().or(reach),
            Refill::PerSecond(_) if published.may_grow_before(reach, now) => {
                published.next_refresh()
            }
            Refill::PerSecond(_) | Refill::Blocked | Refill::Unlimited => {
                reach.or(published.next_refresh())
            }
        }
    }
}
