//! Election of the master among the servers of a node.
//!
//! An [`Election`] is a state machine without IO: events and the time go in, effects come out. The
//! server's driver executes the effects; the simulation runs the same machines in virtual time.
//! [`Alone`] is for a node of one server with a data directory. [`EtcdElection`] is for several
//! servers, and keeps its state in etcd.
//!
//! Both decide the same: the master and the end of its reign, the epoch, the leases of earlier
//! masters that may be outstanding, and the end up to which leases may be reported.

mod alone;
mod etcd;

use std::fmt;

use doorman_openapi::{CLOCK_DRIFT, Epoch, Moment, Seconds};
use serde::{Deserialize, Serialize};

pub use self::etcd::call_time;
pub use self::{
    alone::{Alone, DiskCall, FoundBound, FoundState, Outstanding, Reason},
    etcd::{EtcdElection, EtcdOptions},
};
use crate::{
    ledger::{EarlierTerms, Predecessor},
    reign::{Bound, DueTerms, DurableBound, DurableTerms, TermsGeneration, earlier_terms},
};

/// A state machine that elects the master.
pub trait Election {
    /// An operation on the storage that the election keeps its state in.
    type Call;
    /// The result of an operation.
    type Reply;

    /// Handles an event. Effects are to be executed in their order.
    fn handle(&mut self, event: Event<Self::Reply>, time: Time) -> Vec<Effect<Self::Call>>;

    /// When it needs [`Event::Wake`].
    fn wake_at(&self) -> Moment;

    /// The master as far as this server knows.
    fn view(&self) -> View;

    /// The highest epoch that the server has heard of. Only its data directory may have it: a
    /// holder that echoes it confirms its claim to a master whose reign may not have begun.
    fn last_epoch(&self) -> Option<Epoch>;
}

/// The time of an event.
#[derive(Debug, Clone, Copy)]
pub struct Time {
    /// By the server's clock.
    pub now: Moment,
    /// Seconds of the wall clock, for epochs alone.
    pub unix: u64,
}

/// Identifies a call and its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(u64);

/// An event.
#[derive(Debug)]
pub enum Event<R> {
    /// The time of [`Election::wake_at`] has come.
    Wake,
    /// A call was answered, or has failed. A call without an answer fails by the machine's timers.
    Reply {
        /// The call.
        call: CallId,
        /// Its result; `None` if it failed, and may have been executed or not.
        result: Option<R>,
    },
    /// The bound of the reign is due.
    BoundDue(Bound),
    /// The terms of leases are due.
    TermsDue(DueTerms),
    /// The ledger of the last master has been fetched, or cannot be.
    LedgerFetched {
        /// The epoch in which it should be used.
        epoch: Epoch,
        /// Whether it has been fetched.
        is_fetched: bool,
    },
    /// The server stops, and hands its ledger over to the bearer of the secret.
    Resign {
        /// The secret, which is valid once.
        secret: String,
    },
}

/// An effect.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect<C> {
    /// Execute an operation. No answer is needed after [`Election::wake_at`].
    Call {
        /// To be given with the reply.
        id: CallId,
        /// The operation.
        call: C,
    },
    /// Fetch the ledger of the last master, then report it. It is used by the next
    /// [`Begin`](ReignEffect::Begin).
    FetchLedger {
        /// Where it is.
        source: LedgerSource,
        /// The epoch in which it will be used.
        epoch: Epoch,
    },
    /// Apply this to the [`Master`](crate::master::Master).
    Reign(ReignEffect),
    /// The terms of the node's leases, as far as they are known now. To be remembered: the storage
    /// of the election may be lost, or given up.
    TermsHeard(Vec<TermsGeneration>),
    /// The server has resigned, and never becomes master again. Whether the ledger was offered to
    /// the next master.
    Resigned {
        /// The epoch whose ledger the next master may fetch.
        offered: Option<Epoch>,
    },
}

