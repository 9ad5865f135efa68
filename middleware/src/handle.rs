//! The handle to the limits of a process.

use std::{sync::Arc, time::Duration};

use doorman_openapi::ResourceId;
use tokio::{
    sync::{mpsc::UnboundedSender, oneshot},
    time::timeout,
};

use crate::{
    capacity::{Lease, LeaseSettings},
    check::Checks,
    clock,
    fixed::FixedLimits,
    gauge::{Gauge, GaugeSettings, KeyedGauge},
    key::Callers,
    layer::LimitLayer,
    lease::Command,
    limit::{IntoLimits, InvalidLimit, Limit},
    limiter::{LeaseState, Registry, Source},
    own_rules::OwnRules,
    rate::{KeyedRate, Rate, RateSettings},
    rules::Rules,
    snapshot::{LimitSnapshot, Snapshot},
    status::{Status, WorkerState},
};

/// The default of [`Builder::max_keys`](crate::Builder::max_keys).
pub(crate) const MAX_KEYS: usize = 100_000;
/// The worker releases the leases in half a second. A handle does not wait longer if it hangs.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(600);

/// The handle to the limits of a process, for layers and direct rates. Cheap to clone. When the
/// last handle, layer and rate is dropped, the worker releases the leases and ends.
#[derive(Debug, Clone)]
pub struct Doorman {
    pub(crate) registry: Arc<Registry>,
    /// `None` if no worker is needed.
    pub(crate) commands: Option<UnboundedSender<Command>>,
    pub(crate) status: Arc<Status>,
    pub(crate) callers: Callers,
    pub(crate) rules: Arc<Rules>,
}

/// Why the limits are not ready.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotReady {
    /// Not every resource had a response in time. Leases that arrived are in use.
    #[error(
        "timed out; not every resource has a response{}",
        last_failure.as_ref().map(|it| format!("; last failure: {it}")).unwrap_or_default()
    )]
    TimedOut {
        /// The last failure of a request to the control plane, if it is less than a minute ago.
        last_failure: Option<Arc<str>>,
    },
    /// No worker requests leases.
    #[error("the worker does not run ({0:?})")]
    NoWorker(WorkerState),
    /// Every resource has a response, but this one is in the other unit than its limit. Only an
    /// optimistic fallback admits requests.
    #[error(
        "resource `{0}` is a gauge but is limited as a rate, or the reverse: nothing is leased"
    )]
    OtherUnit(ResourceId),
}

/// Why the leases were not released. They expire.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotReleased {
    /// No server accepted the release in time.
    #[error("leases not released; they expire instead: {0}")]
    Failed(String),
    /// No worker releases them.
    #[error("leases not released; the worker does not run ({0:?})")]
    NoWorker(WorkerState),
}

crate::error::debug_as_text!(NotReady, NotReleased);

impl Doorman {
    /// Limits that admit everything, without server, worker or runtime: for tests of services.
    /// [Local](Limit::local) limits still apply, by [tokio's clock](Self::fixed).
    #[must_use]
    pub fn unlimited() -> Self {
        Self::without_worker(|_| LeaseState::Unlimited)
    }

