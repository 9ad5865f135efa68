//! All limiters of the process, by resource.

mod local;
mod name;
mod watchdog;

use std::{cell::OnceCell, fmt, sync::Arc};

use arc_swap::ArcSwapOption;
use doorman_openapi::{Moment, ResourceId};
use foldhash::fast::RandomState;
use papaya::{HashMap, HashMapRef, LocalGuard};
use tokio::sync::mpsc::UnboundedSender;

pub(crate) use self::watchdog::WorkerWatchdog;
use self::{
    local::{IdleScan, LocalRegistries},
    name::Name,
    watchdog::GRACE,
};
use super::{
    LeaseState, Limiter, LimiterSettings, Shortage,
    retention::{Freed, KeySlots, Purpose},
};
use crate::{
    Quota, clock,
    meter::{LimitMeter, Meters},
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
pub(crate) type FirstState = Box<dyn Fn(&ResourceId) -> Option<LeaseState> + Send + Sync>;

/// A message to the worker. The worker [clears](Limiter::clear_demand_signal) a limiter's signal
/// only when the channel was just empty, which thus holds at most five messages of one limiter.
#[derive(Debug, Clone)]
pub(crate) enum Nudge {
    New(Arc<Limiter>),
    Shortage(Arc<Limiter>, Shortage),
}

/// All limiters of the process, owned by the request path. The worker holds only the receiver of
/// the nudges, which closes when the registry is dropped.
pub(crate) struct Registry {
    /// The map stores names inline, to compare a name without loading its limiter.
    limiters: HashMap<Name, Arc<Limiter>, RandomState>,
    slots: KeySlots,
    source: Source,
    meters: Meters,
    locals: LocalRegistries,
}

impl Registry {
    /// `max_keys` bounds the limiters for keys, not those for resources named in code or rules.
    pub(crate) fn new(max_keys: usize, source: Source) -> Arc<Self> {
        Arc::new(Self {
            limiters: HashMap::with_hasher(RandomState::default()),
            slots: KeySlots::new(max_keys),
            source,
            meters: Meters::default(),
            locals: LocalRegistries::default(),
        })
    }

    /// Changes the state in which limiters are created, if a worker leases for them.
    pub(crate) fn set_first_state(
        &self,
        state: impl Fn(&ResourceId) -> Option<LeaseState> + Send + Sync + 'static,
    ) {
        if let Source::Worker { first_state, .. } = &self.source {
            first_state.store(Some(Arc::new(Box::new(state))));
        }
    }

    pub(crate) fn lookup(&self) -> RegistryLookup<'_> {
        RegistryLookup {
            registry: self,
            map: OnceCell::new(),
        }
    }

    /// The limiter of a resource named in code, which stays as long as the result.
    pub(crate) fn pin_for_code(
        &self,
        resource: &ResourceId,
        settings: &Arc<LimiterSettings>,
    ) -> PinnedLimiter {
        PinnedLimiter(self.pin(resource, settings, Purpose::Code))
    }

    /// The limiter of a resource named in a rule, which stays until [`unpin`](Self::unpin). Only
    /// for the worker: concurrent callers could unpin each other's limiters.
    pub(crate) fn pin_for_rule(
        &self,
        resource: &ResourceId,
        settings: &Arc<LimiterSettings>,
    ) -> Arc<Limiter> {
        self.pin(resource, settings, Purpose::Rule)
    }

    /// No rule names the resource any more.
    pub(crate) fn unpin(&self, limiter: &Limiter) {
        limiter.retention.unpin_rule();
    }

    fn pin(
        &self,
        resource: &ResourceId,
        settings: &Arc<LimiterSettings>,
        purpose: Purpose,
    ) -> Arc<Limiter> {
        loop {
            let limiter = self
                .find(resource.as_str())
                .unwrap_or_else(|| self.create(resource.clone(), settings, purpose));
            if let Some(freed) = limiter.retention.pin(purpose) {
                self.release(freed);
                return limiter;
            }
            // Another thread is removing it.
            std::hint::spin_loop();
        }
    }

    #[cold]
    fn create(
        &self,
        resource: ResourceId,
        settings: &Arc<LimiterSettings>,
        purpose: Purpose,
    ) -> Arc<Limiter> {
        let now = clock::now();
        let limiter = Arc::new(Limiter::new(resource, Arc::clone(settings), purpose, now));
        match &self.source {
            Source::Static(state) => limiter.publish(state(limiter.resource()), now),
            Source::Local { quota, .. } => limiter.publish(LeaseState::Local(*quota), now),
            Source::Worker {
                nudges,
                first_state,
                ..
            } => {
                let first_state = first_state.load();
                let state = first_state.as_deref();
                if let Some(mut state) = state.and_then(|state| state(limiter.resource())) {
                    if let LeaseState::NoLease { awaits_answer, .. } = &mut state {
                        *awaits_answer &= !nudges.is_closed();
                    }
                    limiter.publish(state, now);
                }
            }
        }
        while !self.insert(&limiter) {
            // Another thread inserted one; retry if that one is already removed.
            if let Some(known) = self.find(limiter.resource().as_str()) {
                if purpose == Purpose::Key {
                    self.release(Freed::KeySlot);
                }
                return known;
            }
        }
        match &self.source {
            Source::Worker { nudges, .. } => {
                // Without a worker the fallback applies.
                nudges.send(Nudge::New(Arc::clone(&limiter))).ok();
            }
            Source::Local { idle, .. } if purpose == Purpose::Key => idle.add(&limiter),
            Source::Static(_) | Source::Local { .. } => {}
        }
        limiter
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

    fn insert(&self, limiter: &Arc<Limiter>) -> bool {
        let name = Name::from(limiter.resource());
        let limiters = self.limiters.pin();
        limiters.try_insert(name, Arc::clone(limiter)).is_ok()
    }

    fn find(&self, resource: &str) -> Option<Arc<Limiter>> {
        self.limiters.pin().get(resource.as_bytes()).map(Arc::clone)
    }

    /// Removes a limiter, unless it is pinned or a request waits. Returns whether it did.
    pub(crate) fn forget(&self, limiter: &Arc<Limiter>) -> bool {
        if limiter.waiting() > 0 {
            return false;
        }
        let Some(freed) = limiter.retention.forget() else {
            return false;
        };
        let name = limiter.resource().as_str().as_bytes();
        self.limiters.pin().remove(name);
        self.release(freed);
        true
    }

    pub(crate) fn meter(&self, limit: &Arc<str>) -> LimitMeter {
        self.meters.limit(limit)
    }

    /// All limiters but those of local limits.
    pub(crate) fn limiters(&self) -> Vec<Arc<Limiter>> {
        self.limiters.pin().values().cloned().collect()
    }

    pub(crate) fn local_limiters(&self) -> Vec<Arc<Limiter>> {
        let locals = self.locals.all();
        locals.iter().flat_map(|local| local.limiters()).collect()
    }

    /// Wakes a limiter whose lease was given up, before a request waits for the next one.
    pub(crate) fn wake(&self, limiter: &Arc<Limiter>, now: Moment) {
        if limiter.wake(now) {
            self.record_attempt(limiter, Some(Shortage::RunningLow), now);
        }
    }

    /// Signals a shortage to the worker, or logs that no worker runs.
    #[inline]
    pub(crate) fn record_attempt(
        &self,
        limiter: &Arc<Limiter>,
        shortage: Option<Shortage>,
        now: Moment,
    ) {
        if let Source::Worker {
            nudges, watchdog, ..
        } = &self.source
        {
            watchdog.check(now);
            if let Some(shortage) = shortage
                && limiter.demand.raise(shortage)
            {
                nudges
                    .send(Nudge::Shortage(Arc::clone(limiter), shortage))
                    .ok();
            }
        }
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
                    () = tokio::time::sleep(GRACE) => watchdog.check(clock::now()),
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
pub(crate) struct PinnedLimiter(Arc<Limiter>);

impl PinnedLimiter {
    pub(crate) fn limiter(&self) -> &Arc<Limiter> {
        &self.0
    }
}

impl Drop for PinnedLimiter {
    fn drop(&mut self) {
        self.0.retention.unpin_code();
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.meters.remove_keys(self.slots.used());
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("limiters", &self.limiters.len())
            .field("slots", &self.slots)
            .finish_non_exhaustive()
    }
}

/// Limiters borrowed from the registry. It pins the map at the first lookup, so that the fast path
/// does not touch reference counts, for which threads would contend.
pub(crate) struct RegistryLookup<'r> {
    registry: &'r Registry,
    map: OnceCell<HashMapRef<'r, Name, Arc<Limiter>, RandomState, LocalGuard<'r>>>,
}

impl RegistryLookup<'_> {
    /// `None` when the key is new and no slot is free. `settings` apply to a new limiter only.
    #[inline]
    pub(crate) fn keyed(
        &self,
        resource: &[u8],
        settings: &Arc<LimiterSettings>,
    ) -> Option<&Arc<Limiter>> {
        loop {
            if let Some(limiter) = self.get(resource) {
                return Some(limiter);
            }
            let resource = ResourceId::new(str::from_utf8(resource).ok()?).ok()?;
            self.registry.forget_idle(clock::now());
            if !self.registry.acquire_slot() {
                return None;
            }
            self.registry.create(resource, settings, Purpose::Key);
        }
    }

    /// The limiter shared by the keys without a slot.
    pub(crate) fn overflow(
        &self,
        resource: &ResourceId,
        settings: &Arc<LimiterSettings>,
    ) -> &Arc<Limiter> {
        loop {
            if let Some(limiter) = self.get(resource.as_str().as_bytes()) {
                return limiter;
            }
            self.registry
                .create(resource.clone(), settings, Purpose::Overflow);
        }
    }

    #[inline]
    fn get(&self, resource: &[u8]) -> Option<&Arc<Limiter>> {
        self.map
            .get_or_init(|| self.registry.limiters.pin())
            .get(resource)
    }
}

#[cfg(test)]
mod tests;
