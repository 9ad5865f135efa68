//! The engine of the layer and its limiters, for simulators.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use doorman_holder::{Effect, Event, HolderSettings};
use doorman_openapi::{Moment, ResourceId};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::{
    engine::{Action, Engine},
    worker::IDLE_AFTER,
};
use crate::{
    cost::Cost,
    limiter::{
        Acquisition, LimiterSettings, Nudge, PinnedLimiter, RegisteredSettings, Registry, Source,
        WaitLimit, WorkerWatchdog,
    },
    outcome::OutcomeReport,
    status::{Status, WorkerState},
};

/// The limits of one process without a task: its limiters and the engine that leases for them, with
/// time as an argument.
///
/// Its limits are of rates and have the default settings. Requests do not wait.
#[expect(missing_debug_implementations, reason = "nobody prints it")]
pub struct SimulatedLayer {
    registry: Arc<Registry>,
    nudges: UnboundedReceiver<Nudge>,
    limits: Vec<SimulatedLimit>,
    engine: Engine,
    /// For SUPPRESSION.
    rng: fastrand::Rng,
}

struct SimulatedLimit {
    settings: RegisteredSettings,
    limiter: PinnedLimiter,
}

impl SimulatedLayer {
    /// Creates a process without limits, which polls for hints if `polls`.
    #[must_use]
    pub fn new(settings: HolderSettings, polls: bool) -> Self {
        let (sender, nudges) = unbounded_channel();
        let status = Arc::new(Status::new(WorkerState::Running));
        let source = Source::Worker {
            nudges: sender,
            watchdog: WorkerWatchdog::new(status),
            first_state: ArcSwapOption::empty(),
        };
        let registry = Registry::new(1, source);
        let rng = fastrand::Rng::with_seed(settings.seed);
        Self {
            nudges,
            limits: Vec::new(),
            engine: Engine::new(settings, &registry, IDLE_AFTER, polls),
            registry,
            rng,
        }
    }

    /// Adds a limit on a resource, whose demand has this priority. Returns its number.
    pub fn add_limit(&mut self, resource: &ResourceId, priority: i32, now: Moment) -> usize {
        let settings = self.registry.register(&Arc::new(LimiterSettings {
            priority: priority.into(),
            ..LimiterSettings::default()
        }));
        let limiter = self.registry.pin_for_code(resource, &settings, now);
        // The limits differ in their priorities only, which is no conflict.
        limiter.limiter().get().attach(&settings, resource.as_str());
        self.limits.push(SimulatedLimit { settings, limiter });
        self.take_nudges(now);
        self.limits.len() - 1
    }

    /// Decides a request at a limit, and returns whether it is admitted. Look at
    /// [`wake_at`](Self::wake_at) afterwards.
    pub fn admit(&mut self, limit: usize, cost: Cost, now: Moment) -> bool {
        let Some(SimulatedLimit { settings, limiter }) = self.limits.get(limit) else {
            return false;
        };
        let (limiter, priority) = (limiter.limiter().get(), settings.priority());
        let fast = limiter.try_acquire(settings, priority, cost, false, now);
        let (shortage, is_admitted) = match fast {
            Some(acquired) => {
                limiter.commit(&acquired);
                (acquired.shortage(), true)
            }
            None => {
                let mut acquisition = Acquisition::new(limiter.handle(), priority, cost);
                let reserved = with_thread_rng(&mut self.rng, || {
                    acquisition.reserve(WaitLimit::NoWait, now)
                });
                let shortage = acquisition.shortage();
                if reserved.is_ok() {
                    acquisition.commit();
                }
                (shortage, reserved.is_ok())
            }
        };
        self.registry.record_attempt(limiter, shortage, now);
        self.take_nudges(now);
        is_admitted
    }

    /// Counts the outcome of a request that a limit admitted, and takes what the target told with
    /// it. Look at [`wake_at`](Self::wake_at) afterwards.
    pub fn record_outcome(&mut self, limit: usize, report: &OutcomeReport, now: Moment) {
        if let Some(SimulatedLimit { limiter, .. }) = self.limits.get(limit) {
            self.registry
                .record_outcomes(limiter.limiter().get(), report, now);
            self.take_nudges(now);
        }
    }

    /// When to [tick](Self::tick) next.
    #[must_use]
    pub fn wake_at(&self) -> Moment {
        self.engine.wake_at()
    }

    /// Does everything that is due at `now`.
    #[must_use]
    pub fn tick(&mut self, now: Moment) -> Vec<Effect> {
        self.engine.tick(usize::MAX, now);
        self.take_effects(now)
    }