    /// Fixed limits without server, worker or runtime, for tests of services and programs of one
    /// process. Each is a resource, or a glob over resources, with its rate in cost per second, or
    /// its units as a gauge: infinite is unlimited, and a number that is negative or NaN is 0.
    ///
    /// As with the templates of a document, a resource has the limit of its name, else the first
    /// whose glob matches: `*` is the default of all others. Without it they are blocked. Globs:
    /// `*` matches any run of characters, `/` included, `?` one character, `[a-z]` one of a class;
    /// `\` escapes the next character. A text that is no glob is a name, with a warning.
    ///
    /// The limits follow tokio's clock, which a test may pause and advance:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_doorman::{Cost, Doorman};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// tokio::time::pause(); // Or `#[tokio::test(start_paused = true)]`.
    /// let doorman = Doorman::fixed([("db", 1.0), ("tenant/*", 5.0), ("*", f64::INFINITY)]);
    /// let database = doorman.rate("db");
    /// assert!(database.try_acquire(Cost::ONE).is_ok());
    /// assert!(database.try_acquire(Cost::ONE).is_err());
    /// tokio::time::advance(Duration::from_secs(1)).await;
    /// assert!(database.try_acquire(Cost::ONE).is_ok());
    /// # }
    /// ```
    #[must_use]
    pub fn fixed(limits: impl IntoIterator<Item = (impl AsRef<str>, f64)>) -> Self {
        let limits = FixedLimits::new(limits);
        Self::without_worker(move |resource| limits.state(resource))
    }

    fn without_worker(state: impl Fn(&ResourceId) -> LeaseState + Send + Sync + 'static) -> Self {
        let source = Source::Static(Box::new(state));
        Self {
            registry: Registry::new(MAX_KEYS, source),
            commands: None,
            status: Arc::new(Status::new(WorkerState::NotNeeded)),
            callers: Callers::new(),
            rules: Arc::default(),
        }
    }

    /// Replaces the identification of callers in layers made from now on, for handles without a
    /// [builder](crate::Builder::callers).
    #[must_use]
    pub fn with_callers(mut self, callers: Callers) -> Self {
        self.callers = callers;
        self
    }

    /// A layer that enforces a limit, or all limits of a list or tuple: a request that one rejects
    /// costs nothing at the others. Resources with constant keys are leased from now on. All keys
    /// of a request are made before any limit decides, so a rejected request occupies a
    /// [key](crate::Builder::max_keys) of each. If callers choose those keys, limit callers by
    /// address in an outer layer.
    ///
    /// ```
    /// use tower_doorman::{Doorman, Limit, per_second};
    ///
    /// let doorman = Doorman::unlimited();
    /// let one = doorman.layer(Limit::rate("api"))?;
    /// let two = doorman.layer([Limit::rate("api"), Limit::rate("tenant/{header:x-tenant}")])?;
    /// let some = doorman.layer((Limit::local(per_second(500)), None::<Limit>))?;
    /// # Ok::<(), tower_doorman::InvalidLimit>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidLimit`] if the key of a limit was made of a text that is empty, or has braces and
    /// is no [template](crate::Key::template).
    pub fn layer(&self, limits: impl IntoLimits) -> Result<LimitLayer, InvalidLimit> {
        let limits = limits.into_limits();
        limits.iter().try_for_each(InvalidLimit::check)?;
        Ok(self.layer_of(limits))
    }

    fn layer_of(&self, limits: Vec<Limit>) -> LimitLayer {
        LimitLayer::new(Arc::clone(&self.registry), self.callers.clone(), limits)
            .with_rules(Arc::clone(&self.rules))
    }

    /// A layer that enforces only the control plane's rules for this
    /// [service](crate::Builder::service). See [`LimitLayer::and_rules`].
    pub fn rules(&self) -> LimitLayer {
        self.layer_of(Vec::new()).and_rules()
    }

    /// Rules that the process provides itself, such as those of a file, instead of the control
    /// plane's. There are none at first.
    #[must_use]
    pub fn own_rules(&self) -> OwnRules {
        OwnRules::new(Arc::clone(&self.registry), self.callers.clone())
    }

    /// Decisions on resources that are named at run time, several at once.
    #[must_use]
    pub fn checks(&self) -> Checks {
        Checks::new(Arc::clone(&self.registry))
    }

    /// The rate of one resource, for direct use: of a name, or of [settings](RateSettings). It is
    /// leased from now on.
    #[must_use]
    pub fn rate(&self, settings: impl Into<RateSettings>) -> Rate {
        Rate::new(Arc::clone(&self.registry), settings)
    }

