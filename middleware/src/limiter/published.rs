//! What the leasing side publishes to the request path, and how it is kept in plain words.

use std::time::Duration;

use doorman_openapi::Moment;

use super::lease_state::Sharing;
use super::{
    bucket::{Flow, Supply, Terms},
    lease_state::{LeaseState, Policy, SafeRate},
};
use crate::Fallback;

/// All that a decision, a refusal and the response fields need to know of a resource.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Published {
    pub(super) terms: Terms,
    /// When the leasing side asks next.
    pub(super) refresh_at: Moment,
    /// The whole limit, as last told.
    pub(super) policy: Option<Policy>,
    /// With which probability a request is admitted under the lease, if its turn has come.
    pub(super) admission: f64,
    /// Whether the lease is as small as it is because no more was asked for.
    pub(super) may_grow: bool,
}

pub(super) const WORDS: usize = 10;

/// After how long a refresh that was to be has not come to anything.
pub(super) const OVERDUE: Duration = Duration::from_secs(1);

/// The probability of what is not left to chance.
const ALWAYS: f64 = 1.0;

impl Published {
    /// What holds before anything was published.
    pub(super) fn new(fallback: Fallback, now: Moment) -> Self {
        Self {
            terms: Terms::new(lapse(fallback, None), now),
            refresh_at: now,
            policy: None,
            admission: ALWAYS,
            may_grow: false,
        }
    }

    /// When the leasing side asks next; `None` when it never does.
    pub(super) fn next_refresh(&self) -> Option<Moment> {
        Some(self.refresh_at).filter(|&moment| moment < Moment::NEVER)
    }

    /// Until when a larger lease may be hoped for at `now`: as long as there is one, and no answer is overdue; `None`: not at all.
    pub(super) fn may_grow_until(&self, now: Moment) -> Option<Moment> {
        let until = self.refresh_at.after(OVERDUE).min(self.terms.ends);
        (self.may_grow && now < until).then_some(until)
    }

    /// Whether the lease may be larger before this moment, since more will have been asked for by then; `None` is never.
    pub(super) fn grows_before(&self, moment: Option<Moment>, now: Moment) -> bool {
        self.may_grow_until(now)
            .and(self.next_refresh())
            .is_some_and(|refresh| moment.is_none_or(|it| refresh < it))
    }

    /// Whether some of what asks under the lease is refused by chance.
    pub(super) fn is_suppressed(&self) -> bool {
        self.admission < ALWAYS
    }

    /// Whether chance lets a request pass that asks under the lease. For all that is not suppressed it does.
    pub(super) fn draw(&self) -> bool {
        !self.is_suppressed() || fastrand::f64() < self.admission
    }

    pub(super) fn into_words(self) -> [u64; WORDS] {
        let Self {
            terms:
                Terms {
                    issued,
                    lost,
                    since,
                    flow,
                    ends,
                    lapse,
                    credit,
                },
            refresh_at,
            policy,
            admission,
            may_grow,
        } = self;
        // No policy counts over no time.
        let Policy { limit, per } = policy.unwrap_or(Policy {
            limit: 0.0,
            per: 0.0,
        });
        [
            issued.to_bits(),
            since.as_nanos(),
            flow_to_bits(flow),
            ends.as_nanos(),
            flow_to_bits(lapse),
            refresh_at.as_nanos(),
            limit.to_bits(),
            // No time is negative, so that its sign is free.
            if credit { -per } else { per }.to_bits(),
            lost.to_bits(),
            // Nor is any probability.
            if may_grow { -admission } else { admission }.to_bits(),
        ]
    }

    #[inline]
    pub(super) fn from_words(words: [u64; WORDS]) -> Self {
        let [
            issued,
            since,
            flow,
            ends,
            lapse,
            refresh_at,
            limit,
            per,
            lost,
            admission,
        ] = words;
        let (limit, per) = (f64::from_bits(limit), f64::from_bits(per));
        let (per, credit) = (per.abs(), per.is_sign_negative());
        let admission = f64::from_bits(admission);
        Self {
            terms: Terms {
                issued: f64::from_bits(issued),
                lost: f64::from_bits(lost),
                since: Moment::from_nanos(since),
                flow: flow_from_bits(flow),
                ends: Moment::from_nanos(ends),
                lapse: flow_from_bits(lapse),
                credit,
            },
            refresh_at: Moment::from_nanos(refresh_at),
            policy: (per > 0.0).then_some(Policy { limit, per }),
            admission: admission.abs(),
            may_grow: admission.is_sign_negative(),
        }
    }
}

