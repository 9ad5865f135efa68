//! Rates for direct use, without a layer: of one resource, or of one for each key.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use doorman_openapi::{Capacity, ResourceId};
use tokio::time::{sleep, timeout};

use crate::{
    Cost, Fallback, Refusal, RefusalReason, clock,
    key::{KeyPrefix, to_resource_id},
    limiter::{
        Burst, Limiter, LimiterSettings, PinnedLimiter, RegisteredSettings, Registry, Rejected,
        Reservation, WaitPolicy,
    },
    meter::{LimitMeter, UseGuard},
};

/// The shortest pause between two tries under suppression: the resolution of timers.
const MIN_PAUSE: Duration = Duration::from_millis(1);

/// Settings of a [`Rate`] or [`KeyedRate`]. A text is a resource with the default settings.
///
/// ```
/// use std::time::Duration;
/// use tower_doorman::{Cost, Doorman, Fallback, RateSettings};
///
/// let doorman = Doorman::fixed([("db", 10.0)]);
/// let settings = RateSettings::new("db")
///     .fallback(Fallback::Safe)
///     .burst(Duration::from_secs(2))
///     .max_wait(Duration::from_secs(5));
/// assert!(doorman.rate(settings).try_acquire(Cost::ONE).is_ok());
/// ```
#[derive(Debug, Clone)]
#[must_use = "settings do nothing without a rate"]
pub struct RateSettings {
    resource: String,
    limiter: LimiterSettings,
    max_wait: Option<Duration>,
}

impl RateSettings {
    /// The resource, as of [`Key::constant`](crate::Key::constant), with the default settings.
    pub fn new(resource: impl Into<String>) -> Self {
        Self {
            resource: resource.into(),
            limiter: LimiterSettings {
                fallback: Fallback::Pessimistic.into(),
                ..LimiterSettings::default()
            },
            max_wait: None,
        }
    }

    /// The size of the token bucket, as [`Limit::burst`](crate::Limit::burst).
    pub fn burst(mut self, burst: Duration) -> Self {
        self.limiter.burst = Burst::new(burst).into();
        self
    }

    /// The decision without a lease, by default [`Fallback::Pessimistic`]: nothing is admitted.
    pub fn fallback(mut self, fallback: Fallback) -> Self {
        self.limiter.fallback = fallback.into();
        self
    }

    /// The priority of the demand, as [`Limit::priority`](crate::Limit::priority).
    pub fn priority(mut self, priority: i32) -> Self {
        self.limiter.priority = priority.into();
        self
    }

    /// A fixed demand instead of the measured one, as [`Limit::wants`](crate::Limit::wants).
    pub fn wants(mut self, wants: Capacity) -> Self {
        self.limiter.wants = Some(wants);
        self
    }

    /// How long `wait` waits for its tokens or a lease before it fails, by default without end.
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = Some(max_wait);
        self
    }
}

impl<T: AsRef<str> + ?Sized> From<&T> for RateSettings {
    fn from(resource: &T) -> Self {
        Self::new(resource.as_ref())
    }
}

impl From<String> for RateSettings {
    fn from(resource: String) -> Self {
        Self::new(resource)
    }
}

/// The rate of one resource, for code that asks before it acts: made by
/// [`Doorman::rate`](crate::Doorman::rate). Cheap to clone. Limits and rates on one resource share
/// its tokens, with the burst, fallback and wants of the first.
#[derive(Debug, Clone)]
pub struct Rate {
    shared: Arc<Shared>,
    limiter: Arc<PinnedLimiter>,
}

/// The rates of many keys, each a resource of its own: `tenant/acme` for the key `acme`, as of the
/// template `tenant/{header:x-tenant}`. Made by
/// [`Doorman::keyed_rate`](crate::Doorman::keyed_rate). Cheap to clone. Idle keys are forgotten,
/// and keys beyond [`Builder::max_keys`](crate::Builder::max_keys) share one rate.
#[derive(Debug, Clone)]
pub struct KeyedRate {
    shared: Arc<Shared>,
    resources: Arc<KeyPrefix>,
    overflow: ResourceId,
}

impl Rate {
    pub(crate) fn new(registry: Arc<Registry>, settings: impl Into<RateSettings>) -> Self {
        let settings = settings.into();
        let resource = to_resource_id(&settings.resource);
        let shared = Shared::new(registry, settings);
        let limiter = shared.registry.pin_for_code(&resource, &shared.settings);
        shared.attach(limiter.limiter().get());
        Self {
            shared,
            limiter: Arc::new(limiter),
        }
    }

    /// Waits until the tokens are available, at most for
    /// [`max_wait`](RateSettings::max_wait); without a lease, until one comes or the fallback
    /// admits. Waiting callers are served in order.
    ///
    /// # Errors
    /// [`Refusal`] after that time, when no lease can come because the worker has ended, or when
    /// the resource is blocked for good, as one that [`Doorman::fixed`](crate::Doorman::fixed) does
    /// not name. Nothing is spent then.
    ///
    /// # Panics
    /// When it has to wait and there is no tokio runtime with a timer.
    ///
    /// # Cancel safety
    /// Safe: dropping the future leaves the queue and returns the tokens.
    pub async fn wait(&self, cost: Cost) -> Result<(), Refusal> {
        let limiter = self.limiter.limiter();
        self.shared.wait(|| limiter.get(), cost).await
    }

    /// Takes the tokens if they are available now.
    ///
    /// # Errors
    /// [`Refusal`] when they are not. Nothing is spent then.
    pub fn try_acquire(&self, cost: Cost) -> Result<(), Refusal> {
        self.shared.try_acquire(self.limiter.limiter().get(), cost)
    }
}

