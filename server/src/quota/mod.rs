//! Limits per caller, and overload protection of the whole server.
//!
//! [`Quotas`] charges each call to a `key` (the caller) in tokens (`cost`), from the caller's
//! bucket (`bucket`) in a `table`. A call pays before the work: for its length when it arrives, and
//! for its resources when they have been counted. `in_flight` detects overload and `read_throttle`
//! slows down reads.
//!
//! **Renewals before new leases.** Each bucket has a reserve as large as the burst, which new
//! leases cannot reach; rejecting them takes at most half of it, except for the cost of reading
//! them. An overloaded server rejects new leases first. Only a call that would be rejected is
//! checked for being a renewal.

mod bucket;
mod cost;
mod in_flight;
mod key;
mod read_throttle;
mod rejections;
mod table;

use std::{num::NonZeroU32, time::Duration};

use doorman_openapi::Moment;
use prometheus_client::registry::Registry;

use self::{
    bucket::{Account, BucketConfig, Overdraft},
    cost::{REJECTION_FRACTION, REQUEST, UNVERIFIED, tokens},
    in_flight::InFlight,
    key::QuotaClass,
    read_throttle::ReadThrottle,
    rejections::{CallKind, Rejections},
    table::BucketTable,
};
pub(crate) use self::{
    cost::{LeaseCost, Operation},
    in_flight::{InFlightGuard, LeaseKind},
    key::QuotaKey,
    read_throttle::{ReadKind, ReadPermit},
    rejections::{LimitScope, RateLimited},
};
use crate::util::peer::PeerAddr;

/// Limit on the calls of one caller: the subject of a token, or an address where no tokens are
/// required.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CallerLimit {
    /// [`RATE`](Self::RATE) with a burst of twice that. Callers without a token on this machine
    /// are not limited, because they share one address.
    #[default]
    Usual,
    /// Also limits callers on this machine.
    Of {
        /// Lease decisions per second.
        rate: NonZeroU32,
        /// Lease decisions that may be saved up.
        burst: NonZeroU32,
    },
    /// No limit.
    Off,
}

impl CallerLimit {
    /// Default lease decisions per second: about half of one core.
    pub const RATE: NonZeroU32 = NonZeroU32::new(400_000).expect("it is not zero");

    /// Default burst: two seconds of the rate.
    #[must_use]
    pub const fn burst(rate: NonZeroU32) -> NonZeroU32 {
        rate.saturating_mul(NonZeroU32::new(2).expect("it is not zero"))
    }
}

/// A charge that is due before the handler of a call runs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Charge {
    /// A response to a call without a token.
    Open,
    /// The verification of an unknown token.
    Verification,
    Operation(Operation),
    Request,
    /// The reading of a call for leases, which may use up the reserve.
    Reading(LeaseCost),
}

/// The limits and the state of all buckets. A `None` key is never charged.
#[derive(Debug)]
pub(crate) struct Quotas {
    callers: Option<BucketConfig>,
    /// At least the default limit: the calls of operators are harmless to holders.
    operators: Option<BucketConfig>,
    /// Whether callers at loopback addresses, which share one bucket, are limited.
    limits_loopback: bool,
    buckets: BucketTable,
    in_flight: InFlight,
    reads: ReadThrottle,
    rejections: Rejections,
}

impl Quotas {
    pub(crate) fn new(limit: CallerLimit) -> Self {
        let usual = (CallerLimit::RATE, CallerLimit::burst(CallerLimit::RATE));
        let limits_loopback = matches!(limit, CallerLimit::Of { .. });
        let limit = match limit {
            CallerLimit::Usual => Some(usual),
            CallerLimit::Of { rate, burst } => Some((rate, burst)),
            CallerLimit::Off => None,
        };
        Self {
            callers: limit.map(|(rate, burst)| BucketConfig::new(rate, burst)),
            operators: limit
                .map(|(rate, burst)| BucketConfig::new(rate.max(usual.0), burst.max(usual.1))),
            limits_loopback,
            buckets: BucketTable::new(),
            in_flight: InFlight::default(),
            reads: ReadThrottle::default(),
            rejections: Rejections::default(),
        }
    }

    /// The key of a call without a valid token; `None` if it is not limited.
    pub(crate) fn address_key(&self, peer: Option<PeerAddr>) -> Option<QuotaKey> {
        self.callers?;
        peer.filter(|peer| !peer.is_loopback() || self.limits_loopback)
            .map(QuotaKey::of_peer)
    }

    /// Charges a call before its handler runs.
    pub(crate) fn charge(
        &self,
        key: Option<QuotaKey>,
        charge: Charge,
        now: Moment,
    ) -> Result<(), RateLimited> {
        let (class, cost, call) = match charge {
            Charge::Open => (QuotaClass::Open, UNVERIFIED, CallKind::Unverified),
            Charge::Verification => (QuotaClass::Verification, UNVERIFIED, CallKind::Unverified),
            Charge::Operation(operation) => {
                (QuotaClass::Operators, operation.cost(), CallKind::Operator)
            }
            Charge::Request => (QuotaClass::Leases, REQUEST, CallKind::New),
            Charge::Reading(cost) => (QuotaClass::Leases, cost.reading, CallKind::Unread),
        };
        let overdraft = match charge {
            Charge::Reading(_) => Overdraft::Full,
            _ => Overdraft::None,
        };
        let Some(account) = self.account(key, class, now) else {
            return Ok(());
        };
        account.try_take(cost, 0, overdraft).map_err(|wait| {
            self.rejections.count(call, LimitScope::Caller);
            caller_limited(wait)
        })
    }

