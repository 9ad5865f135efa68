//! The state that the worker publishes to the request path.

use std::time::Duration;

use doorman_openapi::{Fallback, Moment, Unit};

use super::{
    bucket::{BucketView, Refill, RefillSchedule, Supply, Tokens},
    lease_state::{
        ALWAYS, Growth, LeaseState, Policy, admit_probability, first_refill, lapsed_refill,
        other_unit_refill, tokens,
    },
};

/// Everything that a decision, a rejection and the response headers need.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Published {
    pub(super) schedule: RefillSchedule,
    /// When the worker next asks the control plane.
    pub(super) refresh_at: Moment,
    pub(super) policy: Option<Policy>,
    /// The probability that a request with available tokens is admitted.
    pub(super) admit_probability: f64,
    pub(super) growth: Growth,
}

/// A refresh later than this is overdue.
pub(super) const OVERDUE: Duration = Duration::from_secs(1);

impl Published {
    /// Before the worker has published, in either unit.
    pub(super) fn new(fallback: Fallback, now: Moment) -> Self {
        Self {
            schedule: RefillSchedule::new(lapsed_refill(fallback, None, Unit::Rate), now),
            refresh_at: now,
            policy: None,
            admit_probability: ALWAYS,
            growth: Growth::None,
        }
    }

    /// The supply of a new state, and what is published beside it. `admitted` is the total cost
    /// that the limiter has admitted.
    pub(super) fn apply(
        self,
        state: LeaseState,
        unit: Unit,
        fallback: Fallback,
        admitted: f64,
        now: Moment,
    ) -> (Supply, Self) {
        let published = |refresh_at, policy, growth| Self {
            refresh_at,
            policy,
            admit_probability: ALWAYS,
            growth,
            ..self
        };
        match state {
            LeaseState::NoLease {
                safe,
                refresh_at,
                policy,
                awaits_answer,
            } => {
                let (lapsed, growth) = if awaits_answer {
                    (first_refill(fallback, policy, unit), Growth::Pending)
                } else {
                    (lapsed_refill(fallback, safe, unit), Growth::None)
                };
                let supply = Supply::NoLease { lapsed };
                (supply, published(refresh_at, policy, growth))
            }
            LeaseState::OtherUnit { refresh_at } => {
                let lapsed = other_unit_refill(fallback);
                (
                    Supply::NoLease { lapsed },
                    published(refresh_at, None, Growth::None),
                )
            }
            LeaseState::Leased {
                rate,
                ends,
                safe,
                refresh_at,
                policy,
                sharing,
                growth,
            } => {
                let supply = Supply::Lease {
                    refill: Refill::leased(rate, unit),
                    ends,
                    lapsed: lapsed_refill(fallback, safe, unit),
                    tokens: tokens(&sharing, admitted, now),
                };
                let mut published = published(refresh_at, policy, growth);
                published.admit_probability = admit_probability(&sharing);
                (supply, published)
            }
            LeaseState::Unlimited => self.fixed(Refill::Unlimited, None),
            LeaseState::Fixed { rate: limit } => {
                self.fixed(Refill::at(limit, unit), Some(Policy { limit, per: 1.0 }))
            }
            LeaseState::Local(quota) => {
                let (limit, per) = (quota.amount(), quota.per());
                self.fixed(Refill::at(quota.rate(), unit), Some(Policy { limit, per }))
            }
        }
    }

    /// A supply that needs no lease.
    fn fixed(self, refill: Refill, policy: Option<Policy>) -> (Supply, Self) {
        let supply = Supply::Lease {
            refill,
            ends: Moment::NEVER,
            lapsed: refill,
            tokens: Tokens::Kept,
        };
        let published = Self {
            refresh_at: Moment::NEVER,
            policy,
            admit_probability: ALWAYS,
            growth: Growth::None,
            ..self
        };
        (supply, published)
    }

    /// `None` when the resource needs no lease.
    pub(super) fn next_refresh(&self) -> Option<Moment> {
        Some(self.refresh_at).filter(|&moment| moment < Moment::NEVER)
    }

    /// When the next answer may come; `None` when the resource needs no lease.
    pub(super) fn expected_refresh(&self, now: Moment) -> Option<Moment> {
        let refresh = self.next_refresh()?;
        Some(if refresh > now {
            refresh
        } else {
            now.after(OVERDUE)
        })
    }

    /// Whether a lease does not end with its present length: its refresh is before that, and is not
    /// overdue.
    pub(super) fn is_renewed(&self, now: Moment) -> bool {
        self.refresh_at < self.schedule.ends && now < self.refresh_at.after(OVERDUE)
    }

    /// Until when a first or larger lease may come: while the lease lasts and its refresh is not
    /// overdue.
    pub(super) fn may_grow_until(&self, now: Moment) -> Option<Moment> {
        let mut until = self.refresh_at.after(OVERDUE);
        if self.schedule.ever_leased() {
            until = until.min(self.schedule.ends);
        }
        (self.growth != Growth::None && now < until).then_some(until)
    }

    /// The same, of a larger lease that others need not give capacity up for.
    pub(super) fn grows_on_request_until(&self, now: Moment) -> Option<Moment> {
        let until = self.may_grow_until(now)?;
        (self.growth == Growth::OnRequest).then_some(until)
    }

    /// When the rate changes at the latest.
    pub(super) fn changes_at(&self, view: &BucketView) -> Moment {
        if view.leased {
            self.schedule.ends
        } else {
            self.refresh_at
        }
    }

    /// Whether no lease can admit anything.
    pub(super) fn is_limit_zero(&self) -> bool {
        self.policy.is_some_and(|policy| policy.limit <= 0.0)
    }

    pub(super) fn is_suppressed(&self) -> bool {
        self.admit_probability < ALWAYS
    }

    /// Draws whether a request is admitted by chance.
    pub(super) fn draw(&self) -> bool {
        !self.is_suppressed() || fastrand::f64() < self.admit_probability
    }
}

/// [`Refill::Units`] is this pattern, which is not a number, with the units in the lowest bits.
const UNITS: u64 = 0x7FF8 << 48;
const UNITS_MASK: u64 = (1 << 48) - 1;
/// [`Refill::Blocked`] as a rate. Smaller numbers are [`Refill::Credit`], less this one.
const BLOCKED: f64 = -1.0;

pub(super) fn refill_to_bits(refill: Refill) -> u64 {
    match refill {
        Refill::Blocked => BLOCKED,
        Refill::Credit(rate) => BLOCKED - rate,
        Refill::PerSecond(rate) => rate,
        Refill::Unlimited => f64::INFINITY,
        // Whole, and below 2^48.
        Refill::Units(units) => return UNITS | (units as u64 & UNITS_MASK),
    }
    .to_bits()
}

#[inline]
pub(super) fn refill_from_bits(bits: u64) -> Refill {
    let rate = f64::from_bits(bits);
    if rate.is_nan() {
        Refill::units((bits & UNITS_MASK) as f64)
    } else if rate.is_infinite() {
        Refill::Unlimited
    } else if rate < BLOCKED {
        Refill::credit(BLOCKED - rate)
    } else {
        Refill::leased((rate != BLOCKED).then_some(rate), Unit::Rate)
    }
}
