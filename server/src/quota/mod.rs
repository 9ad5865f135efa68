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
mod lookers;
mod payer;
mod refused;
mod table;
mod under_way;

use std::{num::NonZeroU32, time::Duration};

use doorman_openapi::Moment;

use self::{
    bucket::{Bucket, Depth, Pace, Spent},
    cost::{REQUEST, UNVERIFIED, tokens},
    lookers::Lookers,
    payer::Purse,
    refused::Refused,
    table::Table,
    under_way::UnderWay,
};
pub(crate) use self::{
    cost::{Operation, Work},
    lookers::{Looking, Looks},
    payer::{Payer, Peer},
    refused::{Kind, Whose},
    under_way::{Asks, Counted},
};
use crate::settings::CallerLimit;

/// A request is refused: its caller, or all together, ask for more than the server does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limited {
    pub(crate) whose: Whose,
    /// When it may come again.
    pub(crate) wait: Duration,
}

/// The limits, and what has been spent of them.
#[derive(Debug)]
pub(crate) struct Limits {
    pace: Option<Pace>,
    /// Of operators: never slower than what is usual, as what they ask has a fixed cost, and is never so much that holders feel it.
    operators: Option<Pace>,
    loopback: Loopback,
    accounts: Table,
    under_way: UnderWay,
    lookers: Lookers,
    refused: Refused,
}

/// Whether callers at a loopback address, who are not told apart, have a limit together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loopback {
    Limited,
    Free,
}

impl Limits {
    pub(crate) fn new(limit: CallerLimit) -> Self {
        let usual = (CallerLimit::RATE, CallerLimit::burst(CallerLimit::RATE));
        let (of_each, loopback) = match limit {
            CallerLimit::Usual => (Some(usual), Loopback::Free),
            CallerLimit::Of { rate, burst } => (Some((rate, burst)), Loopback::Limited),
            CallerLimit::Off => (None, Loopback::Free),
        };
        let at_least_usual = |(rate, burst)| Pace::new(usual.0.max(rate), usual.1.max(burst));
        Self {
            pace: of_each.map(|(rate, burst)| Pace::new(rate, burst)),
            operators: of_each.map(at_least_usual),
            loopback,
            accounts: Table::new(),
            under_way: UnderWay::default(),
            lookers: Lookers::default(),
            refused: Refused::default(),
        }
    }

    /// On whose account a request goes that comes without a verified token; `None` when it is on nobody's.
    pub(crate) fn payer_at(&self, peer: Option<Peer>) -> Option<Payer> {
        let free = |peer: &Peer| peer.is_loopback() && self.loopback == Loopback::Free;
        let pays = |_: &Pace| peer.filter(|peer| !free(peer)).map(Payer::of_peer);
        self.pace.as_ref().and_then(pays)
    }

    /// Pays for an answer without a token.
    pub(crate) fn open(&self, payer: Option<Payer>, now: Moment) -> Result<(), Limited> {
        let taken = self.take(payer, Purse::Open, UNVERIFIED, Depth::Burst, now);
        self.counted(Kind::Unverified, taken)
    }

    /// Pays for the verifying of a token of which nothing is known.
    pub(crate) fn verifying(&self, payer: Option<Payer>, now: Moment) -> Result<(), Limited> {
        let taken = self.take(payer, Purse::Verifying, UNVERIFIED, Depth::Burst, now);
        self.counted(Kind::Unverified, taken)
    }

    /// The token [counts](Self::verifying): who has sent it pays from now on, and not the address that it came from.
    pub(crate) fn has_verified(&self, payer: Option<Payer>, now: Moment) {
        if let Some((bucket, pace)) = self.account(payer, Purse::Verifying, now) {
            bucket.give_back(UNVERIFIED, pace);
        }
    }

    /// Pays for what an operator asks.
    pub(crate) fn operation(
        &self,
        payer: Option<Payer>,
        operation: Operation,
        now: Moment,
    ) -> Result<(), Limited> {
        let taken = self.take(payer, Purse::Operators, operation.cost(), Depth::Burst, now);
        self.counted(Kind::Operator, taken)
    }

    /// Pays for a call of a holder that asks for no lease.
    pub(crate) fn request(&self, payer: Option<Payer>, now: Moment) -> Result<(), Limited> {
        let taken = self.take(payer, Purse::Leases, REQUEST, Depth::Burst, now);
        self.counted(Kind::New, taken)
    }

    /// Pays for the reading of a call for leases. It is not read when the reserve is spent, too.
    pub(crate) fn reading(
        &self,
        payer: Option<Payer>,
        work: Work,
        now: Moment,
    ) -> Result<(), Limited> {
        let taken = self.take(payer, Purse::Leases, work.reading, Depth::Reserve, now);
        self.counted(Kind::Unread, taken)
    }

