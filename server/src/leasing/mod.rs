//! The reign of this server behind one lock, shared by requests, readers and the sweeper.
//!
//! Every use of the ledger passes [`SharedLedger::with`], which compares the time with the deadline
//! of the reign under the lock. The lock is held for a bounded number of steps: long requests are
//! decided in parts. Responses report a lease only as far as the
//! [`DurableBound`](doorman_core::reign::DurableBound) covers it.

mod polls;
pub(crate) mod sweeper;

use std::{
    sync::{
        Arc, Mutex, TryLockError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use doorman_openapi::{Epoch, Moment, ResourceId};
use tokio::sync::{Notify, watch};

use self::polls::Polls;
pub(crate) use self::polls::{OpenPoll, PollEnd};
use crate::util::clock;
use doorman_core::{
    ledger::Grant, ledger::LeaseCall, ledger::Ledger, ledger::ReleaseCall, ledger::ReleaseProgress,
    ledger::RenewalCheck, reign::BoundWrites, reign::DurableBound, reign::DurableTerms,
    reign::Reign,
};

/// How long a reader sleeps while others wait for the lock: long enough for one to wake up.
const YIELD: Duration = Duration::from_millis(1);

/// How long a request waits for the parent node.
const PARENT_TIMEOUT: Duration = Duration::from_secs(1);

/// Why the ledger cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LedgerUnavailable {
    /// This server is not master.
    NotMaster,
    /// A panic interrupted a change of the ledger, so no decision can be based on it any more.
    Poisoned,
}

/// Why leases are not granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotGranted {
    /// There is no ledger.
    Unavailable(LedgerUnavailable),
    /// The next master would not know of them: no bound could be written.
    NotDurable,
    /// The parent node does not answer, and holders may have leases of a previous master.
    NoParent,
}

impl From<LedgerUnavailable> for NotGranted {
    fn from(cause: LedgerUnavailable) -> Self {
        Self::Unavailable(cause)
    }
}

/// The reign with its lock; without one while this server is not master.
#[derive(Debug)]
pub(crate) struct SharedLedger {
    reign: Mutex<Option<Reign>>,
    /// Threads that wait for the lock.
    waiting: AtomicUsize,
    polls: Polls,
    /// When the ledger is swept next, in nanoseconds on the clock. Changed under the lock.
    next_sweep: AtomicU64,
    /// When learning mode ends, in nanoseconds on the clock. At most a second old.
    learning_until: AtomicU64,
    /// When the reign ends, in nanoseconds on the clock; 0 without one.
    deadline: AtomicU64,
    sweep_sooner: Notify,
    /// Present if a parent node leases the capacity.
    parent: Option<ParentSignals>,
}

/// Signals between requests and the task that asks the parent node.
#[derive(Debug)]
pub(crate) struct ParentSignals {
    /// There are updates for the parent, or a reign has begun.
    pub(crate) updates: Notify,
    /// Counts responses of the parent.
    pub(crate) answers: watch::Sender<u64>,
}

/// Leases that were granted in one reign.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) epoch: Epoch,
    pub(crate) grants: Vec<Grant>,
}

impl SharedLedger {
    /// Begins without a reign. Beyond `max_polls` open polls the oldest ends.
    pub(crate) fn new(max_polls: usize) -> Self {
        Self {
            reign: Mutex::new(None),
            waiting: AtomicUsize::new(0),
            polls: Polls::new(max_polls),
            next_sweep: AtomicU64::new(u64::MAX),
            learning_until: AtomicU64::new(0),
            deadline: AtomicU64::new(0),
            sweep_sooner: Notify::new(),
            parent: None,
        }
    }

    /// The ledger of a node that leases from a parent node.
    pub(crate) fn of_parent(self) -> Self {
        Self {
            parent: Some(ParentSignals {
                updates: Notify::new(),
                answers: watch::Sender::new(0),
            }),
            ..self
        }
    }

    /// The signals of the task that asks the parent node.
    pub(crate) fn parent(&self) -> Option<&ParentSignals> {
        self.parent.as_ref()
    }

    /// Begins a reign, and returns the one before.
    pub(crate) fn begin(&self, reign: Reign) -> Option<Reign> {
        let mut reign = reign;
        let deadline = reign.deadline();
        let learning_until = reign.ledger(Moment::ORIGIN).map(|it| it.learning_until());
        let mut current = self.reign.lock().ok()?;
        self.set_deadline(deadline);
        let learning_until = learning_until.unwrap_or(Moment::ORIGIN).as_nanos();
        self.learning_until.store(learning_until, Ordering::Relaxed);
        let before = current.replace(reign);
        drop(current);
        self.polls.set_leaving(false);
        self.sweep_sooner.notify_one();
        if let Some(parent) = &self.parent {
            parent.updates.notify_one();
        }
        before
    }

    /// Extends the reign.
    pub(crate) fn extend(&self, deadline: Moment) {
        if let Ok(mut reign) = self.reign.lock()
            && let Some(reign) = reign.as_mut()
        {
            reign.extend(deadline);
            self.set_deadline(reign.deadline());
        }
    }