/// No rate is negative.
const SHUT: f64 = -1.0;

fn flow_to_bits(flow: Flow) -> u64 {
    match flow {
        Flow::Shut => SHUT,
        Flow::At(rate) => rate,
        Flow::Open => f64::INFINITY,
    }
    .to_bits()
}

#[inline]
fn flow_from_bits(bits: u64) -> Flow {
    let rate = f64::from_bits(bits);
    if rate.is_infinite() {
        Flow::Open
    } else {
        Flow::leased((rate != SHUT).then_some(rate))
    }
}

/// What counts without a lease.
fn lapse(fallback: Fallback, safe: Option<SafeRate>) -> Flow {
    match (fallback, safe) {
        (Fallback::Optimistic, _) | (Fallback::Safe, None | Some(SafeRate::Unlimited)) => {
            Flow::Open
        }
        (Fallback::Safe, Some(SafeRate::PerSecond(rate))) => Flow::at(rate),
        (Fallback::Pessimistic, _) => Flow::Shut,
    }
}

/// What a standing comes to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct News {
    /// How the bucket is filled.
    pub(super) supply: Supply,
    /// When the leasing side asks next.
    pub(super) refresh_at: Moment,
    /// The whole limit, where it is told.
    pub(super) policy: Option<Policy>,
    /// With which probability a request is admitted under the lease, if its turn has come.
    pub(super) admission: f64,
    /// Whether the lease is as small as it is because no more was asked for.
    pub(super) may_grow: bool,
}

/// What a standing comes to at `now` under a fallback, for a limiter that has admitted so much.
pub(super) fn news(standing: LeaseState, fallback: Fallback, admitted: f64, now: Moment) -> News {
    match standing {
        LeaseState::NoLease {
            safe,
            refresh_at,
            policy,
            answered,
        } => News {
            supply: Supply::NoLease {
                lapse: lapse(fallback, safe),
                answered,
            },
            refresh_at,
            policy,
            admission: ALWAYS,
            may_grow: false,
        },
        LeaseState::Leased {
            rate,
            ends,
            safe,
            refresh_at,
            policy,
            sharing,
            may_grow,
        } => News {
            supply: Supply::Lease {
                flow: Flow::leased(rate),
                ends,
                lapse: lapse(fallback, safe),
                left: match sharing {
                    // What was heard before counts no more than once: since then the bucket has been filled, and spent from.
                    Sharing::Bucket(balance) if balance.received_at == now => {
                        let since = (admitted - balance.used.get()).max(0.0);
                        Some(balance.tokens.get() - since)
                    }
                    Sharing::Bucket(_) | Sharing::Suppressed(_) | Sharing::Divided => None,
                },
            },
            refresh_at,
            policy,
            admission: match sharing {
                Sharing::Suppressed(probability) => probability.get(),
                Sharing::Bucket(_) | Sharing::Divided => ALWAYS,
            },
            may_grow,
        },
        LeaseState::Unlimited => for_ever(Flow::Open, None),
        LeaseState::Fixed { rate } => {
            let policy = Policy {
                limit: rate,
                per: 1.0,
            };
            for_ever(Flow::at(rate), Some(policy))
        }
        LeaseState::Local(quota) => {
            let policy = Policy {
                limit: quota.amount(),
                per: quota.per(),
            };
            for_ever(Flow::at(quota.rate()), Some(policy))
        }
    }
}

fn for_ever(flow: Flow, policy: Option<Policy>) -> News {
    News {
        supply: Supply::Lease {
            flow,
            ends: Moment::NEVER,
            lapse: flow,
            left: None,
        },
        refresh_at: Moment::NEVER,
        policy,
        admission: ALWAYS,
        may_grow: false,
    }
}
