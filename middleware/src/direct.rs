//! Direct use of a limit, without a layer: the settings and decisions of rates, gauges and leases.

use std::{marker::PhantomData, sync::Arc, time::Duration};

use doorman_openapi::{Capacity, Fallback, ResourceId, Unit};
use tokio::time::{sleep, timeout};

use crate::{
    charge::Charge,
    cost::Cost,
    key::{KeyPrefix, to_resource_id},
    limiter::{
        Acquisition, Committed, Limiter, LimiterHandle, LimiterSettings, PinnedLimiter,
        RegisteredSettings, Registry, Rejected, SpentTokens, WaitLimit,
    },
    meter::{LimitMeter, UseGuard},
    outcome::Outcome,
    permit::{Permit, PermitBuilder},
    refusal::{Refusal, RefusalReason},
};

/// The shortest pause between two tries under suppression: the resolution of timers.
const MIN_PAUSE: Duration = Duration::from_millis(1);

/// Settings of a [`Rate`](crate::Rate) or [`Gauge`](crate::Gauge), of those of many keys, or of a
/// [`Lease`](crate::Lease). A text is a resource with the default settings.
///
/// ```
/// use std::time::Duration;
/// use tower_doorman::{Cost, Doorman, Fallback, GaugeSettings, RateSettings};
///
/// let doorman = Doorman::fixed([("db", 10.0), ("tx", 10.0)]);
/// let settings = RateSettings::new("db")
///     .fallback(Fallback::Safe)
///     .burst(Duration::from_secs(2))
///     .max_wait(Duration::from_secs(5));
/// assert!(doorman.rate(settings).try_acquire(Cost::ONE).is_ok());
/// let transactions = doorman.gauge(GaugeSettings::new("tx").priority(1));
/// assert!(transactions.try_acquire().is_ok());
/// ```
#[derive(Debug, Clone)]
#[must_use = "settings do nothing without a rate, gauge or lease"]
pub struct DirectSettings<Use> {
    resource: String,
    pub(crate) limiter: LimiterSettings,
    max_wait: Option<Duration>,
    of: PhantomData<fn() -> Use>,
}

/// A limit for direct use.
pub trait DirectUse {
    /// The unit by default.
    const UNIT: Unit;
}

/// A limit that callers wait for.
pub trait WaitedFor: DirectUse {}

impl<Use: DirectUse> DirectSettings<Use> {
    /// The resource, as of [`Key::constant`](crate::Key::constant), with the default settings.
    pub fn new(resource: impl Into<String>) -> Self {
        Self {
            resource: resource.into(),
            limiter: LimiterSettings {
                unit: Use::UNIT,
                fallback: Fallback::Pessimistic.into(),
                ..LimiterSettings::default()
            },
            max_wait: None,
            of: PhantomData,
        }
    }

    /// The decision, or the capacity, without a lease: by default [`Fallback::Pessimistic`],
    /// nothing.
    pub fn fallback(mut self, fallback: Fallback) -> Self {
        self.limiter.fallback = fallback.into();
        self
    }

    /// The priority of the demand, as [`Limit::priority`](crate::Limit::priority).
    pub fn priority(mut self, priority: i32) -> Self {
        self.limiter.priority = priority.into();
        self
    }

    /// A fixed demand instead of the measured one, as [`Limit::wants`](crate::Limit::wants), or
    /// that of a lease, as [`Lease::set_wants`](crate::Lease::set_wants).
    pub fn wants(mut self, wants: Capacity) -> Self {
        self.limiter.wants = Some(wants).into();
        self
    }
}

impl<Use: WaitedFor> DirectSettings<Use> {
    /// How long a rate waits for its tokens, or a gauge for its units, or either for a lease,
    /// before it fails: by default without end.
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = Some(max_wait);
        self
    }
}

impl<Use: DirectUse, T: AsRef<str>> From<T> for DirectSettings<Use> {
    fn from(resource: T) -> Self {
        Self::new(resource.as_ref())
    }
}

/// The limit of one resource.
#[derive(Debug, Clone)]
pub(crate) struct One {
    direct: Arc<Direct>,
    limiter: Arc<PinnedLimiter>,
}

