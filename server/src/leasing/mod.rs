//! The machine of this server ([`Master`]) behind one lock, shared by requests, readers, the
//! election, the task that asks the parent, and the sweeper.
//!
//! Every use reads the clock under the lock, which is held for a bounded number of steps: long
//! requests are decided in parts. Requests and polls wait here for effects of the state machine.

mod polls;
pub(crate) mod sweeper;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use doorman_config::Document;
use doorman_core::{
    election::ReignEffect,
    ledger::{LeaseCall, Ledger, ReleaseCall, ReleasePosition, RenewalCheck},
    master::{Applied, Effect, Granted, Master, NotGranted, Progress, RequestId},
    reign::{Bound, BoundWrites, DueTerms, DurableTerms, Reign},
    upstream::{self, ParentLink, Upstream},
};
use doorman_openapi::{Epoch, Moment, ResourceId, Seconds};
use tokio::sync::{Notify, oneshot};

use self::polls::Polls;
pub(crate) use self::polls::{OpenPoll, PollEnd};
use crate::util::clock;

/// How long a reader sleeps while others wait for the lock: long enough for one to wake up.
const YIELD: Duration = Duration::from_millis(1);

/// The shortest sleep of a request that waits: the clock may be behind the timers.
const MIN_SLEEP: Duration = Duration::from_millis(1);

/// Why the ledger cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LedgerUnavailable {
    /// This server is not master.
    NotMaster,
    /// A panic interrupted a change of the ledger, so no decision can be based on it any more.
    Poisoned,
}

/// The machine of this server behind its lock.
#[derive(Debug)]
pub(crate) struct SharedLedger {
    master: Mutex<Master>,
    /// Threads that wait for the lock.
    waiting: AtomicUsize,
    polls: Polls,
    /// Requests that wait for the parent or the bound.
    requests: Mutex<HashMap<RequestId, oneshot::Sender<Progress>>>,
    /// When the ledger is swept next, in nanoseconds on the clock. Changed under the lock.
    next_sweep: AtomicU64,
    /// When learning mode ends, in nanoseconds on the clock. At most a second old.
    learning_until: AtomicU64,
    /// When the reign ends, in nanoseconds on the clock; 0 without one.
    deadline: AtomicU64,
    sweep_sooner: Notify,
    /// A response needs a bound that is not durable yet.
    pub(crate) bound_urgent: Notify,
    /// There are updates for the parent, or a reign has begun.
    pub(crate) parent_updates: Notify,
}

impl SharedLedger {
    /// Begins without a reign. Beyond `max_polls` open polls the oldest ends.
    pub(crate) fn new(master: Master, max_polls: usize) -> Self {
        Self {
            master: Mutex::new(master),
            waiting: AtomicUsize::new(0),
            polls: Polls::new(max_polls),
            requests: Mutex::default(),
            next_sweep: AtomicU64::new(u64::MAX),
            learning_until: AtomicU64::new(0),
            deadline: AtomicU64::new(0),
            sweep_sooner: Notify::new(),
            bound_urgent: Notify::new(),
            parent_updates: Notify::new(),
        }
    }

    /// A server with this document.
    #[cfg(test)]
    pub(crate) fn with_document(document: Arc<Document>) -> Self {
        let settings = doorman_core::master::MasterSettings {
            max_leases: 10,
            unmatched: doorman_core::ledger::UnmatchedPolicy::Grant,
            logs_usage: false,
            longest: Seconds::ZERO,
            tuning: &doorman_core::ledger::Tuning::DEFAULT,
        };
        Self::new(Master::new(settings, document), usize::MAX)
    }

    /// Leases the capacity from a parent node, from the next reign on.
    pub(crate) fn lease_from(&self, parent: ParentLink) {
        // After a panic there is no next reign.
        self.locked(|master, _| master.lease_from(parent)).ok();
    }

    /// Applies an effect of the election. After a panic reigns end, but none begins.
    pub(crate) fn apply(&self, effect: ReignEffect) -> Applied {
        let reason = match &effect {
            ReignEffect::End(reason) => Some(*reason),
            _ => None,
        };
        let applied = self.locked(|master, now| {
            let applied = master.apply(effect, now);
            self.note_deadline(master);
            if let Applied::Began(_) = applied {
                self.on_begin(master, now);
            }
            applied
        });
        let applied = applied.unwrap_or_else(|_| match reason {
            Some(reason) => Applied::Ended {
                reason,
                reign: None,
            },
            None => Applied::Done,
        });
        if let Applied::Ended { .. } = applied {
            self.on_end();
        }
        applied
    }

