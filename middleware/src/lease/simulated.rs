//! The engine of the layer and its limiters, for simulators.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use doorman_holder::{Effect, Event, HolderSettings};
use doorman_openapi::{Fallback, Moment, ResourceId, Unit};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::{
    engine::{Action, COOL_DOWN, Engine},
    worker::IDLE_AFTER,
};
use crate::{
    cost::Cost,
    limiter::{
        Acquisition, Committed, LimiterSettings, Nudge, PinnedLimiter, RegisteredSettings,
        Registry, Source, WaitLimit, WorkerWatchdog,
    },
    meter::LimitMeter,
    outcome::OutcomeReport,
    permit::{Permit, PermitBuilder},
    status::{Status, WorkerState},
};

/// The limits of one process without a task: its limiters and the engine that leases for them, with
/// time as an argument.
///
/// Its limits have the default settings. Requests do not wait.
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
    meter: LimitMeter,
}

impl SimulatedLayer {
    /// The time after which the units of an overloaded request to a gauge return.
    pub const COOL_DOWN: Duration = COOL_DOWN;

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

    /// Lets the units of a gauge return so much later when a request was overloaded, instead of
    /// after [`COOL_DOWN`](Self::COOL_DOWN).
    #[must_use]
    pub fn with_cool_down(mut self, cool_down: Duration) -> Self {
        self.engine.set_cool_down(cool_down);
        self
    }

    /// Adds a limit on a resource of this unit, whose demand has this priority. Returns its number.
    pub fn add_limit(
        &mut self,
        resource: &ResourceId,
        unit: Unit,
        priority: i32,
        now: Moment,
    ) -> usize {
        let fallback = match unit {
            Unit::Rate => Fallback::default(),
            Unit::Gauge => Fallback::Pessimistic,
        };
        let settings = self.registry.register(&Arc::new(LimiterSettings {
            unit,
            fallback: fallback.into(),
            priority: priority.into(),
            ..LimiterSettings::default()
        }));
        let limiter = self.registry.pin_for_code(resource, &settings, now);
        // The limits differ in their priorities only, which is no conflict.
        limiter.limiter().get().attach(&settings, resource.as_str());
        self.limits.push(SimulatedLimit {
            settings,
            limiter,
            meter: self.registry.meter(&resource.as_str().into()),
        });
        self.take_nudges(now);
        self.limits.len() - 1
    }