    /// The rates of many keys, for direct use: `<resource>/<key>`, each leased from its first use
    /// on.
    ///
    /// ```
    /// use tower_doorman::{Cost, Doorman};
    ///
    /// let tenants = Doorman::fixed([("tenant/acme", 10.0)]).keyed_rate("tenant");
    /// assert!(tenants.try_acquire("acme", Cost::ONE).is_ok());
    /// ```
    #[must_use]
    pub fn keyed_rate(&self, settings: impl Into<RateSettings>) -> KeyedRate {
        KeyedRate::new(Arc::clone(&self.registry), settings)
    }

    /// A limit on what is in flight at once, for direct use: of a name, or of
    /// [settings](GaugeSettings). It is leased from now on.
    #[must_use]
    pub fn gauge(&self, settings: impl Into<GaugeSettings>) -> Gauge {
        Gauge::new(Arc::clone(&self.registry), settings)
    }

    /// The gauges of many keys, for direct use: `<resource>/<key>`, each leased from its first use
    /// on.
    #[must_use]
    pub fn keyed_gauge(&self, settings: impl Into<GaugeSettings>) -> KeyedGauge {
        KeyedGauge::new(Arc::clone(&self.registry), settings)
    }

    /// A part of a resource for code without requests: of a name, or of
    /// [settings](LeaseSettings). It is leased from now on.
    pub fn lease(&self, settings: impl Into<LeaseSettings>) -> Lease {
        Lease::new(Arc::clone(&self.registry), settings)
    }

    /// Waits until the control plane has responded for every current limit with a constant key,
    /// every direct rate and, if a layer follows them, the rules. Call it after
    /// [`layer`](Self::layer) and the like: what is made later is not waited for, and it warns
    /// if there is nothing to wait for. Optional: fallbacks apply until then.
    ///
    /// # Errors
    /// [`NotReady`] on timeout, if no worker runs, or if a resource named in code or in a rule is
    /// in another unit than its limit. The service can start anyway.
    ///
    /// # Cancel safety
    /// Safe: it changes nothing.
    pub async fn ready(&self, within: Duration) -> Result<(), NotReady> {
        match &self.commands {
            Some(commands) => self.call_worker(commands, Command::Ready, within).await?,
            None => return Ok(()),
        }
        let mut limiters = self.registry.limiters().into_iter();
        let other = limiters.find(|it| it.is_permanent() && it.has_other_unit());
        other.map_or(Ok(()), |it| Err(NotReady::OtherUnit(it.resource())))
    }

    /// Releases every lease and ends the worker, in half a second at most. Limits still in use
    /// apply their fallbacks. Leases of gauges of which units are in use are not released: they
    /// expire. Dropping every handle, layer and rate does the same in the
    /// background.
    ///
    /// # Errors
    /// [`NotReleased`] if the leases have to expire. A retry is of no use.
    ///
    /// # Cancel safety
    /// The worker continues the shutdown.
    pub async fn shutdown(self) -> Result<(), NotReleased> {
        let Some(commands) = &self.commands else {
            return Ok(());
        };
        let released = self.call_worker(commands, Command::Shutdown, SHUTDOWN_TIMEOUT);
        match released.await {
            Ok(released) => released.map_err(NotReleased::Failed),
            Err(NotReady::NoWorker(state)) => Err(NotReleased::NoWorker(state)),
            Err(NotReady::TimedOut { .. } | NotReady::OtherUnit(_)) => {
                Err(NotReleased::Failed("the worker did not respond".to_owned()))
            }
        }
    }

    async fn call_worker<T>(
        &self,
        commands: &UnboundedSender<Command>,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
        within: Duration,
    ) -> Result<T, NotReady> {
        let (reply, response) = oneshot::channel();
        if commands.send(command(reply)).is_ok() {
            match timeout(within, response).await {
                Ok(Ok(response)) => return Ok(response),
                Err(_) if self.worker_state() != WorkerState::NotStarted => {
                    let last_failure = self.status.last_failure(clock::now());
                    return Err(NotReady::TimedOut { last_failure });
                }
                Ok(Err(_)) | Err(_) => {}
            }
        }
        Err(NotReady::NoWorker(self.worker_state()))
    }

