//! Why a limiter rejects a request, and when a retry can succeed.

use std::time::Duration;

use doorman_openapi::Moment;

use super::{
    Limiter, View,
    bucket::{Refill, TokenRange},
    published::OVERDUE,
};
use crate::refusal::RefusalReason;

/// How long it takes until a larger lease can have come: the limiter has signaled, and the answer
/// takes a round trip.
const GROWTH_TIME: Duration = Duration::from_secs(1);

/// When to retry at a gauge, of which units may be given back at any time.
const RETURN_TIME: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rejected {
    pub(crate) reason: RefusalReason,
    /// The earliest moment at which a retry can succeed; `None` when unknown.
    pub(crate) retry_at: Option<Moment>,
}

impl Limiter<'_> {
    /// Rejects a request whose tokens are not available before `reach`, and counts it.
    pub(super) fn reject(
        self,
        range: TokenRange,
        at: &View,
        reach: Option<Moment>,
        now: Moment,
    ) -> Rejected {
        let View {
            published, view, ..
        } = at;
        self.record.rejected.update(|total| total + range.cost);
        let may_grow = published.may_grow_until(now).is_some();
        let reason = match (view.leased, view.refill) {
            (_, Refill::Credit(_)) => RefusalReason::Growing,
            (false, Refill::Blocked) if published.is_limit_zero() => RefusalReason::Blocked,
            (false, _) if self.has_other_unit() => RefusalReason::OtherUnit,
            (false, _) => RefusalReason::NoLease,
            (true, Refill::Blocked) => RefusalReason::Blocked,
            (true, Refill::PerSecond(_) | Refill::Units(_)) if may_grow => RefusalReason::Growing,
            (true, Refill::PerSecond(_) | Refill::Unlimited | Refill::Units(_)) => {
                RefusalReason::Spent
            }
        };
        let retry_at = at.retry_at(range, reach, now);
        self.rejection(reason, retry_at)
    }

    /// Rejects a request by chance, and counts it. A retry makes sense after the mean time between
    /// two admitted requests, or when the probability may have changed.
    pub(super) fn suppress(self, range: TokenRange, at: &View, now: Moment) -> Rejected {
        let View {
            published, view, ..
        } = at;
        self.record.rejected.update(|total| total + range.cost);
        let may_change = published
            .next_refresh()
            .filter(|&refresh| refresh > now)
            .unwrap_or_else(|| now.after(OVERDUE));
        let rate = view.rate().unwrap_or_default() * published.admit_probability;
        let retry_at = now.after_seconds(1.0 / rate).min(may_change);
        self.rejection(RefusalReason::Suppressed, Some(retry_at))
    }

    /// Rejects a request whose limiter was forgotten. A retry finds the next one of its resource.
    pub(super) fn reject_forgotten(self, now: Moment) -> Rejected {
        self.rejection(RefusalReason::Growing, Some(now))
    }

    pub(super) fn rejection(self, reason: RefusalReason, retry_at: Option<Moment>) -> Rejected {
        let reason = if self.record.retention.is_overflow() {
            RefusalReason::Overflow
        } else {
            reason
        };
        Rejected { reason, retry_at }
    }
}

impl View {
    /// When a range becomes available if nothing changes; `None` if never.
    pub(super) fn reach(&self, range: TokenRange, now: Moment) -> Option<Moment> {
        self.published.schedule.reach(range, now, self.burst)
    }

    /// The earliest moment for a retry of a range that becomes available at `reach`.
    pub(super) fn retry_at(
        &self,
        range: TokenRange,
        reach: Option<Moment>,
        now: Moment,
    ) -> Option<Moment> {
        let Self {
            published, view, ..
        } = self;
        let refresh = published.next_refresh();
        // The whole limit is the largest lease that may come.
        let under_limit = published
            .policy
            .and_then(|policy| view.reach_at(policy.per_second(), range, now));
        let growth = now.after(GROWTH_TIME).max(under_limit.unwrap_or(now));
        let grown = published.may_grow_until(now).map(|_| growth);
        match view.refill {
            Refill::Credit(_) => Some(growth),
            // Nobody knows when units are given back.
            Refill::Units(_) => reach.or(Some(now.after(RETURN_TIME))),
            // A capacity of 0 changes with the next refresh at the earliest.
            Refill::Blocked if view.leased => refresh.or(reach),
            Refill::PerSecond(0.0) if !view.admits(range) => grown.or(refresh).or(reach),
            Refill::PerSecond(_) if view.leased => earlier(reach, grown).or(refresh),
            Refill::PerSecond(_) | Refill::Blocked | Refill::Unlimited => earlier(reach, refresh),
        }
    }
}

fn earlier(one: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
    one.into_iter().chain(other).min()
}