    /// Refunds [`Charge::Verification`] to the address of a valid token.
    pub(crate) fn refund_verification(&self, key: Option<QuotaKey>, now: Moment) {
        if let Some(account) = self.account(key, QuotaClass::Verification, now) {
            account.credit(UNVERIFIED);
        }
    }

    /// Counts decisions on so many resources as in progress.
    ///
    /// # Errors
    /// The server is overloaded. The rejection is not counted before [`reject`](Self::reject).
    pub(crate) fn begin_decisions(
        &self,
        resources: usize,
        kind: LeaseKind,
    ) -> Result<InFlightGuard<'_>, RateLimited> {
        self.in_flight.begin(resources, kind).ok_or(OVERLOADED)
    }

    /// Charges the rest of a call for leases after [`Charge::Reading`].
    ///
    /// # Errors
    /// The rejection is not counted before [`reject`](Self::reject).
    pub(crate) fn charge_decisions(
        &self,
        key: Option<QuotaKey>,
        cost: LeaseCost,
        kind: LeaseKind,
        now: Moment,
    ) -> Result<(), RateLimited> {
        let Some(account) = self.account(key, QuotaClass::Leases, now) else {
            return Ok(());
        };
        account
            .try_take(cost.total, cost.reading, overdraft(kind))
            .map_err(caller_limited)
    }

    /// Counts the rejection of a call that has been read, and reduces its charge to a quarter.
    /// Beyond half of the reserve new leases pay only for their reading. Returns the final wait.
    pub(crate) fn reject(
        &self,
        key: Option<QuotaKey>,
        cost: LeaseCost,
        kind: LeaseKind,
        limited: RateLimited,
        now: Moment,
    ) -> RateLimited {
        let (call, reachable) = match kind {
            LeaseKind::New => (CallKind::New, Overdraft::Half),
            LeaseKind::Renewal => (CallKind::Renewal, Overdraft::Full),
        };
        self.rejections.count(call, limited.scope);
        let Some(account) = self.account(key, QuotaClass::Leases, now) else {
            return limited;
        };
        let unread = cost.reading / REJECTION_FRACTION;
        account.credit(cost.reading.saturating_sub(unread));
        let rest = (cost.total / REJECTION_FRACTION).saturating_sub(unread);
        account.try_take(rest, 0, reachable).ok();
        let wait = account.wait_for(cost.total, overdraft(kind));
        RateLimited {
            retry_after: wait.max(limited.retry_after),
            ..limited
        }
    }

    /// Charges released leases whose number was unknown before.
    pub(crate) fn charge_released(&self, key: Option<QuotaKey>, leases: usize, now: Moment) {
        if let Some(account) = self.account(key, QuotaClass::Leases, now) {
            account.debit(tokens(leases));
        }
    }

    /// Begins a read of the ledger by a call that leases nothing.
    ///
    /// # Errors
    /// Too many others read.
    ///
    /// # Cancel safety
    /// Nothing is lost when it is dropped.
    pub(crate) async fn begin_read(&self, kind: ReadKind) -> Result<ReadPermit<'_>, RateLimited> {
        let permit = self.reads.begin(kind).await;
        permit.ok_or_else(|| {
            self.rejections
                .count(CallKind::Operator, LimitScope::Server);
            OVERLOADED
        })
    }

    /// Charges a part of a read that needs no permit, and returns the delay before it.
    pub(crate) fn read_delay(&self, kind: ReadKind, now: Moment) -> Duration {
        self.reads.delay(kind, now)
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        self.rejections.register(registry);
    }

    /// The account of a caller; `None` if it is not limited.
    fn account(
        &self,
        key: Option<QuotaKey>,
        class: QuotaClass,
        now: Moment,
    ) -> Option<Account<'_>> {
        let config = match class {
            QuotaClass::Operators => self.operators,
            QuotaClass::Leases | QuotaClass::Open | QuotaClass::Verification => self.callers,
        }?;
        let bucket = self.buckets.bucket(key?.bucket(class), now);
        Some(bucket.at(config, now))
    }
}

const OVERLOADED: RateLimited = RateLimited {
    scope: LimitScope::Server,
    retry_after: Duration::ZERO,
};

fn caller_limited(wait: Duration) -> RateLimited {
    RateLimited {
        scope: LimitScope::Caller,
        retry_after: wait,
    }
}

fn overdraft(kind: LeaseKind) -> Overdraft {
    match kind {
        LeaseKind::New => Overdraft::None,
        LeaseKind::Renewal => Overdraft::Full,
    }
}

#[cfg(test)]
mod tests;
