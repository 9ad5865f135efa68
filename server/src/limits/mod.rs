//! What the server does for one caller: it protects itself from one that asks without end, and all others from what that would cost.
//!
//! `payer` says on whose account a request goes, `table` finds the account in memory that does not grow, `bucket` decides. Costs are in
//! decisions, about as much work as one lease takes: what else is asked counts for as many as it takes the time of. A call is paid for
//! before the work. Apart from all accounts, `under_way` tells when the server as a whole has too much to do.
//!
//! **Renewals before new leases.** Each account has a reserve, as large as the burst, that new leases cannot reach; and a server that has
//! too much to do refuses new leases long before renewals. Whether a request renews is asked of the books, and only when it would
//! otherwise be refused: what it claims is believed only where the books are still learning who holds what.

mod bucket;
mod payer;
mod table;
mod under_way;

use std::{
    num::NonZeroU32,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use doorman_openapi::Moment;

use self::{
    bucket::{Depth, Pace, Spent},
    payer::Purse,
    table::Table,
    under_way::UnderWay,
};
pub(crate) use self::{
    payer::{Payer, Peer},
    under_way::{Asks, Counted},
};
use crate::settings::CallerLimit;

/// What a request costs beside its resources.
const REQUEST: u64 = 8;

/// What an answer without a token, or the verifying of one that is not known, costs. A signature takes some 0.1 ms.
const UNVERIFIED: u64 = 100;

/// What a look at the books, or at the document, costs: it may list a thousand things.
const VIEW: u64 = 1_000;

/// What a change of the document, a dry run or a scrape costs: it goes through all resources, or waits for the disk.
const CHANGE: u64 = 10_000;

/// What to read and refuse a request costs, of what it would cost to decide it.
const REFUSED: u64 = 4;

/// What an operator asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    View,
    Change,
}

/// Which requests were refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// For new leases, or for rules.
    New,
    /// That renew or give back.
    Renewal,
    /// For leases, of callers so far beyond their limit that nothing of them is read.
    Unread,
    /// Of operators.
    Operator,
    /// Without a token that is known to count.
    Unverified,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] = [
        Self::New,
        Self::Renewal,
        Self::Unread,
        Self::Operator,
        Self::Unverified,
    ];

    /// As metrics name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Renewal => "renewal",
            Self::Unread => "unread",
            Self::Operator => "operator",
            Self::Unverified => "unverified",
        }
    }
}

/// Whose limit a request is refused by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// That of its caller.
    Callers,
    /// That of the server, which has too much to do.
    Servers,
}

impl Whose {
    pub(crate) const ALL: [Self; 2] = [Self::Callers, Self::Servers];

    /// As metrics name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Callers => "caller",
            Self::Servers => "server",
        }
    }
}

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
    loopback: Loopback,
    accounts: Table,
    under_way: UnderWay,
    refused: [[AtomicU64; Kind::ALL.len()]; Whose::ALL.len()],
}

/// Whether callers at a loopback address, who are not told apart, have a limit together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loopback {
    Limited,
    Free,
}

impl Limits {
    pub(crate) fn new(limit: CallerLimit) -> Self {
        let (pace, loopback) = match limit {
            CallerLimit::Usual => {
                let pace = Pace::new(CallerLimit::RATE, CallerLimit::burst(CallerLimit::RATE));
                (Some(pace), Loopback::Free)
            }
            CallerLimit::Of { rate, burst } => (Some(Pace::new(rate, burst)), Loopback::Limited),
            CallerLimit::Off => (None, Loopback::Free),
        };
        Self {
            pace,
            loopback,
            accounts: Table::new(),
            under_way: UnderWay::default(),
            refused: Default::default(),
        }
    }

    /// On whose account a request goes that comes without a verified token; `None` when it is on nobody's.
    pub(crate) fn payer_at(&self, peer: Option<Peer>) -> Option<Payer> {
        let free = |peer: &Peer| peer.is_loopback() && self.loopback == Loopback::Free;
        let pays = |_: &Pace| peer.filter(|peer| !free(peer)).map(Payer::of_peer);
        self.pace.as_ref().and_then(pays)
    }