/// An effect on the reign of this server.
#[derive(Debug, Clone, PartialEq)]
pub enum ReignEffect {
    /// This server is master.
    Begin(Term),
    /// It stays master until then.
    Extend(Moment),
    /// Its leases may be reported up to this bound.
    BoundWritten(Bound),
    /// The bound could not be written.
    BoundFailed,
    /// Leases may be reported under these terms.
    TermsWritten(DueTerms),
    /// The terms could not be written.
    TermsFailed,
    /// It is no longer master.
    End(EndReason),
}

impl<C> From<ReignEffect> for Effect<C> {
    fn from(effect: ReignEffect) -> Self {
        Self::Reign(effect)
    }
}

/// How a reign begins.
#[derive(Debug, Clone, PartialEq)]
pub struct Term {
    /// The epoch.
    pub epoch: Epoch,
    /// When it ends, unless it is extended.
    pub deadline: Moment,
    /// Whether it begins with the fetched ledger. Otherwise with an empty one.
    pub inherits: bool,
    /// Leases of earlier masters that are not in the ledger.
    pub learn: Learn,
    /// Leases of earlier masters that the next master would not learn: the bound must cover them.
    pub uncovered: Learn,
    /// The longest booking of any earlier lease in nanoseconds, as it was stored; `None` if it is
    /// unknown.
    pub longest: Option<u64>,
    /// The bound that is durable already, and the longest booking of any lease in nanoseconds.
    pub bound: (Moment, u64),
    /// The terms that are stored, under which earlier leases were granted.
    pub terms: Vec<TermsGeneration>,
    /// Such terms that are not stored where the next master looks for them.
    pub other_terms: Vec<TermsGeneration>,
}

impl Term {
    /// The assumption of a new ledger. `assumed` is the longest lease of any document, or the
    /// operator's: earlier leases may be that long, even if no longer one is stored.
    #[must_use]
    pub fn predecessor(&self, assumed: Seconds, now: Moment) -> Predecessor {
        self.learn
            .predecessor(longest_booking(self.longest, assumed), now)
    }

    /// Whether nothing says how long earlier leases are, so that an assumption decides.
    #[must_use]
    pub fn is_longest_unknown(&self) -> bool {
        matches!(self.learn, Learn::LongestLease(_)) && self.longest.is_none()
    }

    /// The terms of earlier leases that may last, for a new ledger. The arguments are those of
    /// [`new_bound`](Self::new_bound).
    #[must_use]
    pub fn earlier_terms(
        &self,
        assumed: Seconds,
        inherited: Option<Moment>,
        now: Moment,
    ) -> EarlierTerms {
        match self.earlier_end(assumed, inherited, now) {
            Some(ends) if now < ends => earlier_terms(self.terms.iter().chain(&self.other_terms)),
            _ => EarlierTerms::default(),
        }
    }

    /// The end of all leases of earlier masters; `None` if there are none.
    fn earlier_end(
        &self,
        assumed: Seconds,
        inherited: Option<Moment>,
        now: Moment,
    ) -> Option<Moment> {
        let learned = match self.predecessor(assumed, now) {
            Predecessor::Until(ends) => Some(ends),
            Predecessor::None => None,
        };
        learned.max(inherited)
    }

    /// The bound of the reign, due at once for leases that only this reign knows of. `assumed` is
    /// that of [`predecessor`](Self::predecessor), `inherited` the end of the inherited ledger.
    #[must_use]
    pub fn new_bound(
        &self,
        assumed: Seconds,
        inherited: Option<Moment>,
        now: Moment,
    ) -> DurableBound {
        let (written, longest) = self.bound;
        let earlier_end = self.earlier_end(assumed, inherited, now);
        let ends = earlier_end.unwrap_or(Moment::ORIGIN);
        let terms = DurableTerms::new(&self.terms, &self.other_terms, ends);
        let mut bound = DurableBound::new(written, longest).with_terms(terms);
        let earlier = longest_booking(self.longest, assumed);
        if let Predecessor::Until(ends) = self.uncovered.predecessor(earlier, now)
            && now < ends
        {
            bound.require_until(ends);
        }
        // What is left of earlier leases bounds their length from now on. A first bound that is
        // durable has it.
        if longest == 0
            && let Some(ends) = earlier_end
        {
            let left = nanos_between(now, ends);
            bound.require_longest(self.longest.map_or(left, |_| left.min(earlier)));
        }
        bound
    }
}

