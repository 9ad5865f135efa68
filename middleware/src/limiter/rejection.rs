//! Why a limiter rejects a request, and when a retry can succeed.

use std::time::Duration;

use doorman_openapi::Moment;

use super::{
    Limiter, View,
    bucket::{Refill, TokenRange},
    published::{OVERDUE, Published},
};
use crate::refusal::RefusalReason;

/// How long it takes until a larger lease can have come: the limiter has signaled, and the answer
/// takes a round trip.
const GROWTH_TIME: Duration = Duration::from_secs(1);

/// How long it takes until other holders that have become idle have released their shares: by
/// default a minute, and the time to notice it.
const RELEASE_TIME: Duration = Duration::from_secs(66);

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
        let may_change = published.expected_refresh(now);
        let may_change = may_change.unwrap_or_else(|| now.after(OVERDUE));
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
    /// When a range becomes available if nothing changes; `None` if never. A lease is renewed,
    /// unless its refresh is overdue.
    pub(super) fn reach(&self, range: TokenRange, now: Moment) -> Option<Moment> {
        let Published { schedule, .. } = &self.published;
        if self.view.leased && self.published.is_renewed(now) {
            return schedule.renewed().reach(range, now, self.burst);
        }
        schedule.reach(range, now, self.burst)
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
        let refresh = published.expected_refresh(now);
        let grown = || {
            published.may_grow_until(now)?;
            Some(self.growth(range, refresh, now))
        };
        match view.refill {
            Refill::Credit(_) => Some(self.growth(range, refresh, now)),
            // Nobody knows when units are given back.
            Refill::Units(_) => reach.or(Some(now.after(RETURN_TIME))),
            // A capacity of 0 changes with the next refresh at the earliest.
            Refill::Blocked if view.leased => refresh.or(reach),
            Refill::PerSecond(0.0) if !view.admits(range) => grown().or(refresh).or(reach),
            Refill::PerSecond(rate) if view.leased => {
                let released = || {
                    self.others_share(rate, now)
                        .then(|| now.after(RELEASE_TIME))
                };
                earlier(reach, grown().or_else(released)).or(refresh)
            }
            Refill::PerSecond(_) | Refill::Blocked | Refill::Unlimited => earlier(reach, refresh),
        }
    }

    /// When a larger lease that may come has tokens for a range. The whole limit is the largest.
    fn growth(&self, range: TokenRange, refresh: Option<Moment>, now: Moment) -> Moment {
        let policy = self.published.policy;
        let mut tokens =
            policy.and_then(|policy| self.view.reach_at(policy.per_second(), range, now));
        if self.burst.is_long() {
            // A long bucket gets tokens with the lease.
            tokens = earlier(tokens, refresh);
        }
        now.after(GROWTH_TIME).max(tokens.unwrap_or(now))
    }

    /// Whether other holders have a part of the limit, beside a lease of this rate.
    fn others_share(&self, rate: f64, now: Moment) -> bool {
        let policy = self.published.policy;
        self.published.is_renewed(now) && policy.is_some_and(|policy| rate < policy.per_second())
    }
}

fn earlier(one: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
    one.into_iter().chain(other).min()
}