    /// The state of every limit, for debugging: sorted by resource, with one entry per key.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let now = self.registry.now();
        let leased = self.registry.limiters().into_iter();
        let leased = leased.map(|limiter| LimitSnapshot::new(limiter, false, now));
        let local = self.registry.local_limiters().into_iter();
        let local = local.map(|limiter| LimitSnapshot::new(limiter.get(), true, now));
        let mut limits: Vec<_> = leased.chain(local).collect();
        limits.sort_unstable_by(|one, other| one.resource.cmp(&other.resource));
        Snapshot {
            worker: self.worker_state(),
            limits,
            rules: self.rules.snapshot(),
        }
    }

    /// The state of the worker. A worker that requests need but that never ran is also logged.
    #[must_use]
    pub fn worker_state(&self) -> WorkerState {
        self.status.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Key, limiter::LimiterSettings};

    #[test]
    fn layer_takes_one_limit_a_list_or_a_tuple() {
        let doorman = Doorman::unlimited();
        let local = || Limit::local(crate::per_second(1));
        let resources = |layer: Result<LimitLayer, InvalidLimit>| {
            drop(layer.unwrap());
            doorman.snapshot().limits.len()
        };
        assert_eq!(resources(doorman.layer(Limit::rate("a"))), 1);
        assert_eq!(resources(doorman.layer(["b", "c"].map(Limit::rate))), 3);
        assert_eq!(resources(doorman.layer(vec![Limit::rate("d")])), 4);
        let nested = (Limit::rate("e"), [Limit::rate("f")], None::<Limit>);
        assert_eq!(resources(doorman.layer(nested)), 6);
        let layer = doorman.layer((local(), Some(local()))).unwrap();
        assert_eq!(doorman.snapshot().limits.len(), 8);
        drop(layer);
    }

    #[test]
    fn invalid_template_is_rejected_with_the_fix() {
        let doorman = Doorman::unlimited();
        let error = |limit| doorman.layer([Limit::rate("api"), limit]).unwrap_err();
        let invalid = error(Limit::rate("tenant/{id}").named("tenant"));
        assert_eq!(
            invalid.to_string(),
            "limit `tenant`: invalid key \"tenant/{id}\": unknown placeholder {id}; must be \
             {header:NAME}, {api_key}, {api_key:NAME}, {jwt:CLAIM}, {client_ip}, {peer}, {host}, \
             {method} or {route}; if its braces are literal, use Key::constant(\"tenant/{id}\")"
        );
        assert_eq!(invalid.limit(), "tenant");
        let local = Limit::local_per("{oops", crate::per_second(1)).named("x");
        for (limit, reason) in [
            (local, "unbalanced brace at byte 0"),
            (Limit::rate("{header:cookie}"), "would expose secrets"),
            (Limit::rate(""), "empty key template"),
        ] {
            let text = error(limit).to_string();
            assert!(text.contains(reason), "{text}");
            assert!(!text.contains("Key::constant"), "{text}");
        }
        assert!(doorman.snapshot().limits.is_empty(), "nothing was leased");
        assert!(doorman.layer(Limit::rate(Key::constant("a{b}"))).is_ok());
    }

    #[test]
    fn keys_without_a_server_are_bounded() {
        let settings = Arc::new(LimiterSettings::default());
        for doorman in [Doorman::unlimited(), Doorman::fixed([("db", 10.0)])] {
            let keys = 0..=MAX_KEYS;
            let made = keys.filter_map(|key| doorman.registry.key(&key.to_string(), &settings));
            assert_eq!(made.count(), MAX_KEYS);
        }
    }
}