    /// Ends the reign, and all polls. `None` without one, or after a panic.
    pub(crate) fn end(&self) -> Option<Box<Reign>> {
        let reign = self.locked(|master, _| master.end());
        self.on_end();
        reign.ok()?
    }

    fn on_end(&self) {
        self.deadline.store(0, Ordering::Relaxed);
        self.learning_until.store(0, Ordering::Relaxed);
        self.polls.set_leaving(true);
    }

    fn note_deadline(&self, master: &Master) {
        let deadline = master.reign().map_or(Moment::ORIGIN, Reign::deadline);
        self.deadline.store(deadline.as_nanos(), Ordering::Relaxed);
    }

    fn on_begin(&self, master: &mut Master, now: Moment) {
        let ledger = master.ledger(now);
        let learning_until = ledger.map_or(Moment::ORIGIN, |it| it.learning_until());
        self.learning_until
            .store(learning_until.as_nanos(), Ordering::Relaxed);
        self.polls.set_leaving(false);
        self.sweep_sooner.notify_one();
        self.parent_updates.notify_one();
    }

    /// Begins a reign.
    #[cfg(test)]
    pub(crate) fn begin(&self, reign: Reign) {
        let begun = self.locked(|master, now| {
            drop(master.install(reign));
            self.note_deadline(master);
            self.on_begin(master, now);
        });
        begun.unwrap();
    }

    /// Whether this server is master now. A decision compares the time again.
    pub(crate) fn is_master(&self) -> bool {
        let deadline = self.deadline.load(Ordering::Relaxed);
        // The only server of a node needs no clock.
        deadline == Moment::NEVER.as_nanos() || clock::now().as_nanos() < deadline
    }

    /// Runs `operation` on the ledger under the lock, and answers the polls that it has hints for.
    pub(crate) fn with<T>(
        &self,
        operation: impl FnOnce(&mut Ledger, Moment) -> T,
    ) -> Result<T, LedgerUnavailable> {
        let done = self.locked(|master, now| Some(operation(master.ledger(now)?, now)))?;
        done.ok_or(LedgerUnavailable::NotMaster)
    }

    /// As [`with`](Self::with), for a reader that needs the bound, too.
    pub(crate) fn with_bound<T>(
        &self,
        operation: impl FnOnce(&Ledger, Moment, Moment) -> T,
    ) -> Result<T, LedgerUnavailable> {
        let done = self.locked(|master, now| {
            let bound = master.reign()?.bound().get();
            Some(operation(master.ledger(now)?, bound, now))
        })?;
        done.ok_or(LedgerUnavailable::NotMaster)
    }

    /// Runs `operation` under the lock, and executes the effects. The clock is read under the lock,
    /// too, so time never goes back, and a server that was stopped finds that its reign is over.
    fn locked<T>(
        &self,
        operation: impl FnOnce(&mut Master, Moment) -> T,
    ) -> Result<T, LedgerUnavailable> {
        let mut master = match self.master.try_lock() {
            Ok(master) => master,
            Err(TryLockError::Poisoned(_)) => return Err(LedgerUnavailable::Poisoned),
            Err(TryLockError::WouldBlock) => {
                self.waiting.fetch_add(1, Ordering::Relaxed);
                let master = self.master.lock();
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                master.map_err(|_| LedgerUnavailable::Poisoned)?
            }
        };
        let now = clock::now();
        let result = operation(&mut master, now);
        if master.wake_at() <= now {
            master.tick(now);
            if master.wake_at() <= now {
                // The rest goes on in turns of the sweeper.
                self.sweep_sooner.notify_one();
            }
        }
        let effects = master.settle(now);
        let mut has_updates = false;
        if let Some(ledger) = master.ledger(now) {
            let due = ledger.work_due().unwrap_or(Moment::NEVER).as_nanos();
            if due < self.next_sweep.load(Ordering::Relaxed) {
                self.next_sweep.store(due, Ordering::Relaxed);
                self.sweep_sooner.notify_one();
            }
            has_updates = ledger.has_parent_updates();
        }
        drop(master);
        if !effects.is_empty() {
            self.execute(effects);
        }
        if has_updates {
            self.parent_updates.notify_one();
        }
        Ok(result)
    }

    fn execute(&self, effects: Vec<Effect>) {
        let mut hints = Vec::new();
        for effect in effects {
            match effect {
                Effect::Resume { id, progress } => {
                    let waiting = self.requests().remove(&id);
                    // Its caller may have gone.
                    waiting.map(|it| it.send(progress));
                }
                Effect::Hints { poll, batch } => hints.push((poll, batch)),
                Effect::BoundUrgent => self.bound_urgent.notify_one(),
            }
        }
        self.polls.answer(hints);
    }

