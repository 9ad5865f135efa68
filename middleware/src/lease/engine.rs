//! The leasing side of a process without IO: events and time in, actions out.
//!
//! It measures the demand of the limiters for the [`Holder`], and publishes leases to them.
//! [`Worker`](super::Worker) is the task around it. A simulator runs the same engine.

mod bands;
mod conversion;
mod limiters;
mod measured;
mod pace;
mod repeated_bursts;
mod supply;
mod tracked;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Weak},
    time::Duration,
};

use doorman_holder::{
    Demand, Effect, Event, FirstAnswer, Holder, HolderSettings, LeaseStatus, ResourceIndex,
    TemplateTerms, hint_count,
};
use doorman_openapi::{
    Balance, Capacity, HintsResponse, MAX_RESOURCES, Moment, ReleaseRequest, ResourceId,
};

pub(super) use self::tracked::Publication;
use self::{conversion::lease_state, limiters::Limiters, tracked::Sample};
use crate::{
    limiter::{CoolingUnits, Limiter, LimiterTable, Nudge, Registry},
    tuning::tuning,
};

/// The time after which the units of an overloaded request return.
pub(super) const COOL_DOWN: Duration = Duration::from_millis(100);

/// The actions that the worker executes, in order.
#[derive(Debug)]
pub(super) enum Action {
    /// An effect of the holder. A change of a resource is already published to its limiter.
    Effect(Effect),
    /// A status was published to the limiter of a resource.
    Published {
        resource: ResourceId,
        publication: Publication,
    },
    /// The lease of an idle resource was given up.
    Rested {
        resource: ResourceId,
        /// Whether its limiter is forgotten, too.
        is_forgotten: bool,
    },
    /// The units in use of a gauge that stays, as sampled.
    InUse { resource: ResourceId, units: f64 },
    /// The master gave hints.
    Hinted {
        hints: u64,
        /// Whether the rules have changed.
        rules: bool,
    },
}

/// The limiters of a process, and the holder that leases for them.
#[derive(Debug)]
pub(crate) struct Engine {
    holder: Holder<LimiterTable>,
    limiters: Limiters,
    registry: Weak<Registry>,
    idle_after: Duration,
    /// The terms with which new limiters begin.
    templates: Arc<TemplateTerms>,
    /// The tokens in long buckets when the process stopped, while it still had its leases.
    tokens: BTreeMap<ResourceId, Balance>,
    /// Hints that wait until the demand is measured, and when it is.
    measured_hints: Vec<(Moment, Event)>,
    /// Units that return, and when.
    cooling: VecDeque<(Moment, CoolingUnits)>,
    /// The time after which they do.
    cool_down: Duration,
    actions: Vec<Action>,
}

impl Engine {
    /// An engine for the limiters of a registry. Without requests it keeps the lease of a limiter
    /// for `idle_after`. It polls for hints if `hints`.
    pub(crate) fn new(
        settings: HolderSettings,
        registry: &Arc<Registry>,
        idle_after: Duration,
        hints: bool,
    ) -> Self {
        let holder = Holder::with_names(settings, registry.table());
        Self {
            holder: holder.with_tuning(tuning().holder).polling(hints),
            limiters: Limiters::new(registry.table()),
            registry: Arc::downgrade(registry),
            idle_after,
            templates: Arc::default(),
            tokens: BTreeMap::new(),
            measured_hints: Vec::new(),
            cooling: VecDeque::new(),
            cool_down: COOL_DOWN,
            actions: Vec::new(),
        }
    }

    /// Asks this server first, and not a random one.
    #[cfg(test)]
    pub(super) fn begin_at(&mut self, endpoint: usize) {
        self.holder.begin_at(endpoint);
    }

    /// Lets units return so much later when a request was overloaded.
    #[cfg(any(test, feature = "simulation"))]
    pub(super) fn set_cool_down(&mut self, cool_down: Duration) {
        self.cool_down = cool_down;
    }

    pub(super) fn holder(&self) -> &Holder<LimiterTable> {
        &self.holder
    }

    /// Takes the actions since the last call.
    pub(super) fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// The server that tells of changed rules.
    pub(super) fn set_rules_source(&mut self, server: Option<usize>) {
        self.holder.set_rules_source(server);
    }

    /// When to [tick](Self::tick) next.
    pub(super) fn wake_at(&self) -> Moment {
        let hints = self.measured_hints.iter().map(|(due, _)| *due).min();
        let cooled = self.cooling.front().map(|(due, _)| *due);
        self.holder
            .wake_at()
            .min(self.limiters.next_sample_at())
            .min(hints.unwrap_or(Moment::NEVER))
            .min(cooled.unwrap_or(Moment::NEVER))
    }

