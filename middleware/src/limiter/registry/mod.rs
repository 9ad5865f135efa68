//! All limiters of the process, by resource.

mod local;
mod watchdog;

use std::{fmt, sync::Arc};

use arc_swap::ArcSwapOption;
use doorman_holder::SeenLimit;
use doorman_openapi::{Moment, ResourceId, Seen, Unit};
use tokio::sync::{mpsc::UnboundedSender, oneshot};

pub(crate) use self::watchdog::WorkerWatchdog;
use self::{
    local::{IdleScan, LocalRegistries},
    watchdog::GRACE,
};
use super::{
    CoolingUnits, LeaseState, Limiter, LimiterHandle, LimiterSettings, NamePrefix,
    RegisteredSettings, Shortage, TakenUnits,
    retention::{Freed, KeySlots, Purpose},
    store::{LimiterTable, Store},
};
use crate::{
    clock::Clock,
    meter::{LimitMeter, Meters},
    outcome::{Outcome, OutcomeReport},
    quota::Quota,
};

/// Where limiters get their [`LeaseState`] from.
pub(crate) enum Source {
    /// A worker leases for every limiter.
    Worker {
        nudges: UnboundedSender<Nudge>,
        watchdog: WorkerWatchdog,
        first_state: ArcSwapOption<FirstState>,
    },
    /// A function of the resource, without leases.
    Static(Box<dyn Fn(&ResourceId) -> LeaseState + Send + Sync>),
    /// A quota of this process for each key.
    Local { quota: Quota, idle: IdleScan },
}

/// The state of a limiter that the worker has not seen yet; `None` when its terms are unknown.
pub(crate) type FirstState =
    Box<dyn Fn(&ResourceId, Unit, Moment) -> Option<LeaseState> + Send + Sync>;

/// A message to the worker. The worker [clears](Limiter::clear_demand_signal) a limiter's shortage
/// only when the channel was just empty, returned units when it takes their message, and an overload
/// when it reports it. So the channel holds at most nine messages of one limiter, one overload for
/// each report, one message for each check that waits for another limiter, and one for each
/// overloaded request to a gauge.
#[derive(Debug)]
pub(crate) enum Nudge {
    New(LimiterHandle),
    Shortage(LimiterHandle, Shortage),
    /// The demand should be reported soon: units of a gauge were given back, of which more are in
    /// use than leased, or another demand was stated.
    Returned(LimiterHandle),
    /// A request was overloaded, the first one since the last report.
    Overloaded(LimiterHandle),
    /// Units of a gauge return after a pause.
    Cooling(CoolingUnits),
    /// The limiter has another unit than its resource. A check in the right one waits to hear
    /// whether the limiter is forgotten.
    OtherUnit(LimiterHandle, oneshot::Sender<bool>),
}

/// All limiters of the process, owned by the request path. The worker holds only the receiver of
/// the nudges, which closes when the registry is dropped, and limiters.
pub(crate) struct Registry {
    store: Arc<Store>,
    slots: KeySlots,
    source: Source,
    meters: Meters,
    locals: LocalRegistries,
}

impl Registry {
    /// `max_keys` bounds the limiters for keys, not those for resources named in code or rules.
    pub(crate) fn new(max_keys: usize, source: Source) -> Arc<Self> {
        let clock = match source {
            Source::Static(_) => Clock::Tokio,
            Source::Worker { .. } | Source::Local { .. } => Clock::Machine,
        };
        Self::with_clock(max_keys, source, clock)
    }