    fn requests(&self) -> MutexGuard<'_, HashMap<RequestId, oneshot::Sender<Progress>>> {
        // Every statement leaves it usable.
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bound and the terms that storage is to write now; `None` without a reign.
    pub(crate) fn due(&self) -> Option<(Option<Bound>, Option<DueTerms>)> {
        let due = self.locked(|master, now| {
            master.reign()?;
            Some((master.due_bound(), master.due_terms(now)))
        });
        due.ok()?
    }

    /// The longest lease that earlier masters may have granted, as far as this server knows; zero
    /// after a panic.
    pub(crate) fn longest_lease(&self) -> Seconds {
        let longest = self.locked(|master, _| master.longest_lease());
        longest.unwrap_or(Seconds::ZERO)
    }

    /// An empty ledger, to restore that of the last master into. `None` after a panic.
    pub(crate) fn new_ledger(&self, epoch: Epoch) -> Option<Ledger> {
        let ledger = self.locked(|master, now| master.new_ledger(epoch, now));
        ledger.ok()
    }

    /// Gives the ledger of the last master, with the end of its latest lease, to the reign that
    /// begins next. Returns one that was not used.
    pub(crate) fn inherit(
        &self,
        ledger: Option<(Ledger, Moment)>,
    ) -> Option<(Box<Ledger>, Moment)> {
        self.locked(|master, _| master.inherit(ledger)).ok()?
    }

    /// Puts a document in force. Returns the one before.
    pub(crate) fn reconfigure(
        &self,
        document: &Arc<Document>,
    ) -> Result<Arc<Document>, LedgerUnavailable> {
        self.locked(|master, _| master.reconfigure(document))
    }

    /// Decides on the leases of a call, after the parent node has been asked, and returns them
    /// shortened to what the bound covers.
    ///
    /// # Errors
    /// [`LedgerUnavailable`] after a panic; [`NotGranted`] if the server is not master, or no lease
    /// can be reported.
    ///
    /// # Cancel safety
    /// Decided leases stay booked until they expire, as if the response had been lost.
    pub(crate) async fn lease(
        &self,
        call: LeaseCall,
    ) -> Result<Result<Granted, NotGranted>, LedgerUnavailable> {
        let (mut progress, mut resumed) = self.go_on(|master, now| master.request(call, now))?;
        loop {
            match (progress, resumed.take()) {
                (Progress::Done(outcome), _) => return Ok(outcome),
                (Progress::Again(request), _) => {
                    tokio::task::yield_now().await;
                    let proceed = |master: &mut Master, now| master.proceed(request, now);
                    (progress, resumed) = self.go_on(proceed)?;
                }
                (Progress::Waits(id), Some(waits)) => progress = self.resumed(id, waits).await?,
                // What resumes does not wait.
                (Progress::Waits(_), None) => return Err(LedgerUnavailable::NotMaster),
            }
        }
    }

    /// Goes on with a request. If it waits, the receiver gets how it goes on.
    fn go_on(
        &self,
        step: impl FnOnce(&mut Master, Moment) -> Progress,
    ) -> Result<(Progress, Option<oneshot::Receiver<Progress>>), LedgerUnavailable> {
        self.locked(|master, now| {
            let progress = step(master, now);
            let Progress::Waits(id) = &progress else {
                return (progress, None);
            };
            let (sender, resumed) = oneshot::channel();
            // Under the lock, so that it does not go on before.
            self.requests().insert(*id, sender);
            (progress, Some(resumed))
        })
    }