    /// Ends the reign, and all polls. `None` without one, or after a panic.
    pub(crate) fn end(&self) -> Option<Reign> {
        let mut reign = self.reign.lock();
        self.set_deadline(Moment::ORIGIN);
        self.learning_until.store(0, Ordering::Relaxed);
        self.polls.set_leaving(true);
        reign.as_mut().ok()?.take()
    }

    fn set_deadline(&self, deadline: Moment) {
        self.deadline.store(deadline.as_nanos(), Ordering::Relaxed);
    }

    /// Whether this server is master now. A decision compares the time again.
    pub(crate) fn is_master(&self) -> bool {
        let deadline = self.deadline.load(Ordering::Relaxed);
        // The only server of a node needs no clock.
        deadline == Moment::NEVER.as_nanos() || clock::now().as_nanos() < deadline
    }

    /// Runs `operation` under the lock, and answers the polls that it has hints for. The clock is
    /// read under the lock too, so time never goes back, and a server that was stopped finds that
    /// its reign is over.
    pub(crate) fn with<T>(
        &self,
        operation: impl FnOnce(&mut Ledger, Moment) -> T,
    ) -> Result<T, LedgerUnavailable> {
        self.with_reign(|ledger, _, now| operation(ledger, now))
    }

    /// As [`with`](Self::with), with the epoch of the reign.
    pub(crate) fn with_epoch<T>(
        &self,
        operation: impl FnOnce(&mut Ledger, Epoch, Moment) -> T,
    ) -> Result<T, LedgerUnavailable> {
        self.with_reign(|ledger, reign, now| operation(ledger, reign.epoch, now))
    }

    /// As [`with`](Self::with), for a reader that needs the bound, too.
    pub(crate) fn with_bound<T>(
        &self,
        operation: impl FnOnce(&Ledger, Moment, Moment) -> T,
    ) -> Result<T, LedgerUnavailable> {
        self.with_reign(|ledger, reign, now| operation(ledger, reign.bound.get(), now))
    }

