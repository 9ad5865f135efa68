//! Every limiter of the process, by resource.

mod local;
mod name;
mod watchdog;

use std::{fmt, sync::Arc};

use doorman_openapi::{Moment, ResourceId};
use foldhash::fast::RandomState;
use papaya::{HashMap, HashMapRef, LocalGuard};
use tokio::sync::mpsc::UnboundedSender;

pub(crate) use self::watchdog::WorkerWatchdog;
use self::{
    local::{Ages, Locals},
    name::Name,
    watchdog::GRACE,
};
use super::{
    LeaseState, Limiter, LimiterSettings, Shortage,
    retention::{FIXED, HELD, KEYED, Room, SPARE},
};
use crate::{
    Quota, clock,
    meter::{LimitMeter, Meters},
};

/// Where limiters get their standing from.
pub(crate) enum Source {
    /// A worker, which is told of every new limiter and leases for it.
    Worker {
        nudges: UnboundedSender<Nudge>,
        watchdog: WorkerWatchdog,
    },
    /// A rule that needs no lease.
    Static(Box<dyn Fn(&ResourceId) -> LeaseState + Send + Sync>),
    /// A limit of this process alone, for every key.
    Local { quota: Quota, ages: Ages },
}

/// What the worker is told between two refreshes. A limiter that runs low says so once until it is [heard](Limiter::heard), and once more
/// when it has nothing left. The worker lets it speak anew only when there was nothing in the channel a moment before, so that however
/// far the worker lags, the channel never holds more than five a limiter: that it is new, and twice what it may say.
#[derive(Debug, Clone)]
pub(crate) enum Nudge {
    /// There is a new limiter to lease for.
    New(Arc<Limiter>),
    /// More is needed of it.
    Shortage(Arc<Limiter>, Shortage),
}

/// Every limiter of the process. Whoever admits requests holds it; the worker does not, and sees that all are gone when the channel
/// of the nudges closes.
pub(crate) struct Registry {
    /// The name stands in the entry, so that it is compared while the limiter is on its way from the memory.
    limiters: HashMap<Name, Arc<Limiter>, RandomState>,
    room: Room,
    source: Source,
    meters: Meters,
    locals: Locals,
}

impl Registry {
    /// An empty registry that has at most `max_keys` limiters for keys, besides those of what the program names.
    pub(crate) fn new(max_keys: usize, source: Source) -> Arc<Self> {
        Arc::new(Self {
            limiters: HashMap::with_hasher(RandomState::default()),
            room: Room::for_keys(max_keys),
            source,
            meters: Meters::default(),
            locals: Locals::default(),
        })
    }