impl One {
    pub(crate) fn new<Use>(registry: Arc<Registry>, settings: DirectSettings<Use>) -> Self {
        let resource = to_resource_id(&settings.resource);
        let direct = Direct::new(registry, settings);
        let limiter =
            direct
                .registry
                .pin_for_code(&resource, &direct.settings, direct.registry.now());
        direct.attach(limiter.limiter().get());
        Self {
            direct,
            limiter: Arc::new(limiter),
        }
    }

    pub(crate) fn limiter(&self) -> Limiter<'_> {
        self.limiter.limiter().get()
    }

    /// States the demand. Warns if that of another limit applies.
    pub(crate) fn set_wants(&self, wants: Capacity) {
        self.direct.settings.set_wants(wants);
        self.direct.attach(self.limiter());
        self.direct.registry.report_demand(self.limiter());
    }

    pub(crate) async fn wait(&self, cost: Cost) -> Result<Admitted<'_>, Refusal> {
        self.direct.wait(|| self.limiter(), cost).await
    }

    pub(crate) fn outcome(&self, outcome: Outcome) {
        self.direct.outcome(self.limiter(), outcome);
    }

    pub(crate) fn try_acquire(&self, cost: Cost) -> Result<Admitted<'_>, Refusal> {
        self.direct.try_acquire(self.limiter(), cost)
    }
}

/// The limits of many keys, each a resource of its own.
#[derive(Debug, Clone)]
pub(crate) struct Keyed {
    direct: Arc<Direct>,
    resources: Arc<KeyPrefix>,
    overflow: ResourceId,
}

impl Keyed {
    pub(crate) fn new<Use>(registry: Arc<Registry>, settings: DirectSettings<Use>) -> Self {
        let resources = KeyPrefix::new(&settings.resource);
        Self {
            overflow: resources.overflow(),
            resources: Arc::new(resources),
            direct: Direct::new(registry, settings),
        }
    }

    pub(crate) fn outcome(&self, key: &str, outcome: Outcome) {
        self.direct.outcome(self.limiter(key), outcome);
    }

    pub(crate) async fn wait(&self, key: &str, cost: Cost) -> Result<Admitted<'_>, Refusal> {
        self.direct.wait(|| self.limiter(key), cost).await
    }

    pub(crate) fn try_acquire(&self, key: &str, cost: Cost) -> Result<Admitted<'_>, Refusal> {
        self.direct.try_acquire(self.limiter(key), cost)
    }

    fn limiter(&self, key: &str) -> Limiter<'_> {
        let id = self.resources.id(key);
        let settings = &self.direct.settings;
        let registry = &self.direct.registry;
        let limiter = registry.keyed(&id, settings, &self.overflow);
        self.direct.attach(limiter);
        limiter
    }
}

/// State that the clones of a rate or gauge share.
#[derive(Debug)]
struct Direct {
    registry: Arc<Registry>,
    name: Arc<str>,
    meter: LimitMeter,
    settings: RegisteredSettings,
    max_wait: Option<Duration>,
}

impl Direct {
    fn new<Use>(registry: Arc<Registry>, settings: DirectSettings<Use>) -> Arc<Self> {
        let DirectSettings {
            resource,
            limiter,
            max_wait,
            ..
        } = settings;
        if resource.contains(['{', '}']) {
            tracing::warn!(
                resource,
                "resource with braces, which are literal without requests; for one resource per \
                 key use `Doorman::keyed_rate` or `Doorman::keyed_gauge`"
            );
        }
        let name = resource.into();
        Arc::new(Self {
            meter: registry.meter(&name),
            settings: registry.register(&Arc::new(limiter)),
            registry,
            name,
            max_wait,
        })
    }

    fn outcome(&self, limiter: Limiter<'_>, outcome: Outcome) {
        self.meter.ended(outcome, 1);
        self.registry.count_outcome(limiter, outcome, 1);
    }

    fn attach(&self, limiter: Limiter<'_>) {
        limiter.attach(&self.settings, &self.name);
    }