    fn with_reign<T>(
        &self,
        operation: impl FnOnce(&mut Ledger, ReignInfo<'_>, Moment) -> T,
    ) -> Result<T, LedgerUnavailable> {
        let mut reign = match self.reign.try_lock() {
            Ok(reign) => reign,
            Err(TryLockError::Poisoned(_)) => return Err(LedgerUnavailable::Poisoned),
            Err(TryLockError::WouldBlock) => {
                self.waiting.fetch_add(1, Ordering::Relaxed);
                let reign = self.reign.lock();
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                reign.map_err(|_| LedgerUnavailable::Poisoned)?
            }
        };
        let now = clock::now();
        let current = reign.as_mut().ok_or(LedgerUnavailable::NotMaster)?;
        let (epoch, ledger, bound) = current.parts(now).ok_or(LedgerUnavailable::NotMaster)?;
        let result = operation(ledger, ReignInfo { epoch, bound }, now);
        if let Some(terms) = ledger.take_granting_terms() {
            bound.note_terms(terms);
        }
        let hints = if ledger.has_hints(now) {
            ledger.take_hints(now)
        } else {
            Vec::new()
        };
        let due = ledger.hints_due().unwrap_or(Moment::NEVER).as_nanos();
        if due < self.next_sweep.load(Ordering::Relaxed) {
            self.next_sweep.store(due, Ordering::Relaxed);
            self.sweep_sooner.notify_one();
        }
        let has_updates = ledger.has_parent_updates();
        drop(reign);
        self.polls.answer(hints);
        if let Some(parent) = self.parent.as_ref().filter(|_| has_updates) {
            parent.updates.notify_one();
        }
        Ok(result)
    }

    /// Waits until the parent node has answered for all resources of a call, at most a second.
    ///
    /// # Errors
    /// [`NotGranted::NoParent`] if holders may have leases of a previous master: they keep them as
    /// long as they get no answer.
    pub(crate) async fn ask_parent(&self, call: &LeaseCall) -> Result<(), NotGranted> {
        let Some(parent) = &self.parent else {
            return Ok(());
        };
        let timeout = tokio::time::sleep(PARENT_TIMEOUT);
        tokio::pin!(timeout);
        loop {
            let mut answers = parent.answers.subscribe();
            let (mut is_awaited, mut from) = (false, Some(0));
            while let Some(next) = from {
                let registered = self.with(|ledger, now| ledger.register_part(call, next, now))?;
                is_awaited |= registered.0;
                from = registered.1;
            }
            if !is_awaited {
                return Ok(());
            }
            tokio::select! {
                // The sender lives as long as this.
                _ = answers.changed() => {}
                () = &mut timeout => {
                    let may_have_lost =
                        self.with(|ledger, now| ledger.may_have_lost_leases(now))?;
                    return if may_have_lost { Err(NotGranted::NoParent) } else { Ok(()) };
                }
            }
        }
    }

    /// Decides on the leases of a call, and returns them shortened to what the bound covers.
    ///
    /// # Cancel safety
    /// Decided leases stay booked until they expire, as if the response had been lost.
    pub(crate) async fn grant(&self, call: &LeaseCall) -> Result<Granted, NotGranted> {
        let count = call.len();
        let (mut wait_for, mut new_terms) = (None, None);
        let (mut grants, epoch, handled) = self.with_reign(|ledger, reign, now| {
            let grants = ledger.refresh_part(call, 0, now);
            wait_for = reign.bound_to_wait_for(count, &grants);
            new_terms = reign.bound_without_terms();
            (grants, reign.epoch, now)
        })?;
        while grants.len() < count {
            tokio::task::yield_now().await;
            let mut part = self.with_reign(|ledger, reign, now| {
                // The parts of a response come from one reign.
                (reign.epoch == epoch).then(|| {
                    new_terms = reign.bound_without_terms().or(new_terms.take());
                    let part = ledger.refresh_part(call, grants.len(), now);
                    reign.bound.require(&part);
                    part
                })
            })?;
            grants.append(part.as_mut().ok_or(LedgerUnavailable::NotMaster)?);
        }
        if let Some(bound) = new_terms {
            let covered = bound.cover_terms(grants).await;
            grants = covered.ok_or(NotGranted::NotDurable)?;
        }
        // The time of the first part: no booking may seem shorter than it is.
        if let Some(bound) = wait_for {
            let covered = bound.cover(grants, handled).await;
            grants = covered.ok_or(NotGranted::NotDurable)?;
        }
        Ok(Granted { epoch, grants })
    }

    /// Releases leases. Returns the numbers of visited resources and released leases.
    /// Resources that are not `allowed` stay.
    ///
    /// # Cancel safety
    /// Leases that were not released yet expire.
    pub(crate) async fn release(
        &self,
        call: &ReleaseCall,
        allowed: &(dyn Fn(&ResourceId) -> bool + Sync),
    ) -> Result<ReleaseProgress, LedgerUnavailable> {
        let mut total = ReleaseProgress::default();
        let mut from = 0;
        loop {
            let part = self.with(|ledger, now| ledger.release_part(call, allowed, from, now))?;
            total.scanned = total.scanned.saturating_add(part.scanned);
            total.released = total.released.saturating_add(part.released);
            match part.next {
                Some(next) => from = next,
                None => return Ok(total),
            }
            tokio::task::yield_now().await;
        }
    }

    /// Whether a call only renews.
    pub(crate) async fn renews(&self, call: &LeaseCall) -> Result<bool, LedgerUnavailable> {
        let mut from = 0;
        loop {
            match self.with(|ledger, now| ledger.check_renewal(call, from, now))? {
                RenewalCheck::AllHeld => return Ok(true),
                RenewalCheck::SomeNew => return Ok(false),
                RenewalCheck::HeldSoFar(next) => from = next,
            }
            tokio::task::yield_now().await;
        }
    }

    /// Pauses a reader before it takes the lock again: for `pause` or, if that is zero, once for a
    /// millisecond when other threads wait. A mutex is not fair: a reader would take it again
    /// before a waiting thread has woken up.
    pub(crate) async fn yield_to_waiters(&self, pause: Duration) {
        if !pause.is_zero() {
            return tokio::time::sleep(pause).await;
        }
        tokio::task::yield_now().await;
        if self.waiting.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(YIELD).await;
        }
    }

    /// When learning mode ends for the last template; in the past if it has ended. Takes no lock,
    /// since anybody may ask at any rate.
    pub(crate) fn learning_until(&self) -> Moment {
        Moment::from_nanos(self.learning_until.load(Ordering::Relaxed))
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.reign.is_poisoned()
    }

    /// The bound of the reign; `None` without one.
    pub(crate) fn bound(&self) -> Option<Arc<DurableBound>> {
        let reign = self.reign.lock().ok()?;
        reign.as_ref().map(|reign| Arc::clone(reign.bound()))
    }

    /// The writes of the bound in this reign.
    pub(crate) fn bound_writes(&self) -> BoundWrites {
        self.bound().map(|bound| bound.writes()).unwrap_or_default()
    }

    /// The writes of the terms of leases in this reign.
    pub(crate) fn terms_writes(&self) -> BoundWrites {
        let bound = self.bound();
        let terms = bound.as_ref().and_then(|bound| bound.terms());
        terms.map(DurableTerms::writes).unwrap_or_default()
    }
}

/// The facts of a reign beside its ledger.
struct ReignInfo<'a> {
    epoch: Epoch,
    bound: &'a Arc<DurableBound>,
}

impl ReignInfo<'_> {
    /// The bound, if it does not cover these leases, or others of the response may need it.
    fn bound_to_wait_for(&self, count: usize, grants: &[Grant]) -> Option<Arc<DurableBound>> {
        let waits = self.bound.require(grants).is_some() || grants.len() < count;
        waits.then(|| Arc::clone(self.bound))
    }

    /// The bound, if it does not have all terms.
    fn bound_without_terms(&self) -> Option<Arc<DurableBound>> {
        let has_new = self.bound.has_new_terms();
        has_new.then(|| Arc::clone(self.bound))
    }
}