    /// Does everything that is due, with at most so many samples of limiters.
    pub(super) fn tick(&mut self, samples: usize, now: Moment) {
        self.return_cooled(now);
        for _ in 0..samples {
            let Some((index, sample)) = self.limiters.sample_next(self.idle_after, now) else {
                break;
            };
            self.on_sample(index, sample, now);
        }
        self.process_hints(now);
        while self.holder.wake_at() <= now {
            for index in self.holder.due_indices(now) {
                let hinted = self.holder.is_hinted(index);
                if let Some(demand) = self.limiters.report(index, hinted, now) {
                    self.set_demand(index, demand, now);
                }
            }
            self.apply(Event::Tick, now);
        }
    }

    /// Returns the units whose pause is over.
    fn return_cooled(&mut self, now: Moment) {
        while self.cooling.front().is_some_and(|(due, _)| *due <= now)
            && let Some((_, units)) = self.cooling.pop_front()
        {
            let index = ResourceIndex::new(units.limiter().number());
            if units.give_back() {
                self.holder.report_returned(index, now);
            }
        }
    }

    fn on_sample(&mut self, index: ResourceIndex, sample: Sample, now: Moment) {
        if sample.idle && self.rest(index, now) {
            return;
        }
        if let Some((limiter, _)) = self.limiters.get_mut(index)
            && let Some(units) = limiter.units_in_use()
            && limiter.is_permanent()
        {
            self.actions.push(Action::InUse {
                resource: limiter.resource(),
                units: units.in_use,
            });
        }
        if let Some(demand) = sample.demand {
            self.set_demand(index, demand, now);
        }
        if sample.gives_back {
            self.holder.report_returned(index, now);
        }
    }

    /// Gives up the lease of an idle limiter: forgets it, or lets it sleep if it stays. Returns
    /// whether it did.
    fn rest(&mut self, index: ResourceIndex, now: Moment) -> bool {
        let (Some((limiter, tracked)), Some(registry)) =
            (self.limiters.get_mut(index), self.registry.upgrade())
        else {
            return false;
        };
        let resource = limiter.resource();
        let is_forgotten = registry.forget(limiter);
        if is_forgotten {
            self.limiters.remove(index);
        } else if !tracked.sleep(limiter, now) {
            return false;
        }
        self.holder.forget(index, resource.clone());
        self.actions.push(Action::Rested {
            resource,
            is_forgotten,
        });
        true
    }

    fn set_demand(&mut self, index: ResourceIndex, demand: Demand, now: Moment) {
        if self.holder.update_demand(index, &demand, now) {
            return;
        }
        if let Some((limiter, _)) = self.limiters.get_mut(index) {
            let resource = limiter.resource();
            self.apply(Event::Demand { resource, demand }, now);
        }
    }

    /// Handles a signal of a limiter.
    pub(super) fn on_nudge(&mut self, nudge: Nudge, now: Moment) {
        match nudge {
            Nudge::New(limiter) => self.limiters.insert(limiter.get(), now),
            Nudge::Shortage(limiter, shortage) => {
                self.limiters.on_shortage(limiter.get(), shortage, now);
            }
            Nudge::Returned(limiter) => {
                limiter.get().clear_returned();
                let index = ResourceIndex::new(limiter.get().number());
                self.holder.report_returned(index, now);
            }
            Nudge::Overloaded(limiter) if limiter.get().is_current() => {
                let index = ResourceIndex::new(limiter.get().number());
                self.holder.on_overload(index, now);
            }
            Nudge::Overloaded(_) => {}
            Nudge::Cooling(units) => self.cooling.push_back((now.after(self.cool_down), units)),
            Nudge::OtherUnit(limiter, done) => {
                let limiter = limiter.get();
                let is_forgotten = !limiter.is_current()
                    || limiter.has_other_unit()
                        && self.rest(ResourceIndex::new(limiter.number()), now);
                // The check may be gone.
                done.send(is_forgotten).ok();
            }
        }
    }

    /// Handles a response, a failure, hints, the end of a poll or that of the process. Demands are
    /// measured instead of stated, and a [tick](Self::tick) does more than that of the holder.
    pub(super) fn handle(&mut self, event: Event, now: Moment) {
        match event {
            Event::Hinted { endpoint, hints } => self.on_hints(endpoint, hints, now),
            Event::Stop => {
                // Nothing uses these units, so that their lease can be released.
                self.cooling.clear();
                self.note_tokens(now);
                self.apply(Event::Stop, now);
            }
            other => self.apply(other, now),
        }
    }

