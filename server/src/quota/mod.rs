//! What the server does for one caller: it protects itself from one that asks without end, and all others from what that would cost.
//!
//! `payer` says on whose account a request goes, `table` finds the account in memory that does not grow, `bucket` decides, `refused` counts.
//! A `cost` is in decisions, about as much work as one lease takes: what else is asked counts for as many as it takes the time of. A call
//! is paid for before the work: one for leases when it comes, by its length, so that what is found to be nonsense has been paid for, and the rest when
//! its resources have been counted. Apart from all accounts, `under_way` tells when the server as a whole has too much to do, and `lookers`
//! how long those rest who read the books without leasing.
//!
//! **Renewals before new leases.** Each account has a reserve, as large as the burst, that new leases cannot reach, and of which to refuse
//! them takes no more than half, but for what it costs to read them; and a server that has too much to do refuses new leases long before
//! renewals. Whether a request renews is asked of the books, and only when it would otherwise be refused: what it claims is believed only
//! where the books are still learning who holds what.

mod bucket;
mod cost;
mod in_flight;
mod key;
mod read_throttle;
mod rejections;
mod table;

use std::{num::NonZeroU32, time::Duration};

use doorman_openapi::Moment;

use self::{
    bucket::{Bucket, Depth, Pace, Spent},
    cost::{REQUEST, UNVERIFIED, tokens},
    in_flight::InFlight,
    key::QuotaClass,
    read_throttle::ReadThrottle,
    rejections::Refused,
    table::BucketTable,
};
pub(crate) use self::{
    cost::{LeaseCost, Operation},
    in_flight::{InFlightGuard, LeaseKind},
    key::QuotaKey,
    read_throttle::{ReadKind, ReadPermit},
    rejections::{CallKind, LimitScope},
};
use crate::util::peer::PeerAddr;

/// A request is refused: its caller, or all together, ask for more than the server does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RateLimited {
    pub(crate) whose: LimitScope,
    /// When it may come again.
    pub(crate) wait: Duration,
}

/// The limits, and what has been spent of them.
#[derive(Debug)]
pub(crate) struct Quotas {
    pace: Option<Pace>,
    /// Of operators: never slower than what is usual, as what they ask has a fixed cost, and is never so much that holders feel it.
    operators: Option<Pace>,
    loopback: Loopback,
    accounts: BucketTable,
    under_way: InFlight,
    lookers: ReadThrottle,
    refused: Refused,
}

/// Whether callers at a loopback address, who are not told apart, have a limit together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loopback {
    RateLimited,
    Free,
}

impl Quotas {
    pub(crate) fn new(limit: CallerLimit) -> Self {
        let usual = (CallerLimit::RATE, CallerLimit::burst(CallerLimit::RATE));
        let (of_each, loopback) = match limit {
            CallerLimit::Usual => (Some(usual), Loopback::Free),
            CallerLimit::Of { rate, burst } => (Some((rate, burst)), Loopback::RateLimited),
            CallerLimit::Off => (None, Loopback::Free),
        };
        let at_least_usual = |(rate, burst)| Pace::new(usual.0.max(rate), usual.1.max(burst));
        Self {
            pace: of_each.map(|(rate, burst)| Pace::new(rate, burst)),
            operators: of_each.map(at_least_usual),
            loopback,
            accounts: BucketTable::new(),
            under_way: InFlight::default(),
            lookers: ReadThrottle::default(),
            refused: Refused::default(),
        }
    }

    /// On whose account a request goes that comes without a verified token; `None` when it is on nobody's.
    pub(crate) fn address_key(&self, peer: Option<PeerAddr>) -> Option<QuotaKey> {
        let free = |peer: &PeerAddr| peer.is_loopback() && self.loopback == Loopback::Free;
        let pays = |_: &Pace| peer.filter(|peer| !free(peer)).map(QuotaKey::of_peer);
        self.pace.as_ref().and_then(pays)
    }

    /// Pays for an answer without a token.
    pub(crate) fn charge_open(
        &self,
        payer: Option<QuotaKey>,
        now: Moment,
    ) -> Result<(), RateLimited> {
        let taken = self.take(payer, QuotaClass::Open, UNVERIFIED, Depth::Burst, now);
        self.counted(CallKind::Unverified, taken)
    }