    /// `find` is called anew after a pause, in which the limiter may be forgotten.
    async fn wait<'r>(
        &self,
        find: impl Fn() -> Limiter<'r>,
        cost: Cost,
    ) -> Result<Admitted<'_>, Refusal> {
        let mut guard = UseGuard::new(&self.meter);
        let deadline = self
            .max_wait
            .map(|max_wait| self.registry.now().after(max_wait));
        let mut acquisition = loop {
            let limiter = find();
            match self.reserve(limiter, cost, WaitLimit::UNBOUNDED) {
                Ok(acquisition) => break acquisition,
                // It was just forgotten. The next one is new.
                Err(_) if !limiter.is_current() => {}
                // The next try may be admitted by chance.
                Err(refusal) if refusal.reason() == RefusalReason::Suppressed => {
                    let pause = refusal.retry_after().max(MIN_PAUSE);
                    if deadline.is_some_and(|deadline| deadline < self.registry.now().after(pause))
                    {
                        return Err(guard.refused(refusal));
                    }
                    guard.mark_waiting();
                    sleep(pause).await;
                }
                Err(refusal) => return Err(guard.refused(refusal)),
            }
        };
        if acquisition.is_delayed() {
            guard.mark_waiting();
            let turn = acquisition.wait_turn(self.registry.no_lease_can_come());
            let turn = match deadline {
                None => turn.await,
                Some(deadline) => match timeout(deadline.since(self.registry.now()), turn).await {
                    Ok(turn) => turn,
                    Err(_) => Err(acquisition.give_up(self.registry.now())),
                },
            };
            if let Err(rejected) = turn {
                return Err(guard.refused(self.refusal(acquisition.limiter(), rejected)));
            }
        }
        Ok(self.commit(acquisition, guard))
    }

    fn try_acquire(&self, limiter: Limiter<'_>, cost: Cost) -> Result<Admitted<'_>, Refusal> {
        let guard = UseGuard::new(&self.meter);
        match self.reserve(limiter, cost, WaitLimit::NoWait) {
            Ok(acquisition) => Ok(self.commit(acquisition, guard)),
            Err(refusal) => Err(guard.refused(refusal)),
        }
    }

    fn reserve(
        &self,
        limiter: Limiter<'_>,
        cost: Cost,
        limit: WaitLimit,
    ) -> Result<Acquisition, Refusal> {
        let mut acquisition = Acquisition::new(limiter.handle(), self.settings.priority(), cost);
        let now = self.registry.now();
        let reserved = acquisition.reserve(limit, now);
        self.registry
            .record_attempt(limiter, acquisition.shortage(), now);
        reserved.map_err(|rejected| self.refusal(limiter, rejected))?;
        Ok(acquisition)
    }

    fn refusal(&self, limiter: Limiter<'_>, rejected: Rejected) -> Refusal {
        let Rejected { reason, retry_at } = rejected;
        let resource = limiter.resource();
        Refusal::new(&self.name, resource, reason, retry_at, self.registry.now())
    }

    fn commit(&self, mut acquisition: Acquisition, guard: UseGuard<'_>) -> Admitted<'_> {
        let limiter = acquisition.limiter().handle();
        let mut permit = PermitBuilder::default();
        let mut spent = None;
        match acquisition.commit() {
            Some(Committed::Rate(tokens)) => spent = Some(tokens),
            Some(Committed::Gauge(units)) => {
                let since = self.registry.now();
                permit.add(&self.registry, limiter.clone(), units, &self.meter, since);
            }
            None => {}
        }
        guard.admitted(|| limiter.get().fallback_at(self.registry.now()));
        Admitted {
            direct: self,
            permit: permit.build(),
            limiter,
            spent,
        }
    }
}

/// An operation that was admitted.
#[must_use = "the units of a gauge are given back when this is dropped"]
pub(crate) struct Admitted<'d> {
    direct: &'d Direct,
    pub(crate) permit: Permit,
    limiter: LimiterHandle,
    /// Of a rate.
    spent: Option<SpentTokens>,
}

impl Admitted<'_> {
    /// Lets its cost be corrected.
    pub(crate) fn charge(&self, cost: Cost) -> Charge {
        let mut charge = Charge::default();
        let direct = self.direct;
        let limiter = self.limiter.get();
        let open = self
            .spent
            .as_ref()
            .and_then(|spent| limiter.open_charge(spent, cost));
        if let Some(open) = open {
            charge.add(&direct.registry, &direct.name, &direct.meter, open);
        }
        charge
    }
}