    /// Decides a request at a limit. If it is admitted, returns the units that it uses: none of a
    /// rate. Look at [`wake_at`](Self::wake_at) afterwards.
    pub fn admit(&mut self, limit: usize, cost: Cost, now: Moment) -> Option<Permit> {
        let SimulatedLimit {
            settings,
            limiter,
            meter,
        } = self.limits.get(limit)?;
        let mut permit = PermitBuilder::default();
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
                if let Some(Committed::Gauge(units)) = acquisition.commit() {
                    permit.add(&self.registry, limiter.handle(), units, meter, now);
                }
                (shortage, reserved.is_ok())
            }
        };
        self.registry.record_attempt(limiter, shortage, now);
        self.take_nudges(now);
        is_admitted.then(|| permit.build())
    }

    /// Ends a request that a limit admitted: counts its outcome, takes what the target told with
    /// it, and gives its units back. Look at [`wake_at`](Self::wake_at) afterwards.
    pub fn end(&mut self, limit: usize, permit: Permit, report: &OutcomeReport, now: Moment) {
        let Some(SimulatedLimit { limiter, .. }) = self.limits.get(limit) else {
            return;
        };
        let limiter = limiter.limiter().get();
        if permit.is_empty() {
            self.registry.record_outcomes(limiter, report, now);
        } else {
            Registry::note_target(limiter, report, now);
            permit.end(report.outcome, now);
        }
        self.take_nudges(now);
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
    use doorman_openapi::{ClientId, Outcomes, Probability, Seconds};

    use super::*;
    use crate::lease::testing::{grant, response};
    use crate::outcome::Outcome;

    fn at(seconds: f64) -> Moment {
        Moment::ORIGIN.after_seconds(3600.0 + seconds)
    }

    /// A process with one limit, whose first request is answered with a lease of 100 a second.
    fn leased(probability: Option<f64>) -> SimulatedLayer {
        granted(Unit::Rate, probability)
    }

    /// The same with a lease of 100 in the unit of the limit.
    fn granted(unit: Unit, probability: Option<f64>) -> SimulatedLayer {
        let settings = HolderSettings {
            client_id: ClientId::new("a").unwrap(),
            run: None,
            replaces: Vec::new(),
            endpoints: 1,
            seed: 7,
        };
        let mut layer = SimulatedLayer::new(settings, false);
        layer.add_limit(&ResourceId::new("db").unwrap(), unit, 0, at(0.0));
        let (now, seq) = loop {
            let now = layer.wake_at().max(at(0.0));
            let effects = layer.tick(now);
            if let Some(Effect::Send { seq, .. }) = effects.last() {
                break (now, *seq);
            }
        };
        let mut granted = grant("db", 100.0);
        granted.unit = Some(unit);
        granted.per = (unit == Unit::Rate).then_some(Seconds::saturating(1.0));
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
            .filter(|now| layer.admit(0, Cost::ONE, *now).is_some())
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
        let pause = Duration::from_secs(60);
        for outcome in [Outcome::Ok, Outcome::Overloaded] {
            let report = OutcomeReport::new(outcome).pause(pause);
            layer.end(0, Permit::default(), &report, at(0.5));
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

    /// The outcomes in the last request up to a time.
    fn reported(layer: &mut SimulatedLayer, until: Moment) -> Option<Box<Outcomes>> {
        let mut requests = Vec::new();
        while layer.wake_at() <= until {
            let now = layer.wake_at();
            requests.extend(layer.tick(now));
        }
        requests.into_iter().rev().find_map(|effect| match effect {
            Effect::Send { request, .. } => request.resources[0].outcomes.clone(),
            _ => None,
        })
    }

    #[test]
    fn units_are_used_in_simulated_time() {
        let mut layer = granted(Unit::Gauge, None);
        let mut permits: Vec<_> = (0..100)
            .filter_map(|_| layer.admit(0, Cost::ONE, at(0.1)))
            .collect();
        assert_eq!(permits.len(), 100);
        assert!(layer.admit(0, Cost::ONE, at(0.1)).is_none());
        let ok = OutcomeReport::new(Outcome::Ok);
        layer.end(0, permits.pop().unwrap(), &ok, at(0.4));
        assert!(layer.admit(0, Cost::ONE, at(0.4)).is_some());
        let outcomes = reported(&mut layer, at(2.0)).unwrap();
        let ok_seconds = outcomes.ok_seconds.unwrap().get();
        assert!((ok_seconds - 0.3).abs() < 1e-6, "{ok_seconds}");
    }

    /// How many units of 100 refused requests have returned after so many seconds.
    fn returned(mut layer: SimulatedLayer, seconds: f64) -> usize {
        let permits: Vec<_> = (0..100)
            .filter_map(|_| layer.admit(0, Cost::ONE, at(0.1)))
            .collect();
        let refused = OutcomeReport::new(Outcome::Overloaded);
        for permit in permits {
            layer.end(0, permit, &refused, at(0.1));
        }
        reported(&mut layer, at(0.1 + seconds));
        let again = (0..100).filter_map(|_| layer.admit(0, Cost::ONE, at(0.1 + seconds)));
        again.collect::<Vec<_>>().len()
    }

    #[test]
    fn units_of_refused_requests_return_later() {
        let layer = || granted(Unit::Gauge, None);
        assert_eq!(returned(layer(), 0.09), 0);
        assert_eq!(returned(layer(), 0.11), 100);
        assert_eq!(returned(layer().with_cool_down(Duration::ZERO), 0.01), 100);
    }

    #[test]
    fn suppression_repeats_with_the_same_seed() {
        let first = admitted(&mut leased(Some(0.25)));
        assert!((70..=130).contains(&first), "{first}");
        assert_eq!(admitted(&mut leased(Some(0.25))), first);
    }
}