    /// Counts decisions on so many resources as under way.
    ///
    /// # Errors
    /// [`Limited`]; it counts as refused when that is [told](Self::refuses).
    pub(crate) fn begin(&self, resources: usize, asks: Asks) -> Result<Counted<'_>, Limited> {
        self.under_way.begin(resources, asks).ok_or(Limited {
            whose: Whose::Servers,
            wait: Duration::ZERO,
        })
    }

    /// Pays for a call for leases what is left to pay when it has been [read](Self::reading).
    ///
    /// # Errors
    /// [`Limited`]; it counts as refused when that is [told](Self::refuses).
    pub(crate) fn decisions(
        &self,
        payer: Option<Payer>,
        work: Work,
        asks: Asks,
        now: Moment,
    ) -> Result<(), Limited> {
        let Some((bucket, pace)) = self.account(payer, Purse::Leases, now) else {
            return Ok(());
        };
        let Work { reading, all } = work;
        Ok(bucket.take_rest(all, reading, pace, depth(asks), now)?)
    }

    /// A call that has been [read](Self::reading) is refused, which costs a quarter: the whole call's, and of what is new only that of
    /// its reading from where half of the reserve is spent, so that the rest is left to renewals. Says when it may come again.
    pub(crate) fn refuses(
        &self,
        payer: Option<Payer>,
        work: Work,
        asks: Asks,
        limited: Limited,
        now: Moment,
    ) -> Limited {
        let (kind, deepest) = match asks {
            Asks::New => (Kind::New, Depth::Refusals),
            Asks::Renewal => (Kind::Renewal, Depth::Reserve),
        };
        self.refused.count(kind, limited.whose);
        let Some((bucket, pace)) = self.account(payer, Purse::Leases, now) else {
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
        Limited { wait, ..limited }
    }

    /// So many leases have come back: how many, only the books knew.
    pub(crate) fn has_released(&self, payer: Option<Payer>, leases: usize, now: Moment) {
        if let Some((bucket, pace)) = self.account(payer, Purse::Leases, now) {
            bucket.owe(tokens(leases), pace, now);
        }
    }

    /// Somebody begins to look at the books who leases nothing; whatever one caller may do, all together may do only so much.
    ///
    /// # Errors
    /// [`Limited`] when too many others look.
    ///
    /// # Cancel safety
    /// Nothing is lost when it is dropped.
    pub(crate) async fn look(&self, looks: Looks) -> Result<Looking<'_>, Limited> {
        let looking = self.lookers.begin(looks).await;
        let looking = looking.ok_or(Limited {
            whose: Whose::Servers,
            wait: Duration::ZERO,
        });
        looking.inspect_err(|limited| self.refused.count(Kind::Operator, limited.whose))
    }

    /// How long somebody who looks rests before the next part of the books, when it is bounded elsewhere how many they are.
    pub(crate) fn rest(&self, looks: Looks, now: Moment) -> Duration {
        self.lookers.rest(looks, now)
    }

    /// How many requests of a kind were refused so far.
    pub(crate) fn refused(&self, kind: Kind, whose: Whose) -> u64 {
        self.refused.so_far(kind, whose)
    }

    fn take(
        &self,
        payer: Option<Payer>,
        purse: Purse,
        cost: u64,
        depth: Depth,
        now: Moment,
    ) -> Result<(), Limited> {
        let Some((bucket, pace)) = self.account(payer, purse, now) else {
            return Ok(());
        };
        Ok(bucket.take(cost, pace, depth, now)?)
    }

    /// What a payer has for a purpose; `None` where nothing is limited.
    fn account(&self, payer: Option<Payer>, purse: Purse, now: Moment) -> Option<(&Bucket, Pace)> {
        let pace = match purse {
            Purse::Operators => self.operators,
            Purse::Leases | Purse::Open | Purse::Verifying => self.pace,
        }?;
        Some((self.accounts.bucket(payer?.key(purse), now), pace))
    }

    fn counted(&self, kind: Kind, taken: Result<(), Limited>) -> Result<(), Limited> {
        taken.inspect_err(|limited| self.refused.count(kind, limited.whose))
    }
}

/// How deep somebody may reach who asks for this.
fn depth(asks: Asks) -> Depth {
    match asks {
        Asks::New => Depth::Burst,
        Asks::Renewal => Depth::Reserve,
    }
}

impl From<Spent> for Limited {
    fn from(Spent { wait }: Spent) -> Self {
        Self {
            whose: Whose::Callers,
            wait,
        }
    }
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