    /// Handles a response, hints or the stop of the process. Demands are measured instead.
    #[must_use]
    pub fn handle(&mut self, event: Event, now: Moment) -> Vec<Effect> {
        self.engine.handle(event, now);
        self.take_effects(now)
    }

    fn take_effects(&mut self, now: Moment) -> Vec<Effect> {
        self.take_nudges(now);
        let actions = self.engine.take_actions().into_iter();
        let effects = actions.filter_map(|action| match action {
            Action::Effect(effect) => Some(effect),
            _ => None,
        });
        effects.collect()
    }

    fn take_nudges(&mut self, now: Moment) {
        while let Ok(nudge) = self.nudges.try_recv() {
            self.engine.on_nudge(nudge, now);
        }
    }
}

/// Runs a decision with random numbers of its process: limiters draw from those of the thread.
fn with_thread_rng<T>(rng: &mut fastrand::Rng, decide: impl FnOnce() -> T) -> T {
    let thread_seed = fastrand::get_seed();
    fastrand::seed(rng.u64(..));
    let decision = decide();
    fastrand::seed(thread_seed);
    decision
}

#[cfg(test)]
mod tests {
    use doorman_openapi::{ClientId, Probability};

    use super::*;
    use crate::lease::testing::{grant, response};
    use crate::outcome::Outcome;

    fn at(seconds: f64) -> Moment {
        Moment::ORIGIN.after_seconds(3600.0 + seconds)
    }

    /// A process with one limit, whose first request is answered with a lease of 100 a second.
    fn leased(probability: Option<f64>) -> SimulatedLayer {
        let settings = HolderSettings {
            client_id: ClientId::new("a").unwrap(),
            run: None,
            replaces: Vec::new(),
            endpoints: 1,
            seed: 7,
        };
        let mut layer = SimulatedLayer::new(settings, false);
        layer.add_limit(&ResourceId::new("db").unwrap(), 0, at(0.0));
        let (now, seq) = loop {
            let now = layer.wake_at().max(at(0.0));
            let effects = layer.tick(now);
            if let Some(Effect::Send { seq, .. }) = effects.last() {
                break (now, *seq);
            }
        };
        let mut granted = grant("db", 100.0);
        granted.admission_probability = probability.map(Probability::saturating);
        let response = response(vec![granted]);
        let answered = Event::Answered { seq, response };
        assert!(!layer.handle(answered, now).is_empty());
        layer
    }

    /// The requests admitted of 400 in two seconds.
    fn admitted(layer: &mut SimulatedLayer) -> usize {
        let mut requests = (1..=400).map(|number| at(f64::from(number) / 200.0));
        requests
            .by_ref()
            .filter(|now| layer.admit(0, Cost::ONE, *now))
            .count()
    }

    #[test]
    fn requests_spend_the_lease_in_simulated_time() {
        // The bucket, and two seconds of its rate.
        let admitted = admitted(&mut leased(None));
        assert!((298..=300).contains(&admitted), "{admitted}");
    }

    #[test]
    fn measured_demand_is_requested() {
        let mut layer = leased(None);
        admitted(&mut layer);
        let mut requests = Vec::new();
        while layer.wake_at() <= at(2.0) {
            let now = layer.wake_at();
            requests.extend(layer.tick(now));
        }
        let wants = requests.iter().find_map(|effect| match effect {
            Effect::Send { request, .. } => Some(request.resources[0].wants.get()),
            _ => None,
        });
        assert!(wants.is_some_and(|wants| wants > 150.0), "{requests:?}");
    }

    #[test]
    fn outcomes_of_requests_are_reported() {
        let mut layer = leased(None);
        let pause = std::time::Duration::from_secs(60);
        for outcome in [Outcome::Ok, Outcome::Overloaded] {
            let report = OutcomeReport::new(outcome).pause(pause);
            layer.record_outcome(0, &report, at(0.5));
        }
        let mut requests = Vec::new();
        while layer.wake_at() <= at(2.0) {
            let now = layer.wake_at();
            requests.extend(layer.tick(now));
        }
        let asked = requests.iter().find_map(|effect| match effect {
            Effect::Send { request, .. } => request.resources.first(),
            _ => None,
        });
        let asked = asked.unwrap();
        let outcomes = asked.outcomes.as_ref().unwrap();
        assert_eq!((outcomes.ok.get(), outcomes.overloaded.get()), (1, 1));
        assert!(asked.pause.is_some_and(|pause| pause.get() > 55.0));
    }

    #[test]
    fn suppression_repeats_with_the_same_seed() {
        let first = admitted(&mut leased(Some(0.25)));
        assert!((70..=130).contains(&first), "{first}");
        assert_eq!(admitted(&mut leased(Some(0.25))), first);
    }
}