impl KeyedRate {
    pub(crate) fn new(registry: Arc<Registry>, settings: impl Into<RateSettings>) -> Self {
        let settings = settings.into();
        let resources = KeyPrefix::new(&settings.resource);
        Self {
            overflow: resources.overflow(),
            resources: Arc::new(resources),
            shared: Shared::new(registry, settings),
        }
    }

    /// Waits for the tokens of a key, as [`Rate::wait`]. An empty key is `(missing)`.
    ///
    /// # Errors
    /// As for [`Rate::wait`].
    ///
    /// # Panics
    /// As for [`Rate::wait`].
    ///
    /// # Cancel safety
    /// Safe: dropping the future leaves the queue and returns the tokens.
    pub async fn wait(&self, key: &str, cost: Cost) -> Result<(), Refusal> {
        self.shared.wait(|| self.limiter(key), cost).await
    }

    /// Takes the tokens of a key if they are available now.
    ///
    /// # Errors
    /// [`Refusal`] when they are not. Nothing is spent then.
    pub fn try_acquire(&self, key: &str, cost: Cost) -> Result<(), Refusal> {
        self.shared.try_acquire(self.limiter(key), cost)
    }

    fn limiter(&self, key: &str) -> Limiter<'_> {
        let id = self.resources.id(key);
        let settings = &self.shared.settings;
        let registry = &self.shared.registry;
        let limiter = match registry.keyed(&id, settings) {
            Some(limiter) => limiter,
            None => registry.overflow(&self.overflow, settings),
        };
        self.shared.attach(limiter);
        limiter
    }
}

/// State that the clones of a rate share.
#[derive(Debug)]
struct Shared {
    registry: Arc<Registry>,
    name: Arc<str>,
    meter: LimitMeter,
    settings: RegisteredSettings,
    max_wait: Option<Duration>,
    warned_conflict: AtomicBool,
}

impl Shared {
    fn new(registry: Arc<Registry>, settings: RateSettings) -> Arc<Self> {
        let RateSettings {
            resource,
            limiter,
            max_wait,
        } = settings;
        if resource.contains(['{', '}']) {
            tracing::warn!(
                resource,
                "rate of a resource with braces, which are literal without requests; for one \
                 resource per key use `Doorman::keyed_rate`"
            );
        }
        let name = resource.into();
        Arc::new(Self {
            meter: registry.meter(&name),
            settings: registry.register(&Arc::new(limiter)),
            registry,
            name,
            max_wait,
            warned_conflict: AtomicBool::new(false),
        })
    }

    fn attach(&self, limiter: Limiter<'_>) {
        if limiter.attach(&self.settings).is_err()
            && !self.warned_conflict.swap(true, Ordering::Relaxed)
        {
            limiter.warn_conflict(&self.name);
        }
    }

    /// `find` is called anew after a pause, in which the limiter may be forgotten.
    async fn wait<'r>(&self, find: impl Fn() -> Limiter<'r>, cost: Cost) -> Result<(), Refusal> {
        let mut guard = UseGuard::new(&self.meter);
        let deadline = self.max_wait.map(|max_wait| clock::now().after(max_wait));
        let mut reservation = loop {
            match self.reserve(find(), cost, WaitPolicy::Forever) {
                Ok(reservation) => break reservation,
                // The next try may be admitted by chance.
                Err(refusal) if refusal.reason() == RefusalReason::Suppressed => {
                    let pause = refusal.retry_after().max(MIN_PAUSE);
                    if deadline.is_some_and(|deadline| deadline < clock::now().after(pause)) {
                        return Err(guard.refused(refusal));
                    }
                    guard.mark_waiting();
                    sleep(pause).await;
                }
                Err(refusal) => return Err(guard.refused(refusal)),
            }
        };
        if reservation.is_delayed() {
            guard.mark_waiting();
            let turn = reservation.wait_turn(self.registry.no_lease_can_come());
            let turn = match deadline {
                None => turn.await,
                Some(deadline) => match timeout(deadline.since(clock::now()), turn).await {
                    Ok(turn) => turn,
                    Err(_) => Err(reservation.give_up(clock::now())),
                },
            };
            if let Err(rejected) = turn {
                return Err(guard.refused(self.refusal(reservation.limiter(), rejected)));
            }
        }
        commit(&mut reservation, guard);
        Ok(())
    }

    fn try_acquire(&self, limiter: Limiter<'_>, cost: Cost) -> Result<(), Refusal> {
        let guard = UseGuard::new(&self.meter);
        match self.reserve(limiter, cost, WaitPolicy::Never) {
            Ok(mut reservation) => {
                commit(&mut reservation, guard);
                Ok(())
            }
            Err(refusal) => Err(guard.refused(refusal)),
        }
    }

    fn reserve(
        &self,
        limiter: Limiter<'_>,
        cost: Cost,
        policy: WaitPolicy,
    ) -> Result<Reservation, Refusal> {
        let mut reservation = Reservation::new(limiter.handle(), cost);
        let now = clock::now();
        let reserved = reservation.reserve(policy, now);
        self.registry
            .record_attempt(limiter, reservation.shortage(), now);
        reserved.map_err(|rejected| self.refusal(limiter, rejected))?;
        Ok(reservation)
    }

    fn refusal(&self, limiter: Limiter<'_>, rejected: Rejected) -> Refusal {
        let Rejected { reason, retry_at } = rejected;
        let resource = limiter.resource();
        Refusal::new(&self.name, resource, reason, retry_at, clock::now())
    }
}

fn commit(reservation: &mut Reservation, guard: UseGuard<'_>) {
    reservation.commit();
    guard.admitted(|| reservation.limiter().fallback_at(clock::now()));
}

#[cfg(test)]
mod tests;
