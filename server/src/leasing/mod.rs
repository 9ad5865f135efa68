//! The ledger behind one lock, shared by requests, readers and the sweeper.
//!
//! The lock is held for a bounded number of steps: long requests are decided in parts. Responses
//! report a lease only as far as the [`DurableBound`] covers it.

mod bound;
mod polls;
pub(crate) mod sweeper;

use std::{
    sync::{
        Arc, Mutex, TryLockError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use doorman_openapi::Moment;
use tokio::sync::Notify;

use self::polls::Polls;
pub(crate) use self::{
    bound::{BoundWrites, DurableBound},
    polls::PollEnd,
};
use crate::{
    ledger::{Grant, Ledger, ReleaseProgress, RenewalCheck},
    util::clock,
};

/// How long a reader sleeps while others wait for the lock: long enough for one to wake up.
const YIELD: Duration = Duration::from_millis(1);

/// A panic interrupted a change of the ledger, so no decision can be based on it any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LedgerPoisoned;

/// The ledger with its lock, and the bound that every reported lease stays within.
#[derive(Debug)]
pub(crate) struct SharedLedger {
    ledger: Mutex<Ledger>,
    /// Threads that wait for the lock.
    waiting: AtomicUsize,
    bound: Arc<DurableBound>,
    polls: Polls,
    /// When the ledger is swept next, in nanoseconds on the clock. Changed under the lock.
    next_sweep: AtomicU64,
    /// When learning mode ends, in nanoseconds on the clock. At most a second old.
    learning_until: AtomicU64,
    sweep_sooner: Notify,
}

impl SharedLedger {
    pub(crate) fn new(ledger: Ledger, bound: Arc<DurableBound>) -> Self {
        Self {
            learning_until: AtomicU64::new(ledger.learning_until().as_nanos()),
            ledger: Mutex::new(ledger),
            waiting: AtomicUsize::new(0),
            bound,
            polls: Polls::new(usize::MAX),
            next_sweep: AtomicU64::new(u64::MAX),
            sweep_sooner: Notify::new(),
        }
    }

    /// Sets the most open polls. Beyond it the oldest ends.
    pub(crate) fn with_max_polls(self, limit: usize) -> Self {
        let polls = Polls::new(limit);
        Self { polls, ..self }
    }

    /// Runs `operation` under the lock, and answers the polls that it has hints for. The clock is
    /// read under the lock too, so time never goes back.
    pub(crate) fn with<T>(
        &self,
        operation: impl FnOnce(&mut Ledger, Moment) -> T,
    ) -> Result<T, LedgerPoisoned> {
        let mut ledger = match self.ledger.try_lock() {
            Ok(ledger) => ledger,
            Err(TryLockError::Poisoned(_)) => return Err(LedgerPoisoned),
            Err(TryLockError::WouldBlock) => {
                self.waiting.fetch_add(1, Ordering::Relaxed);
                let ledger = self.ledger.lock();
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                ledger.map_err(|_| LedgerPoisoned)?
            }
        };
        let now = clock::now();
        let result = operation(&mut ledger, now);
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
        drop(ledger);
        self.polls.answer(hints);
        Ok(result)
    }

    /// Decides on `count` leases, and returns them shortened to what the bound covers. `decide`
    /// decides a bounded number of them, from an index on.
    ///
    /// # Cancel safety
    /// Decided leases stay booked until they expire, as if the response had been lost.
    pub(crate) async fn grant(
        &self,
        count: usize,
        mut decide: impl FnMut(&mut Ledger, usize, Moment) -> Vec<Grant>,
    ) -> Result<Vec<Grant>, LedgerPoisoned> {
        let (mut granted, handled) = self.with(|ledger, now| (decide(ledger, 0, now), now))?;
        while granted.len() < count {
            tokio::task::yield_now().await;
            let mut part = self.with(|ledger, now| decide(ledger, granted.len(), now))?;
            granted.append(&mut part);
        }
        // The time of the first part: no booking may seem shorter than it is.
        Ok(self.bound.cover(granted, handled).await)
    }

    /// Releases leases. Returns the numbers of visited resources and released leases.
    /// `release_part` releases a bounded number, from an index on.
    ///
    /// # Cancel safety
    /// Leases that were not released yet expire.
    pub(crate) async fn release(
        &self,
        mut release_part: impl FnMut(&mut Ledger, usize, Moment) -> ReleaseProgress,
    ) -> Result<ReleaseProgress, LedgerPoisoned> {
        let mut total = ReleaseProgress::default();
        let mut from = 0;
        loop {
            let part = self.with(|ledger, now| release_part(ledger, from, now))?;
            total.scanned = total.scanned.saturating_add(part.scanned);
            total.released = total.released.saturating_add(part.released);
            match part.next {
                Some(next) => from = next,
                None => return Ok(total),
            }
            tokio::task::yield_now().await;
        }
    }

    /// Whether a request only renews. `check_part` checks a bounded number of
    /// resources, from an index on.
    pub(crate) async fn renews(
        &self,
        check_part: impl Fn(&Ledger, usize, Moment) -> RenewalCheck,
    ) -> Result<bool, LedgerPoisoned> {
        let mut from = 0;
        loop {
            match self.with(|ledger, now| check_part(ledger, from, now))? {
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
        self.ledger.is_poisoned()
    }

    pub(crate) fn bound(&self) -> &DurableBound {
        &self.bound
    }
}