    /// Waits until a request goes on, and lets the machine see the time at which it must.
    async fn resumed(
        &self,
        id: RequestId,
        mut resumed: oneshot::Receiver<Progress>,
    ) -> Result<Progress, LedgerUnavailable> {
        let _waiting = WaitingRequest { ledger: self, id };
        loop {
            let until = self.locked(|master, now| Some(master.waits_until(id)?.since(now)))?;
            // Without an end it goes on already.
            let pause = until.unwrap_or(MIN_SLEEP).max(MIN_SLEEP);
            tokio::select! {
                progress = &mut resumed => {
                    // The sender is dropped by an answer only.
                    return progress.map_err(|_| LedgerUnavailable::NotMaster);
                }
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Tells the state machine around the parent an event of the reign `known`, or that another
    /// reign has begun. Returns the epoch of the reign.
    pub(crate) fn tell_upstream(
        &self,
        known: Option<Epoch>,
        event: upstream::Event,
    ) -> Result<(Epoch, Vec<upstream::Effect>), LedgerUnavailable> {
        let told = self.locked(|master, now| {
            let epoch = master.current(now)?.epoch();
            // An event of an earlier reign has no request in this one.
            let event = if known == Some(epoch) {
                event
            } else {
                upstream::Event::Wake
            };
            Some((epoch, master.tell_upstream(epoch, event, now)?))
        })?;
        told.ok_or(LedgerUnavailable::NotMaster)
    }

    /// Reads the state machine around the parent; `None` without one, and after the deadline.
    pub(crate) fn upstream<T>(&self, read: impl FnOnce(&Upstream, Moment) -> T) -> Option<T> {
        let read = self.locked(|master, now| {
            master.current(now)?;
            Some(read(master.upstream()?, now))
        });
        read.ok()?
    }

    /// Releases leases, and returns how many. Resources that are not `allowed` stay. `charge` is
    /// called with the number of resources that each part examined.
    ///
    /// # Cancel safety
    /// Leases that were not released yet expire.
    pub(crate) async fn release(
        &self,
        call: &ReleaseCall,
        allowed: &(dyn Fn(&ResourceId) -> bool + Sync),
        mut charge: impl FnMut(usize),
    ) -> Result<usize, LedgerUnavailable> {
        let mut released: usize = 0;
        let mut from = ReleasePosition::default();
        loop {
            let part = self.with(|ledger, now| ledger.release_part(call, allowed, from, now))?;
            charge(part.scanned);
            released = released.saturating_add(part.released);
            match part.next {
                Some(next) => from = next,
                None => return Ok(released),
            }
            tokio::task::yield_now().await;
        }
    }

    /// Whether the holder has a lease on every resource of the call. In learning mode it has what
    /// it claims.
    ///
    /// # Cancel safety
    /// Nothing changes.
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
        self.master.is_poisoned()
    }

    /// The writes of the bound, and those of the terms of leases, in this reign.
    pub(crate) fn writes(&self) -> [BoundWrites; 2] {
        let writes = self.locked(|master, _| {
            let bound = master.reign()?.bound();
            let terms = bound.terms().map(DurableTerms::writes);
            Some([bound.writes(), terms.unwrap_or_default()])
        });
        writes.ok().flatten().unwrap_or_default()
    }
}

/// A request that waits. It is withdrawn if its caller goes.
struct WaitingRequest<'a> {
    ledger: &'a SharedLedger,
    id: RequestId,
}

impl Drop for WaitingRequest<'_> {
    fn drop(&mut self) {
        // A request that goes on is not in the map any more.
        let is_withdrawn = self.ledger.requests().remove(&self.id).is_some();
        if is_withdrawn {
            // After a panic there is nothing to withdraw from.
            self.ledger
                .locked(|master, _| master.withdraw(self.id))
                .ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use doorman_core::election::EndReason;

    use super::*;

    #[test]
    fn after_a_panic_the_election_goes_on_and_reigns_only_end() {
        let ledger = SharedLedger::with_document(Arc::new(Document::built_in()));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            ledger.locked(|_, _| panic!("on purpose")).ok();
        }));
        assert!(panicked.is_err() && ledger.is_poisoned());
        let ended = ledger.apply(ReignEffect::End(EndReason::Resigned));
        assert!(matches!(ended, Applied::Ended { reign: None, .. }));
        let extended = ledger.apply(ReignEffect::Extend(Moment::NEVER));
        assert!(matches!(extended, Applied::Done));
        assert!(!ledger.is_master());
    }

    #[tokio::test(start_paused = true)]
    async fn request_whose_caller_goes_is_withdrawn() {
        let document = Arc::new(Document::built_in());
        let ledger = SharedLedger::with_document(Arc::clone(&document));
        let empty = ledger.new_ledger(Epoch::ZERO).unwrap();
        let bound = doorman_core::reign::DurableBound::new(Moment::ORIGIN, 0);
        ledger.begin(Reign::new(Epoch::ZERO, Moment::NEVER, empty, bound));
        let request = r#"{"client_id":"c","resources":[{"resource_id":"db","wants":5}]}"#;
        let request: doorman_openapi::CapacityRequest = serde_json::from_str(request).unwrap();
        let waits = ledger.lease(request.into());
        let elapsed = tokio::time::timeout(Duration::from_millis(100), waits).await;
        assert!(elapsed.is_err(), "it waits for the bound");
        assert!(ledger.requests().is_empty());
        let wakes = ledger.locked(|master, _| master.wake_at());
        assert_eq!(wakes, Ok(Moment::NEVER));
    }
}
