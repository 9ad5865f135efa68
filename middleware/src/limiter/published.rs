//! The state that the worker publishes to the request path, packed into words.

use std::time::Duration;

use doorman_openapi::Moment;

use super::{
    bucket::{Refill, RefillSchedule},
    lease_state::{ALWAYS, Policy, lapsed_refill},
};
use crate::Fallback;

/// Everything that a decision, a rejection and the response headers need.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Published {
    pub(super) schedule: RefillSchedule,
    /// When the worker next asks the control plane.
    pub(super) refresh_at: Moment,
    pub(super) policy: Option<Policy>,
    /// The probability that a request with available tokens is admitted.
    pub(super) admit_probability: f64,
    /// A larger lease may be granted on request.
    pub(super) may_grow: bool,
}

pub(super) const WORDS: usize = 10;

/// A refresh later than this is overdue.
pub(super) const OVERDUE: Duration = Duration::from_secs(1);

impl Published {
    /// Before the worker has published.
    pub(super) fn new(fallback: Fallback, now: Moment) -> Self {
        Self {
            schedule: RefillSchedule::new(lapsed_refill(fallback, None), now),
            refresh_at: now,
            policy: None,
            admit_probability: ALWAYS,
            may_grow: false,
        }
    }

    /// `None` when the resource needs no lease.
    pub(super) fn next_refresh(&self) -> Option<Moment> {
        Some(self.refresh_at).filter(|&moment| moment < Moment::NEVER)
    }

    /// Until when a first or larger lease may come: while the lease lasts and its refresh is not
    /// overdue.
    pub(super) fn may_grow_until(&self, now: Moment) -> Option<Moment> {
        let mut until = self.refresh_at.after(OVERDUE);
        if self.schedule.ever_leased() {
            until = until.min(self.schedule.ends);
        }
        (self.may_grow && now < until).then_some(until)
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

    pub(super) fn into_words(self) -> [u64; WORDS] {
        let Self {
            schedule:
                RefillSchedule {
                    issued,
                    lost,
                    since,
                    refill,
                    ends,
                    lapsed,
                    on_credit,
                },
            refresh_at,
            policy,
            admit_probability,
            may_grow,
        } = self;
        // `per` is 0 without a policy.
        let Policy { limit, per } = policy.unwrap_or(Policy {
            limit: 0.0,
            per: 0.0,
        });
        [
            issued.to_bits(),
            since.as_nanos(),
            refill_to_bits(refill),
            ends.as_nanos(),
            refill_to_bits(lapsed),
            refresh_at.as_nanos(),
            limit.to_bits(),
            // The sign is free.
            if on_credit { -per } else { per }.to_bits(),
            lost.to_bits(),
            // The sign is free.
            if may_grow {
                -admit_probability
            } else {
                admit_probability
            }
            .to_bits(),
        ]
    }

    #[inline]
    pub(super) fn from_words(words: [u64; WORDS]) -> Self {
        let [
            issued,
            since,
            refill,
            ends,
            lapsed,
            refresh_at,
            limit,
            per,
            lost,
            admit_probability,
        ] = words;
        let (limit, per) = (f64::from_bits(limit), f64::from_bits(per));
        let (per, on_credit) = (per.abs(), per.is_sign_negative());
        let admit_probability = f64::from_bits(admit_probability);
        Self {
            schedule: RefillSchedule {
                issued: f64::from_bits(issued),
                lost: f64::from_bits(lost),
                since: Moment::from_nanos(since),
                refill: refill_from_bits(refill),
                ends: Moment::from_nanos(ends),
                lapsed: refill_from_bits(lapsed),
                on_credit,
            },
            refresh_at: Moment::from_nanos(refresh_at),
            policy: (per > 0.0).then_some(Policy { limit, per }),
            admit_probability: admit_probability.abs(),
            may_grow: admit_probability.is_sign_negative(),
        }
    }
}

/// [`Refill::Blocked`] as a rate. Smaller numbers are [`Refill::Credit`], less this one.
const BLOCKED: f64 = -1.0;

fn refill_to_bits(refill: Refill) -> u64 {
    match refill {
        Refill::Blocked => BLOCKED,
        Refill::Credit(rate) => BLOCKED - rate,
        Refill::PerSecond(rate) => rate,
        Refill::Unlimited => f64::INFINITY,
    }
    .to_bits()
}

#[inline]
fn refill_from_bits(bits: u64) -> Refill {
    let rate = f64::from_bits(bits);
    if rate.is_infinite() {
        Refill::Unlimited
    } else if rate < BLOCKED {
        Refill::credit(BLOCKED - rate)
    } else {
        Refill::leased((rate != BLOCKED).then_some(rate))
    }
}