    fn with_clock(max_keys: usize, source: Source, clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            store: Store::new(max_keys, clock),
            slots: KeySlots::new(max_keys),
            source,
            meters: Meters::default(),
            locals: LocalRegistries::default(),
        })
    }

    /// Changes the state in which limiters are created, if a worker leases for them.
    pub(crate) fn set_first_state(
        &self,
        state: impl Fn(&ResourceId, Unit, Moment) -> Option<LeaseState> + Send + Sync + 'static,
    ) {
        if let Source::Worker { first_state, .. } = &self.source {
            first_state.store(Some(Arc::new(Box::new(state))));
        }
    }

    pub(crate) fn now(&self) -> Moment {
        self.store.clock.now()
    }

    /// The time, or a little less: cheaper to read.
    #[inline]
    pub(crate) fn coarse_now(&self) -> Moment {
        self.store.clock.coarse_now()
    }

    /// Its limiters.
    pub(crate) fn table(&self) -> LimiterTable {
        LimiterTable::of(&self.store)
    }

    /// Gives settings the number by which limiters refer to them.
    pub(crate) fn register(&self, settings: &Arc<LimiterSettings>) -> RegisteredSettings {
        self.store.register(settings)
    }

    /// The limiter of a key that is a prefix and an unreserved value; `None` if it is not known.
    #[expect(
        clippy::inline_always,
        reason = "measured: the words stay in registers"
    )]
    #[inline(always)]
    pub(crate) fn find_value(&self, prefix: &NamePrefix, value: &[u8]) -> Option<Limiter<'_>> {
        self.store.find_value(prefix, value)
    }

    /// The limiter of a key, or that of `overflow` when the key is new and no slot is free.
    /// `settings` apply to a new limiter only.
    pub(crate) fn keyed(
        &self,
        resource: &[u8],
        settings: &RegisteredSettings,
        overflow: &ResourceId,
    ) -> Limiter<'_> {
        let own = self.find_or_create(resource, settings);
        own.unwrap_or_else(|| self.overflow(overflow, settings))
    }

    /// `None` when the key is new and no slot is free.
    pub(super) fn find_or_create(
        &self,
        resource: &[u8],
        settings: &RegisteredSettings,
    ) -> Option<Limiter<'_>> {
        let known = self.store.find(resource);
        known.or_else(|| self.create_keyed(resource, settings))
    }

    #[cold]
    fn create_keyed(&self, resource: &[u8], settings: &RegisteredSettings) -> Option<Limiter<'_>> {
        let resource = ResourceId::new(str::from_utf8(resource).ok()?).ok()?;
        let now = self.now();
        self.forget_idle(now);
        if !self.acquire_slot() {
            return None;
        }
        self.create(&resource, settings, Purpose::Key, now)
    }

    /// The limiter shared by the keys without a slot.
    #[cold]
    fn overflow(&self, resource: &ResourceId, settings: &RegisteredSettings) -> Limiter<'_> {
        let known = self.store.find(resource.as_str().as_bytes());
        known.unwrap_or_else(|| self.named(resource, settings, Purpose::Overflow, self.now()))
    }

    /// The limiter of a resource named in code, which stays as long as the result.
    pub(crate) fn pin_for_code(
        &self,
        resource: &ResourceId,
        settings: &RegisteredSettings,
        now: Moment,
    ) -> PinnedLimiter {
        PinnedLimiter(self.pin(resource, settings, Purpose::Code, now))
    }

    /// The limiter of a resource named in a rule, which stays until [`unpin`](Self::unpin). Only
    /// for the worker: concurrent callers could unpin each other's limiters.
    pub(crate) fn pin_for_rule(
        &self,
        resource: &ResourceId,
        settings: &RegisteredSettings,
    ) -> LimiterHandle {
        self.pin(resource, settings, Purpose::Rule, self.now())
    }

    /// No rule names the resource any more.
    pub(crate) fn unpin(&self, limiter: Limiter<'_>) {
        limiter.record.retention.unpin_rule();
    }

    fn pin(
        &self,
        resource: &ResourceId,
        settings: &RegisteredSettings,
        purpose: Purpose,
        now: Moment,
    ) -> LimiterHandle {
        loop {
            let limiter = self.named(resource, settings, purpose, now);
            // No record is reused while the store is locked.
            let undisturbed = self.store.lock();
            let current = limiter.is_current();
            let freed = current.then(|| limiter.record.retention.pin(purpose));
            drop(undisturbed);
            if let Some(freed) = freed.flatten() {
                self.release(freed);
                return limiter.handle();
            }
            // Another thread is removing it.
            std::hint::spin_loop();
        }
    }

    /// The limiter of a resource that needs no slot.
    fn named(
        &self,
        resource: &ResourceId,
        settings: &RegisteredSettings,
        purpose: Purpose,
        now: Moment,
    ) -> Limiter<'_> {
        let created = self.create(resource, settings, purpose, now);
        created.unwrap_or_else(|| self.store.spare())
    }

    /// The limiter of a resource, created if there is none. `None` when there is no room.
    fn create(
        &self,
        resource: &ResourceId,
        settings: &RegisteredSettings,
        purpose: Purpose,
        now: Moment,
    ) -> Option<Limiter<'_>> {
        let state = self.first_state(resource, settings.settings.unit, now);
        let begin = |limiter: Limiter<'_>, writer: &mut _| {
            if let Some(state) = state {
                limiter.publish_locked(state, None, writer, now);
            }
        };
        let created = self
            .store
            .get_or_create(resource, settings, purpose, begin, now);
        let (limiter, is_new) = match created {
            Some((limiter, is_new)) => (Some(limiter), is_new),
            None => (None, false),
        };
        if !is_new && purpose == Purpose::Key {
            self.release(Freed::KeySlot);
        }
        let limiter = limiter?;
        match &self.source {
            Source::Worker { nudges, .. } if is_new => {
                // Without a worker the fallback applies.
                nudges.send(Nudge::New(limiter.handle())).ok();
            }
            Source::Local { idle, .. } if is_new && purpose == Purpose::Key => idle.add(limiter),
            Source::Worker { .. } | Source::Static(_) | Source::Local { .. } => {}
        }
        Some(limiter)
    }

    /// The state in which a limiter begins.
    fn first_state(&self, resource: &ResourceId, unit: Unit, now: Moment) -> Option<LeaseState> {
        match &self.source {
            Source::Static(state) => Some(state(resource)),
            Source::Local { quota, .. } => Some(LeaseState::Local(*quota)),
            Source::Worker {
                nudges,
                first_state,
                ..
            } => {
                let first_state = first_state.load();
                let mut state = first_state.as_deref()?(resource, unit, now)?;
                if let LeaseState::NoLease { awaits_answer, .. } = &mut state {
                    *awaits_answer &= !nudges.is_closed();
                }
                Some(state)
            }
        }
    }

    fn acquire_slot(&self) -> bool {
        let acquired = self.slots.acquire();
        if acquired {
            self.meters.add_key();
        }
        acquired
    }

    fn release(&self, freed: Freed) {
        if freed == Freed::KeySlot {
            self.slots.release();
            self.meters.remove_keys(1);
        }
    }

    /// Removes a limiter, unless it is pinned or a request waits. Returns whether it did.
    pub(crate) fn forget(&self, limiter: Limiter<'_>) -> bool {
        let freed = self.store.forget(limiter);
        if let Some(freed) = freed {
            self.release(freed);
        }
        freed.is_some()
    }

    pub(crate) fn meter(&self, limit: &Arc<str>) -> LimitMeter {
        self.meters.limit(limit)
    }

    /// All limiters but those of local limits.
    pub(crate) fn limiters(&self) -> Vec<Limiter<'_>> {
        self.store.limiters()
    }

    pub(crate) fn local_limiters(&self) -> Vec<LimiterHandle> {
        let locals = self.locals.all();
        let limiters = locals.iter().flat_map(|local| local.limiters());
        limiters.map(Limiter::handle).collect()
    }

    /// Wakes a limiter whose lease was given up, before a request waits for the next one.
    pub(crate) fn wake(&self, limiter: Limiter<'_>, now: Moment) {
        if limiter.wake(now) {
            self.record_attempt(limiter, Some(Shortage::RunningLow), now);
        }
    }

    /// Signals a shortage to the worker, or logs that no worker runs.
    #[expect(
        clippy::inline_always,
        reason = "measured: nearly every request has no shortage"
    )]
    #[inline(always)]
    pub(crate) fn record_attempt(
        &self,
        limiter: Limiter<'_>,
        shortage: Option<Shortage>,
        now: Moment,
    ) {
        if let Source::Worker {
            nudges, watchdog, ..
        } = &self.source
        {
            watchdog.check(now);
            if let Some(shortage) = shortage {
                signal(nudges, limiter, shortage);
            }
        }
    }

    /// Gives units of a gauge back. Signals it to the worker, if more are in use than leased.
    pub(crate) fn give_back(&self, limiter: &LimiterHandle, units: &TakenUnits) {
        let is_overused = limiter.get().give_back(units);
        if is_overused {
            self.report_soon(limiter.get());
        }
    }

    /// The limiter with a number and a generation. It may be forgotten.
    #[inline]
    pub(crate) fn limiter(&self, number: u32, generation: u16) -> Limiter<'_> {
        self.store.limiter(number, generation)
    }

    /// The limiter of a resource, if there is one.
    pub(crate) fn find(&self, resource: &ResourceId) -> Option<Limiter<'_>> {
        self.store.find(resource.as_str().as_bytes())
    }

    /// Counts outcomes of requests that a limiter admitted. Signals an overload to the worker, if
    /// that is to hear of it.
    #[inline]
    pub(crate) fn count_outcome(&self, limiter: Limiter<'_>, outcome: Outcome, count: u64) {
        if limiter.count_outcome(outcome, count)
            && let Source::Worker { nudges, .. } = &self.source
        {
            nudges.send(Nudge::Overloaded(limiter.handle())).ok();
        }
    }

    /// Counts outcomes, and takes what the target told with them.
    pub(crate) fn record_outcomes(
        &self,
        limiter: Limiter<'_>,
        report: &OutcomeReport,
        now: Moment,
    ) {
        Self::note_target(limiter, report, now);
        self.count_outcome(limiter, report.outcome, report.count);
    }

    /// Takes what the target told.
    pub(crate) fn note_target(limiter: Limiter<'_>, report: &OutcomeReport, now: Moment) {
        let OutcomeReport {
            outcome,
            pause,
            seen,
            ..
        } = *report;
        if outcome == Outcome::Overloaded
            && let Some(pause) = pause
        {
            limiter.pause_until(now.after(pause));
        }
        if let Some(Seen { remaining, reset }) = seen {
            limiter.see(&SeenLimit {
                remaining,
                whole_at: now.after(reset.duration()),
            });
        }
    }

    /// Counts a request to a gauge that ended `ok`, and its units times the seconds of its use.
    pub(crate) fn count_ok_units(&self, limiter: Limiter<'_>, unit_seconds: f64) {
        limiter.add_ok_seconds(unit_seconds);
        self.count_outcome(limiter, Outcome::Ok, 1);
    }

    /// Gives units of a gauge back after a pause, if a worker runs, and else at once.
    pub(crate) fn cool_down(&self, limiter: LimiterHandle, units: TakenUnits) {
        let units = CoolingUnits::new(limiter, units);
        if let Source::Worker { nudges, .. } = &self.source {
            // Those of a message that nobody receives return at once.
            nudges.send(Nudge::Cooling(units)).ok();
        }
    }

    /// Lets the worker report a changed demand, if it has not been told so yet.
    pub(crate) fn report_demand(&self, limiter: Limiter<'_>) {
        self.wake(limiter, self.now());
        self.report_soon(limiter);
    }

    fn report_soon(&self, limiter: Limiter<'_>) {
        if let Source::Worker { nudges, .. } = &self.source
            && limiter.record.demand.raise_returned()
        {
            nudges.send(Nudge::Returned(limiter.handle())).ok();
        }
    }

    /// Lets the worker forget a limiter in another unit than its resource, so that the next check
    /// begins another. False if it stays, because requests wait or units are in use; `None` if it
    /// stays for ever.
    pub(crate) async fn forget_in_other_unit(&self, limiter: Limiter<'_>) -> Option<bool> {
        let Source::Worker { nudges, .. } = &self.source else {
            return None;
        };
        if limiter.is_permanent() {
            return None;
        }
        let (done, is_forgotten) = oneshot::channel();
        nudges.send(Nudge::OtherUnit(limiter.handle(), done)).ok()?;
        is_forgotten.await.ok()
    }

    /// Resolves when no lease can come: the worker has ended, or there is none.
    pub(crate) async fn no_lease_can_come(&self) {
        match &self.source {
            Source::Worker {
                nudges, watchdog, ..
            } => {
                // A waiting request makes only one attempt: check the worker once more.
                tokio::select! {
                    biased;
                    () = nudges.closed() => return,
                    () = tokio::time::sleep(GRACE) => watchdog.check(self.now()),
                }
                nudges.closed().await;
            }
            Source::Static(_) | Source::Local { .. } => {}
        }
    }
}

/// A limiter that is not forgotten before this is dropped.
#[derive(Debug)]
#[must_use = "the limiter may be forgotten when this is dropped"]
pub(crate) struct PinnedLimiter(LimiterHandle);

impl PinnedLimiter {
    pub(crate) fn limiter(&self) -> &LimiterHandle {
        &self.0
    }
}

impl Drop for PinnedLimiter {
    fn drop(&mut self) {
        self.0.get().record.retention.unpin_code();
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.meters.remove_keys(self.slots.used());
    }
}

#[inline(never)]
fn signal(nudges: &UnboundedSender<Nudge>, limiter: Limiter<'_>, shortage: Shortage) {
    if limiter.record.demand.raise(shortage) {
        let nudge = Nudge::Shortage(limiter.handle(), shortage);
        nudges.send(nudge).ok();
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("slots", &self.slots)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