    /// For looking up what is borrowed until it is dropped: a decision that is made at once holds no limiter for longer, and where many
    /// threads decide on one key they need not count who holds it.
    pub(crate) fn found(&self) -> Found<'_> {
        Found {
            limiters: self.limiters.pin(),
        }
    }

    /// The limiter of a key made of a request; `None` when there is none yet, and no room for another.
    ///
    /// `settings` count only when it is made.
    #[inline]
    pub(crate) fn keyed<'f>(
        &self,
        found: &'f Found<'_>,
        resource: &[u8],
        settings: &Arc<LimiterSettings>,
    ) -> Option<&'f Arc<Limiter>> {
        loop {
            if let Some(limiter) = found.get(resource) {
                return Some(limiter);
            }
            let resource = ResourceId::new(str::from_utf8(resource).ok()?).ok()?;
            self.forget_idle(clock::now());
            if !self.take_room() {
                return None;
            }
            self.make(resource, settings, KEYED);
        }
    }

    /// The limiter that stands in for the keys without room. It is forgotten when idle, as those are, but there is always room.
    pub(crate) fn overflow<'f>(
        &self,
        found: &'f Found<'_>,
        resource: &ResourceId,
        settings: &Arc<LimiterSettings>,
    ) -> &'f Arc<Limiter> {
        loop {
            if let Some(limiter) = found.get(resource.as_str().as_bytes()) {
                return limiter;
            }
            self.make(resource.clone(), settings, SPARE);
        }
    }

    /// The limiter of a resource that the program names. It is there for good.
    pub(crate) fn permanent(
        &self,
        resource: &ResourceId,
        settings: &Arc<LimiterSettings>,
    ) -> Arc<Limiter> {
        self.staying(resource, settings, FIXED)
    }

    /// The limiter of a resource that a rule names. It stays until it is [let go](Self::let_go). Only the worker, which takes up rules, may
    /// call this: two callers at once could let go what the other has just taken hold of.
    pub(crate) fn pin_for_rule(
        &self,
        resource: &ResourceId,
        settings: &Arc<LimiterSettings>,
    ) -> Arc<Limiter> {
        self.staying(resource, settings, HELD)
    }

    /// No rule names it any more: it is forgotten when idle, unless the program names it.
    pub(crate) fn unpin(&self, limiter: &Limiter) {
        limiter.tenure.let_go();
    }

    fn staying(
        &self,
        resource: &ResourceId,
        settings: &Arc<LimiterSettings>,
        tenure: u8,
    ) -> Arc<Limiter> {
        loop {
            let limiter = self
                .find(resource.as_str())
                .unwrap_or_else(|| self.make(resource.clone(), settings, tenure));
            if let Some(before) = limiter.tenure.fix(tenure) {
                self.give_room(before);
                return limiter;
            }
            // It is just being forgotten: make it anew.
            std::hint::spin_loop();
        }
    }

    #[cold]
    fn make(
        &self,
        resource: ResourceId,
        settings: &Arc<LimiterSettings>,
        tenure: u8,
    ) -> Arc<Limiter> {
        let now = clock::now();
        let limiter = Arc::new(Limiter::new(resource, Arc::clone(settings), tenure, now));
        match &self.source {
            Source::Static(standing) => limiter.publish(standing(limiter.resource()), now),
            Source::Local { quota, .. } => limiter.publish(LeaseState::Local(*quota), now),
            Source::Worker { .. } => {}
        }
        while !self.insert(&limiter) {
            // Another thread was faster; if that one has been forgotten already, try again.
            if let Some(known) = self.find(limiter.resource().as_str()) {
                self.give_room(tenure);
                return known;
            }
        }
        if tenure == KEYED {
            self.remember(&limiter);
        }
        if let Source::Worker { nudges, .. } = &self.source {
            // Without a worker the fallback counts.
            nudges.send(Nudge::New(Arc::clone(&limiter))).ok();
        }
        limiter
    }

    /// Takes the room of one more key; false when there is none.
    fn take_room(&self) -> bool {
        let taken = self.room.take();
        if taken {
            self.meters.key_comes();
        }
        taken
    }

    /// Gives back the room of a limiter that had this tenure, if it took up any.
    fn give_room(&self, tenure: u8) {
        if tenure & KEYED != 0 {
            self.room.give_back();
            self.meters.keys_go(1);
        }
    }

    fn insert(&self, limiter: &Arc<Limiter>) -> bool {
        let name = Name::from(limiter.resource());
        let limiters = self.limiters.pin();
        limiters.try_insert(name, Arc::clone(limiter)).is_ok()
    }

    fn find(&self, resource: &str) -> Option<Arc<Limiter>> {
        self.found().get(resource.as_bytes()).map(Arc::clone)
    }

    /// Forgets a limiter that is idle, unless it is fixed or somebody waits; says whether it did.
    pub(crate) fn forget(&self, limiter: &Arc<Limiter>) -> bool {
        if limiter.waiting() > 0 {
            return false;
        }
        let Some(before) = limiter.tenure.retire() else {
            return false;
        };
        let name = limiter.resource().as_str().as_bytes();
        self.limiters.pin().remove(name);
        self.give_room(before);
        true
    }

    /// What counts the decisions of the limit of this name.
    pub(crate) fn meter(&self, limit: &Arc<str>) -> LimitMeter {
        self.meters.of(limit)
    }

    /// Every limiter of a local limit, each of which is a world of its own.
    pub(crate) fn local_limiters(&self) -> Vec<Arc<Limiter>> {
        let locals = self.locals.all();
        locals.iter().flat_map(|local| local.limiters()).collect()
    }

    /// Every limiter there is, but those of local limits.
    pub(crate) fn limiters(&self) -> Vec<Arc<Limiter>> {
        self.limiters.pin().values().cloned().collect()
    }

    /// Lets the worker know what a try has shown: that more is needed. And whoever reads the log, that there is none.
    #[inline]
    pub(crate) fn record_attempt(
        &self,
        limiter: &Arc<Limiter>,
        need: Option<Shortage>,
        now: Moment,
    ) {
        if let Source::Worker { watchdog, .. } = &self.source {
            watchdog.needed(now);
            if let Some(need) = need {
                self.hungry(limiter, need);
            }
        }
    }

    /// Tells the worker, once, that a limiter needs more.
    fn hungry(&self, limiter: &Arc<Limiter>, need: Shortage) {
        if let Source::Worker { nudges, .. } = &self.source
            && limiter.becomes_hungry(need)
        {
            nudges.send(Nudge::Shortage(Arc::clone(limiter), need)).ok();
        }
    }

    /// Resolves when no lease can come any more: the worker is gone, or there never was one, and what is given stays as it is.
    pub(crate) async fn orphaned(&self) {
        match &self.source {
            Source::Worker { nudges, watchdog } => {
                // Whoever waits for a lease asks only once.
                tokio::select! {
                    biased;
                    () = nudges.closed() => return,
                    () = tokio::time::sleep(GRACE) => watchdog.needed(clock::now()),
                }
                nudges.closed().await;
            }
            Source::Static(_) | Source::Local { .. } => {}
        }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.meters.keys_go(self.room.taken());
    }
}

/// Limiters that are borrowed from the registry: none that was found is dropped before this is, even if it is forgotten meanwhile.
pub(crate) struct Found<'r> {
    limiters: HashMapRef<'r, Name, Arc<Limiter>, RandomState, LocalGuard<'r>>,
}

impl Found<'_> {
    #[inline]
    fn get(&self, resource: &[u8]) -> Option<&Arc<Limiter>> {
        self.limiters.get(resource)
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("limiters", &self.limiters.len())
            .field("room", &self.room)
            .finish_non_exhaustive()
    }
}

impl Limiter {
    /// Whether it stays, whoever asks for it: the program names it, or a rule.
    pub(crate) fn is_permanent(&self) -> bool {
        self.tenure.stays()
    }
}

#[cfg(test)]
mod tests;