    /// Pays for the verifying of a token of which nothing is known.
    pub(crate) fn charge_verification(
        &self,
        payer: Option<QuotaKey>,
        now: Moment,
    ) -> Result<(), RateLimited> {
        let taken = self.take(
            payer,
            QuotaClass::Verification,
            UNVERIFIED,
            Depth::Burst,
            now,
        );
        self.counted(CallKind::Unverified, taken)
    }

    /// The token [counts](Self::verifying): who has sent it pays from now on, and not the address that it came from.
    pub(crate) fn refund_verification(&self, payer: Option<QuotaKey>, now: Moment) {
        if let Some((bucket, pace)) = self.account(payer, QuotaClass::Verification, now) {
            bucket.give_back(UNVERIFIED, pace);
        }
    }

    /// Pays for what an operator asks.
    pub(crate) fn charge_operation(
        &self,
        payer: Option<QuotaKey>,
        operation: Operation,
        now: Moment,
    ) -> Result<(), RateLimited> {
        let taken = self.take(
            payer,
            QuotaClass::Operators,
            operation.cost(),
            Depth::Burst,
            now,
        );
        self.counted(CallKind::Operator, taken)
    }

    /// Pays for a call of a holder that asks for no lease.
    pub(crate) fn charge_request(
        &self,
        payer: Option<QuotaKey>,
        now: Moment,
    ) -> Result<(), RateLimited> {
        let taken = self.take(payer, QuotaClass::Leases, REQUEST, Depth::Burst, now);
        self.counted(CallKind::New, taken)
    }

    /// Pays for the reading of a call for leases. It is not read when the reserve is spent, too.
    pub(crate) fn charge_reading(
        &self,
        payer: Option<QuotaKey>,
        work: LeaseCost,
        now: Moment,
    ) -> Result<(), RateLimited> {
        let taken = self.take(payer, QuotaClass::Leases, work.reading, Depth::Reserve, now);
        self.counted(CallKind::Unread, taken)
    }