    /// Passes an event to the holder, and publishes the changes to the limiters.
    fn apply(&mut self, event: Event, now: Moment) {
        let effects = self.holder.handle(event, now);
        self.share_templates();
        for mut effect in effects {
            match &mut effect {
                Effect::Changed { resource, status } => {
                    if let Some(index) = self.limiters.find(resource)
                        && let Some(publication) = self.limiters.publish(index, status, now)
                    {
                        if publication.gives_back {
                            self.holder.report_returned(index, now);
                        }
                        let resource = resource.clone();
                        self.actions.push(Action::Published {
                            resource,
                            publication,
                        });
                    }
                }
                Effect::SendRelease { request, .. } => {
                    request.tokens.clone_from(&self.tokens);
                    self.keep_units_in_use(request);
                }
                Effect::Send { .. }
                | Effect::OpenPoll { .. }
                | Effect::ClosePoll
                | Effect::Warn(_) => {}
            }
            self.actions.push(Action::Effect(effect));
        }
    }

    /// Notes for the release what the control plane keeps. A repeated stop finds no leases.
    fn note_tokens(&mut self, now: Moment) {
        let leased = self.limiters.iter().filter(|(it, _)| it.is_leased(now));
        let tokens = leased.filter_map(|(limiter, _)| {
            let tokens = limiter.long_bucket(now)?.tokens?;
            Some((limiter.resource(), tokens))
        });
        self.tokens.extend(tokens.take(MAX_RESOURCES));
    }

    /// Units in use stay leased until the lease ends, when all else is released.
    fn keep_units_in_use(&self, release: &mut ReleaseRequest) {
        let is_of_all = release.resource_ids.is_none();
        if is_of_all && self.limiters.iter().any(|(limiter, _)| is_in_use(limiter)) {
            let unused = self.limiters.iter().filter(|(it, _)| !is_in_use(*it));
            let unused = unused.map(|(limiter, _)| limiter.resource());
            release.resource_ids = Some(unused.take(MAX_RESOURCES).collect());
        }
    }

    /// Passes changed terms to the registry: requests for a new key may come before its limiter is
    /// known here.
    fn share_templates(&mut self) {
        let templates = self.holder.templates();
        if Arc::ptr_eq(templates, &self.templates) {
            return;
        }
        self.templates = Arc::clone(templates);
        if let Some(registry) = self.registry.upgrade() {
            let templates = Arc::clone(templates);
            registry.set_first_state(move |resource, unit, now| {
                let status = LeaseStatus {
                    lease: None,
                    terms: Some(templates.find(resource)?),
                    first_answer: FirstAnswer::Awaited,
                    requested: Capacity::ZERO,
                    refresh_interval: Duration::ZERO,
                    refresh_at: now,
                    reports_overloads: false,
                };
                Some(lease_state(&status, unit, false))
            });
        }
    }

    fn on_hints(&mut self, endpoint: usize, hints: HintsResponse, now: Moment) {
        if self.holder.end_poll(&hints, now) {
            self.actions.push(Action::Hinted {
                hints: hint_count(&hints),
                rules: hints.rules,
            });
        }
        let ids = hints.refresh.iter().map(|hint| &hint.resource_id);
        let due = self.limiters.measure_for_hints(ids, now);
        self.holder.await_measurement(&hints.refresh, due);
        let event = Event::Hinted { endpoint, hints };
        self.measured_hints.push((due, event));
        self.process_hints(now);
    }

    /// Passes on the hints whose demands are measured.
    fn process_hints(&mut self, now: Moment) {
        let due = self.measured_hints.extract_if(.., |(due, _)| *due <= now);
        for (_, event) in due.collect::<Vec<_>>() {
            self.apply(event, now);
        }
    }

    /// The resources of limiters that stay and have not been answered.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = ResourceId> {
        let limiters = self.limiters.iter();
        let awaited = limiters.filter(|(it, tracked)| it.is_permanent() && !tracked.answered);
        awaited.map(|(limiter, _)| limiter.resource())
    }

    /// Whether any limiter stays without requests.
    pub(super) fn has_permanent(&self) -> bool {
        self.limiters
            .iter()
            .any(|(limiter, _)| limiter.is_permanent())
    }

    /// Whether a resource has a limiter in another unit.
    pub(super) fn has_other_unit(&mut self, resource: &ResourceId) -> bool {
        let index = self.limiters.find(resource);
        let tracked = index.and_then(|index| self.limiters.get_mut(index));
        tracked.is_some_and(|(limiter, _)| limiter.has_other_unit())
    }

    /// Whether a resource has a limiter that stays without requests.
    pub(super) fn is_permanent(&mut self, resource: &ResourceId) -> bool {
        let index = self.limiters.find(resource);
        let tracked = index.and_then(|index| self.limiters.get_mut(index));
        tracked.is_some_and(|(limiter, _)| limiter.is_permanent())
    }
}

/// Whether units of a gauge are in use.
fn is_in_use(limiter: Limiter<'_>) -> bool {
    let units = limiter.units_in_use();
    units.is_some_and(|units| units.in_use > 0.0)
}