    /// Pays for an answer without a token, or for the verifying of one that is not known.
    pub(crate) fn unverified(&self, payer: Option<Payer>, now: Moment) -> Result<(), Limited> {
        let taken = self.take(payer, Purse::Unverified, UNVERIFIED, Depth::Burst, now);
        self.counted(Kind::Unverified, taken)
    }

    /// Pays for what an operator asks.
    pub(crate) fn operation(
        &self,
        payer: Option<Payer>,
        operation: Operation,
        now: Moment,
    ) -> Result<(), Limited> {
        let cost = match operation {
            Operation::View => VIEW,
            Operation::Change => CHANGE,
        };
        let taken = self.take(payer, Purse::Operators, cost, Depth::Burst, now);
        self.counted(Kind::Operator, taken)
    }

    /// Pays for a call of a holder that asks for no lease.
    pub(crate) fn request(&self, payer: Option<Payer>, now: Moment) -> Result<(), Limited> {
        let taken = self.take(payer, Purse::Leases, REQUEST, Depth::Burst, now);
        self.counted(Kind::New, taken)
    }

    /// Whether a call for leases is read at all: not when the reserve is spent, too.
    pub(crate) fn is_read(&self, payer: Option<Payer>, now: Moment) -> Result<(), Limited> {
        let (Some(pace), Some(payer)) = (self.pace, payer) else {
            return Ok(());
        };
        let bucket = self.accounts.bucket(payer.key(Purse::Leases), now);
        let has = bucket.has(REQUEST, pace, Depth::Reserve, now);
        self.counted(Kind::Unread, has.map_err(Limited::from))
    }

    /// Pays for decisions on so many resources, and counts them as under way.
    ///
    /// # Errors
    /// [`Limited`]; it counts as refused when that is [told](Self::refuses).
    pub(crate) fn decisions(
        &self,
        payer: Option<Payer>,
        resources: usize,
        asks: Asks,
        now: Moment,
    ) -> Result<Counted<'_>, Limited> {
        let Some(counted) = self.under_way.begin(resources, asks) else {
            return Err(Limited {
                whose: Whose::Servers,
                wait: Duration::ZERO,
            });
        };
        let depth = match asks {
            Asks::New => Depth::Burst,
            Asks::Renewal => Depth::Reserve,
        };
        self.take(payer, Purse::Leases, cost(resources), depth, now)?;
        Ok(counted)
    }

    /// A request for so many resources is refused. To have read it was work, too, which is paid for from the reserve: who asks for four
    /// times as much as it may, is soon read no more.
    pub(crate) fn refuses(
        &self,
        payer: Option<Payer>,
        resources: usize,
        asks: Asks,
        limited: Limited,
        now: Moment,
    ) {
        let kind = match asks {
            Asks::New => Kind::New,
            Asks::Renewal => Kind::Renewal,
        };
        self.count(kind, limited.whose);
        let cost = cost(resources) / REFUSED;
        // Who has spent it all is read no more anyway.
        self.take(payer, Purse::Leases, cost, Depth::Reserve, now)
            .ok();
    }

    /// How many requests of a kind were refused so far.
    pub(crate) fn refused(&self, kind: Kind, whose: Whose) -> u64 {
        self.counter(kind, whose)
            .map_or(0, |counter| counter.load(Relaxed))
    }

    fn take(
        &self,
        payer: Option<Payer>,
        purse: Purse,
        cost: u64,
        depth: Depth,
        now: Moment,
    ) -> Result<(), Limited> {
        let (Some(pace), Some(payer)) = (self.pace, payer) else {
            return Ok(());
        };
        let bucket = self.accounts.bucket(payer.key(purse), now);
        Ok(bucket.take(cost, pace, depth, now)?)
    }

    fn counted(&self, kind: Kind, taken: Result<(), Limited>) -> Result<(), Limited> {
        taken.inspect_err(|limited| self.count(kind, limited.whose))
    }

    fn count(&self, kind: Kind, whose: Whose) {
        if let Some(counter) = self.counter(kind, whose) {
            counter.fetch_add(1, Relaxed);
        }
    }

    fn counter(&self, kind: Kind, whose: Whose) -> Option<&AtomicU64> {
        self.refused.get(whose as usize)?.get(kind as usize)
    }
}

/// What a request for so many resources costs.
fn cost(resources: usize) -> u64 {
    u64::try_from(resources)
        .unwrap_or(u64::MAX)
        .saturating_add(REQUEST)
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