    /// Counts decisions on so many resources as under way.
    ///
    /// # Errors
    /// [`RateLimited`]; it counts as refused when that is [told](Self::refuses).
    pub(crate) fn begin_decisions(
        &self,
        resources: usize,
        asks: LeaseKind,
    ) -> Result<InFlightGuard<'_>, RateLimited> {
        self.under_way.begin(resources, asks).ok_or(RateLimited {
            whose: LimitScope::Server,
            wait: Duration::ZERO,
        })
    }

    /// Pays for a call for leases what is left to pay when it has been [read](Self::reading).
    ///
    /// # Errors
    /// [`RateLimited`]; it counts as refused when that is [told](Self::refuses).
    pub(crate) fn charge_decisions(
        &self,
        payer: Option<QuotaKey>,
        work: LeaseCost,
        asks: LeaseKind,
        now: Moment,
    ) -> Result<(), RateLimited> {
        let Some((bucket, pace)) = self.account(payer, QuotaClass::Leases, now) else {
            return Ok(());
        };
        let LeaseCost { reading, all } = work;
        Ok(bucket.take_rest(all, reading, pace, depth(asks), now)?)
    }

    /// A call that has been [read](Self::reading) is refused, which costs a quarter: the whole call's, and of what is new only that of
    /// its reading from where half of the reserve is spent, so that the rest is left to renewals. Says when it may come again.
    pub(crate) fn reject(
        &self,
        payer: Option<QuotaKey>,
        work: LeaseCost,
        asks: LeaseKind,
        limited: RateLimited,
        now: Moment,
    ) -> RateLimited {
        let (kind, deepest) = match asks {
            LeaseKind::New => (CallKind::New, Depth::Refusals),
            LeaseKind::Renewal => (CallKind::Renewal, Depth::Reserve),
        };
        self.refused.count(kind, limited.whose);
        let Some((bucket, pace)) = self.account(payer, QuotaClass::Leases, now) else {
            return limited;
        };
        let reading = work.unread_refused();
        bucket.give_back(work.reading.saturating_sub(reading), pace);
        let rest = work.refused().saturating_sub(reading);
        bucket.take(rest, pace, deepest, now).ok();
        // What was taken now comes back before there is enough.
        let wait = match bucket.has(work.all, pace, depth(asks), now) {
            Ok(()) => limited.wait,
            Err(Spent { wait }) => wait.max(limited.wait),
        };
        RateLimited { wait, ..limited }
    }

    /// So many leases have come back: how many, only the books knew.
    pub(crate) fn charge_released(&self, payer: Option<QuotaKey>, leases: usize, now: Moment) {
        if let Some((bucket, pace)) = self.account(payer, QuotaClass::Leases, now) {
            bucket.owe(tokens(leases), pace, now);
        }
    }

    /// Somebody begins to look at the books who leases nothing; whatever one caller may do, all together may do only so much.
    ///
    /// # Errors
    /// [`RateLimited`] when too many others look.
    ///
    /// # Cancel safety
    /// Nothing is lost when it is dropped.
    pub(crate) async fn begin_read(&self, looks: ReadKind) -> Result<ReadPermit<'_>, RateLimited> {
        let looking = self.lookers.begin(looks).await;
        let looking = looking.ok_or(RateLimited {
            whose: LimitScope::Server,
            wait: Duration::ZERO,
        });
        looking.inspect_err(|limited| self.refused.count(CallKind::Operator, limited.whose))
    }

    /// How long somebody who looks rests before the next part of the books, when it is bounded elsewhere how many they are.
    pub(crate) fn read_delay(&self, looks: ReadKind, now: Moment) -> Duration {
        self.lookers.rest(looks, now)
    }

    /// How many requests of a kind were refused so far.
    pub(crate) fn rejections(&self, kind: CallKind, whose: LimitScope) -> u64 {
        self.refused.so_far(kind, whose)
    }

    fn take(
        &self,
        payer: Option<QuotaKey>,
        purse: QuotaClass,
        cost: u64,
        depth: Depth,
        now: Moment,
    ) -> Result<(), RateLimited> {
        let Some((bucket, pace)) = self.account(payer, purse, now) else {
            return Ok(());
        };
        Ok(bucket.take(cost, pace, depth, now)?)
    }

    /// What a payer has for a purpose; `None` where nothing is limited.
    fn account(
        &self,
        payer: Option<QuotaKey>,
        purse: QuotaClass,
        now: Moment,
    ) -> Option<(&Bucket, Pace)> {
        let pace = match purse {
            QuotaClass::Operators => self.operators,
            QuotaClass::Leases | QuotaClass::Open | QuotaClass::Verification => self.pace,
        }?;
        Some((self.accounts.bucket(payer?.bucket(purse), now), pace))
    }

    fn counted(&self, kind: CallKind, taken: Result<(), RateLimited>) -> Result<(), RateLimited> {
        taken.inspect_err(|limited| self.refused.count(kind, limited.whose))
    }
}

/// How deep somebody may reach who asks for this.
fn depth(asks: LeaseKind) -> Depth {
    match asks {
        LeaseKind::New => Depth::Burst,
        LeaseKind::Renewal => Depth::Reserve,
    }
}

impl From<Spent> for RateLimited {
    fn from(Spent { wait }: Spent) -> Self {
        Self {
            whose: LimitScope::Caller,
            wait,
        }
    }
}

/// How much one caller may ask for: who a token speaks of, or, where nobody is asked, whoever is at one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CallerLimit {
    /// [`RATE`](Self::RATE), and twice as much at a time; nothing limits callers without a token on this machine, who cannot be told
    /// apart.
    #[default]
    Usual,
    /// Decisions a second, and how many may be saved up; also for callers on this machine.
    Of {
        /// Decisions a second.
        rate: NonZeroU32,
        /// How many may be saved up.
        burst: NonZeroU32,
    },
    /// As much as it likes.
    Off,
}

impl CallerLimit {
    /// Decisions a second when nothing is said: what about half a core does.
    pub const RATE: NonZeroU32 = NonZeroU32::new(400_000).expect("it is not zero");

    /// What may be saved up of a rate when nothing is said: two seconds of it.
    #[must_use]
    pub const fn burst(rate: NonZeroU32) -> NonZeroU32 {
        rate.saturating_mul(NonZeroU32::new(2).expect("it is not zero"))
    }
}

#[cfg(test)]
mod tests;
