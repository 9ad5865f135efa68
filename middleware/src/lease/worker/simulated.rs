//! The worker and its limiters in simulated time.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use doorman_holder::{Demand, Effect, Event, Holder, HolderSettings, ResourceIndex};
use doorman_openapi::{Moment, ResourceId};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::{IDLE_AFTER, limiters::Limiters};
use crate::{
    cost::Cost,
    limiter::{
        FirstLease, LimiterSettings, LimiterTable, Nudge, PinnedLimiter, RegisteredSettings,
        Registry, Reservation, Source, WaitPolicy, WorkerWatchdog,
    },
    status::{Status, WorkerState},
};

/// The limits of one process without a task, for simulators: its limiters, the measure of their
/// demand and the [`Holder`], with time as an argument.
///
/// Its limits are of rates and have the default settings. Requests do not wait.
#[expect(missing_debug_implementations, reason = "nobody prints it")]
pub struct SimulatedLayer {
    registry: Arc<Registry>,
    nudges: UnboundedReceiver<Nudge>,
    limits: Vec<SimulatedLimit>,
    holder: Holder<LimiterTable>,
    limiters: Limiters,
    measured_hints: Vec<(Moment, Event)>,
    /// For SUPPRESSION.
    rng: fastrand::Rng,
}

struct SimulatedLimit {
    settings: RegisteredSettings,
    limiter: PinnedLimiter,
}

impl SimulatedLayer {
    /// Creates a process without limits.
    #[must_use]
    pub fn new(settings: HolderSettings) -> Self {
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
            holder: Holder::with_names(settings, registry.table()),
            limiters: Limiters::new(registry.table()),
            registry,
            measured_hints: Vec::new(),
            rng,
        }
    }

    /// Adds a limit on a resource, whose demand has this priority. Returns its number.
    pub fn add_limit(&mut self, resource: &ResourceId, priority: i32, now: Moment) -> usize {
        let settings = self.registry.register(&Arc::new(LimiterSettings {
            priority: priority.into(),
            ..LimiterSettings::default()
        }));
        let limiter = self.registry.pin_for_code_at(resource, &settings, now);
        // The limits differ in their priorities only, which is no conflict.
        limiter.limiter().get().attach(&settings).ok();
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
        let fast = limiter.try_acquire(settings, priority, cost, FirstLease::Optional, now);
        let (shortage, is_admitted) = match fast {
            Some(acquired) => {
                limiter.commit(&acquired);
                (acquired.shortage(), true)
            }
            None => {
                let mut reservation = Reservation::new(limiter.handle(), priority, cost);
                let reserved = with_thread_rng(&mut self.rng, || {
                    reservation.reserve(WaitPolicy::Never, now)
                });
                let shortage = reservation.shortage();
                if reserved.is_ok() {
                    reservation.commit();
                }
                (shortage, reserved.is_ok())
            }
        };
        self.registry.record_attempt(limiter, shortage, now);
        self.take_nudges(now);
        is_admitted
    }

    /// When to [tick](Self::tick) next.
    #[must_use]
    pub fn wake_at(&self) -> Moment {
        let hints = self.measured_hints.iter().map(|(due, _)| *due).min();
        self.holder
            .wake_at()
            .min(self.limiters.next_sample_at())
            .min(hints.unwrap_or(Moment::NEVER))
    }

    /// Does everything that is due at `now`.
    #[must_use]
    pub fn tick(&mut self, now: Moment) -> Vec<Effect> {
        let mut effects = Vec::new();
        while let Some(sample) = self.limiters.sample_next(IDLE_AFTER, now) {
            if sample.idle && self.sleep(sample.index, now) {
                continue;
            }
            if let Some(demand) = sample.demand {
                self.set_demand(sample.index, demand, now, &mut effects);
            }
        }
        let due = self.measured_hints.extract_if(.., |(due, _)| *due <= now);
        for (_, event) in due.collect::<Vec<_>>() {
            effects.extend(self.apply(event, now));
        }
        while self.holder.wake_at() <= now {
            for index in self.holder.due_indices(now) {
                let hinted = self.holder.is_hinted(index);
                if let Some(demand) = self.limiters.report(index, hinted, now) {
                    self.set_demand(index, demand, now, &mut effects);
                }
            }
            effects.extend(self.apply(Event::Tick, now));
        }
        effects
    }

    /// Handles a response, hints or the stop of the process. Demands are measured instead.
    #[must_use]
    pub fn handle(&mut self, event: Event, now: Moment) -> Vec<Effect> {
        let Event::Hinted { hints, .. } = &event else {
            return self.apply(event, now);
        };
        let ids = hints.refresh.iter().map(|hint| &hint.resource_id);
        let due = self.limiters.measure_for_hints(ids, now);
        self.holder.await_measurement(&hints.refresh, due);
        self.measured_hints.push((due, event));
        Vec::new()
    }

    /// Gives up the lease of an idle resource.
    fn sleep(&mut self, index: ResourceIndex, now: Moment) -> bool {
        let Some((limiter, tracked)) = self.limiters.get_mut(index) else {
            return false;
        };
        let resource = limiter.resource();
        let sleeps = tracked.sleep(limiter, now);
        if sleeps {
            self.holder.forget(index, resource);
        }
        sleeps
    }

    fn set_demand(
        &mut self,
        index: ResourceIndex,
        demand: Demand,
        now: Moment,
        effects: &mut Vec<Effect>,
    ) {
        if self.holder.update_demand(index, &demand, now) {
            return;
        }
        if let Some((limiter, _)) = self.limiters.get_mut(index) {
            let resource = limiter.resource();
            effects.extend(self.apply(Event::Demand { resource, demand }, now));
        }
    }

    /// Handles an event, and publishes changed leases to their limiters.
    fn apply(&mut self, event: Event, now: Moment) -> Vec<Effect> {
        let effects = self.holder.handle(event, now);
        for effect in &effects {
            if let Effect::Changed { resource, status } = effect
                && let Some(index) = self.limiters.find(resource)
            {
                self.limiters.publish(index, status, now);
            }
        }
        self.take_nudges(now);
        effects
    }

    fn take_nudges(&mut self, now: Moment) {
        while let Ok(nudge) = self.nudges.try_recv() {
            match nudge {
                Nudge::New(limiter) => self.limiters.insert(limiter.get(), now),
                Nudge::Shortage(limiter, shortage) => {
                    self.limiters.on_shortage(limiter.get(), shortage, now);
                }
                // Of gauges only.
                Nudge::Returned(_) => {}
            }
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

    fn at(seconds: f64) -> Moment {
        Moment::ORIGIN.after_seconds(3600.0 + seconds)
    }

    /// A process with one limit, whose first request is answered with a lease of 100 a second.
    fn leased(probability: Option<f64>) -> SimulatedLayer {
        let mut layer = SimulatedLayer::new(HolderSettings {
            client_id: ClientId::new("a").unwrap(),
            endpoints: 1,
            seed: 7,
        });
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
    fn suppression_repeats_with_the_same_seed() {
        let first = admitted(&mut leased(Some(0.25)));
        assert!((70..=130).contains(&first), "{first}");
        assert_eq!(admitted(&mut leased(Some(0.25))), first);
    }
}