/// The longest booking that earlier leases may have, in nanoseconds. `stored` is what a server or
/// etcd remembers; `assumed` that of [`Term::predecessor`].
fn longest_booking(stored: Option<u64>, assumed: Seconds) -> u64 {
    let assumed = Moment::ORIGIN.after_seconds(assumed.get() * CLOCK_DRIFT);
    assumed.as_nanos().max(stored.unwrap_or(0))
}

/// Nanoseconds from one moment to a later one; 0 if it is not later.
fn nanos_between(from: Moment, to: Moment) -> u64 {
    to.as_nanos().saturating_sub(from.as_nanos())
}

/// Until when leases of earlier masters may be outstanding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Learn {
    /// None are.
    Nothing,
    /// Until this moment.
    Until(Moment),
    /// For as long as the longest lease that may have been granted, and at least until this moment.
    LongestLease(Moment),
}

impl Learn {
    /// Leases are outstanding until this moment, too.
    #[must_use]
    pub fn and_until(self, until: Moment) -> Self {
        match self {
            Self::Nothing => Self::Until(until),
            Self::Until(other) => Self::Until(until.max(other)),
            Self::LongestLease(other) => Self::LongestLease(until.max(other)),
        }
    }

    /// The assumption of a new ledger, if no earlier lease is booked for longer than so many
    /// nanoseconds.
    fn predecessor(self, longest: u64, now: Moment) -> Predecessor {
        match self {
            Self::Nothing => Predecessor::None,
            Self::Until(until) => Predecessor::Until(until),
            Self::LongestLease(until) => {
                let end = Moment::from_nanos(now.as_nanos().saturating_add(longest));
                Predecessor::Until(end.max(until))
            }
        }
    }
}

/// Where the ledger of the last master is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LedgerSource {
    /// In the data directory.
    DataDir {
        /// The epoch in which it was written.
        epoch: Epoch,
    },
    /// At the last master.
    Peer(Handover),
}

/// The offer of a ledger to the next master. `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handover {
    /// The URL of the server that offers it.
    pub address: String,
    /// Authorizes the request.
    pub secret: String,
    /// The epoch of the ledger.
    pub epoch: Epoch,
}

impl fmt::Debug for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handover")
            .field("address", &self.address)
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}

/// Why a reign ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// It could not be extended in time.
    Deadline,
    /// Another server is master, or may become it at any moment.
    Deposed,
    /// The server stops.
    Resigned,
}

/// The master as far as a server knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    /// The base URL of the master; `None` if there is none, or it is unknown.
    pub address: Option<String>,
    /// The highest epoch of the node of which a reign is known to have begun.
    pub epoch: Option<Epoch>,
    /// The longest booking of any lease of the node that may last, in nanoseconds; `None` if it is
    /// unknown.
    pub longest: Option<u64>,
    /// Since when the storage of the election cannot be read; `None` while it can, and if no other
    /// server writes there.
    pub unread_since: Option<Moment>,
    /// Whether the storage of the election has been read: else no address means that the master is
    /// unknown.
    pub has_read: bool,
}

/// The next epoch: above all others, and not below the wall clock, so that it grows even if the
/// storage is lost. `None` above all numbers.
#[must_use]
pub fn next_epoch(last: Option<Epoch>, unix: u64) -> Option<Epoch> {
    let next = last.map_or(0, |last| last.get().saturating_add(1));
    Epoch::new(next.max(unix)).ok()
}
