//! The state machine: all the resources of one client, and the requests under way for them.

mod outcome;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use doorman_openapi::{CapacityRequest, ClientId, Moment, ReleaseRequest, ResourceId, Seq};

use super::{
    Demand, Effect, Event, Failure, Holding,
    backoff::{Backoff, LONGEST_WHILE_LAPSED},
    batch::{self, Batch, Mixing},
    endpoints::Endpoints,
    entry::Entry,
    rarely::Rarely,
    reign::Reign,
    resources::Resources,
    roll::Named,
    told::Templates,
};

/// The most releases that wait to be sent; what does not fit is freed when its lease ends.
const MOST_RELEASES: usize = 10_000;

/// Who holds leases, and from whom.
#[derive(Debug, Clone)]
pub struct HolderSettings {
    /// The holder. Two processes never share one.
    pub client_id: ClientId,
    /// How many servers there are to ask; at least one is taken for granted.
    pub endpoints: usize,
    /// Where chance begins: the same events then have the same effects.
    pub seed: u64,
}

/// The leasing side of one client: a pure state machine that is told what happened and answers what to do.
///
/// It keeps these promises, whatever it is told:
/// - a lease is counted from the moment its request was sent, and nothing lengthens it;
/// - at most one request is under way for a resource; the answer to any other is ignored;
/// - every transmission has a larger number than the one before;
/// - a smaller lease is obeyed at once, and reported at once;
/// - a failure never drops a lease before its end.
///
/// ```
/// use doorman_openapi::{Capacity, ClientId, Moment, ResourceId};
/// use tower_doorman::lease::{Demand, Effect, Event, Holder, HolderSettings};
///
/// let mut holder = Holder::new(HolderSettings {
///     client_id: ClientId::new("shop-1")?,
///     endpoints: 1,
///     seed: 7,
/// });
/// let demand = Demand { wants: Capacity::saturating(50.0), ..Demand::default() };
/// holder.handle(Event::Demand { resource: ResourceId::new("db")?, demand }, Moment::ORIGIN);
///
/// let now = holder.wake_at();
/// let effects = holder.handle(Event::Tick, now);
/// assert!(matches!(&effects[..], [Effect::Send { request, .. }] if request.resources.len() == 1));
/// # Ok::<(), doorman_openapi::InvalidId>(())
/// ```
#[derive(Debug)]
pub struct Holder {
    client_id: ClientId,
    resources: Resources,
    under_way: BTreeMap<Seq, Batch>,
    /// Forgotten, and not yet given back.
    releases: BTreeSet<ResourceId>,
    seq: Seq,
    endpoints: Endpoints,
    backoff: Backoff,
    reign: Reign,
    templates: Templates,
    /// The most resources in the next request: less than usual after one was too large.
    batch_limit: usize,
    /// The same for those that have been refused.
    refused_limit: usize,
    /// Whether new leases are asked for along with renewals: not from when they are refused until one is served.
    mixing: Mixing,
    /// When what was refused last is asked for again.
    refused_until: Moment,
    chance: fastrand::Rng,
    unreachable: Rarely,
    foreign: Rarely,
    stale: Rarely,
    stopped: bool,
}

impl Holder {
    /// A holder of nothing.
    #[must_use]
    pub fn new(settings: HolderSettings) -> Self {
        Self {
            client_id: settings.client_id,
            resources: Resources::default(),
            under_way: BTreeMap::new(),
            releases: BTreeSet::new(),
            seq: Seq::ZERO,
            endpoints: Endpoints::new(settings.endpoints),
            backoff: Backoff::default(),
            reign: Reign::default(),
            templates: Templates::default(),
            batch_limit: batch::MOST,
            refused_limit: batch::MOST_REFUSED,
            mixing: Mixing::Together,
            refused_until: Moment::ORIGIN,
            chance: fastrand::Rng::with_seed(settings.seed),
            unreachable: Rarely::default(),
            foreign: Rarely::default(),
            stale: Rarely::default(),
            stopped: false,
        }
    }

    /// Takes in what happened by `now`, and says what to do. `now` never goes back.
    #[must_use = "what is held may have changed"]
    pub fn handle(&mut self, event: Event, now: Moment) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::Stop => self.stop(now, &mut effects),
            Event::Demand { resource, demand } if !self.stopped => {
                self.demanded(&resource, demand, now, &mut effects);
            }
            Event::Tick if !self.stopped => self.tick(now, &mut effects),
            Event::Demand { .. } | Event::Tick => {}
            Event::Forget { resource } => self.forget(resource),
            Event::Answered { seq, response } => {
                if let Some(batch) = self.under_way.remove(&seq) {
                    self.answered(seq, &batch, response, now, &mut effects);
                }
            }
            Event::Failed { seq, failure } => {
                if let Some(batch) = self.under_way.remove(&seq) {
                    self.failed(seq, &batch, failure, now, &mut effects);
                }
            }
        }
        effects
    }

    /// When to [tick](Event::Tick) next; not after now while there is more to do.
    #[must_use]
    pub fn wake_at(&self) -> Moment {
        if self.stopped {
            return Moment::NEVER;
        }
        let not_before = self.not_before();
        let due = self
            .resources
            .first_due(self.newcomers_from())
            .map(|due| due.max(self.room_at()));
        let release = self.releases.first().map(|_| Moment::ORIGIN);
        let deadline = self.under_way.values().map(|batch| batch.deadline).min();
        [
            due.map(|due| due.max(not_before)),
            release.map(|release| release.max(not_before)),
            self.resources.first_end(),
            deadline,
        ]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(Moment::NEVER)
    }

    /// The resources that a tick at `now` would ask for: tell their demand first, so that what is sent is new.
    #[must_use]
    pub fn due(&self, now: Moment) -> Vec<ResourceId> {
        if self.stopped || now < self.room_at() || now < self.not_before() {
            return Vec::new();
        }
        let mixing = match self.mixing {
            Mixing::Together => Mixing::Together,
            Mixing::Apart { .. } => Mixing::Apart {
                newcomers_from: self.newcomers_from(),
            },
        };
        let (limit, refused_limit) = (self.batch_limit, self.refused_limit);
        batch::choose(&self.resources, limit, refused_limit, mixing, now)
    }

    /// When something new may be asked for. Where it was refused, one request finds out whether it still is.
    fn newcomers_from(&self) -> Moment {
        match self.mixing {
            Mixing::Together => Moment::ORIGIN,
            Mixing::Apart { .. } if self.under_way.values().any(|batch| batch.is_new) => {
                Moment::NEVER
            }
            Mixing::Apart { newcomers_from } => newcomers_from,
        }
    }

    /// When another request may be under way. After a failure one finds out whether it is over; but while anything is lapsed, one that
    /// renews what lasts, and has time, does not hold up the rest.
    fn room_at(&self) -> Moment {
        if self.under_way.len() >= batch::MOST_UNDER_WAY {
            return Moment::NEVER;
        }
        let newest = self.under_way.values().map(|batch| batch.sent).max();
        match newest {
            Some(_) if self.backoff.is_over() => Moment::ORIGIN,
            Some(sent) if self.resources.anything_lapsed() => sent.after(LONGEST_WHILE_LAPSED),
            Some(_) => Moment::NEVER,
            None => Moment::ORIGIN,
        }
    }

    fn not_before(&self) -> Moment {
        self.backoff.until(self.resources.anything_lapsed())
    }

    fn demanded(
        &mut self,
        id: &ResourceId,
        demand: Demand,
        now: Moment,
        effects: &mut Vec<Effect>,
    ) {
        let known = self
            .resources
            .update(id, |entry| entry.demanded(demand, now));
        if known.is_none() {
            self.releases.remove(id);
            let told = self.templates.of(id);
            self.resources
                .insert(Entry::new(id.clone(), demand, told, now));
            self.changed(id, now, effects);
        }
    }

    fn forget(&mut self, id: ResourceId) {
        let entry = self.resources.remove(&id);
        if entry.is_some_and(|entry| entry.was_sent()) && self.releases.len() < MOST_RELEASES {
            self.releases.insert(id);
        }
    }

    fn tick(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        self.lapse(now, effects);
        let overdue: Vec<Seq> = self
            .under_way
            .iter()
            .filter(|(_, batch)| batch.deadline <= now)
            .map(|(seq, _)| *seq)
            .collect();
        for seq in overdue {
            if let Some(batch) = self.under_way.remove(&seq) {
                let failure = Failure::Unavailable { retry_after: None };
                self.failed(seq, &batch, failure, now, effects);
            }
        }
        self.send_releases(now, effects);
        let chosen = self.due(now);
        if !chosen.is_empty() {
            self.send(chosen, now, effects);
        }
    }

    fn lapse(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        let lapsed: Vec<ResourceId> = self
            .resources
            .leased()
            .take_while(|(ends, _)| *ends <= now)
            .map(|(_, entry)| entry.resource().clone())
            .collect();
        for id in lapsed {
            self.resources.update(&id, Entry::lose);
            self.changed(&id, now, effects);
        }
    }

    fn send(&mut self, chosen: Vec<ResourceId>, now: Moment, effects: &mut Vec<Effect>) {
        let seq = self.next_seq();
        let endpoint = self.endpoints.current();
        let mut timeout = batch::timeout(&self.resources, &chosen, now);
        if !self.backoff.is_over() {
            // The others wait for what comes of it.
            timeout = timeout.min(LONGEST_WHILE_LAPSED);
        }
        let is_new = |id| {
            let entry = self.resources.get(id);
            entry.is_some_and(|entry| entry.ends().is_none())
        };
        let is_new = chosen.iter().any(is_new);
        let resources = chosen
            .iter()
            .filter_map(|id| self.resources.update(id, |entry| entry.send(seq, now)))
            .collect();
        let batch = Batch {
            resources: chosen,
            endpoint,
            sent: now,
            deadline: now.after(timeout),
            is_new,
        };
        self.under_way.insert(seq, batch);
        effects.push(Effect::Send {
            seq,
            endpoint,
            request: CapacityRequest {
                client_id: self.client_id.clone(),
                seq: Some(seq),
                resources,
            },
            timeout,
        });
    }

    fn send_releases(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        if self.releases.is_empty() || now < self.not_before() {
            return;
        }
        let mut ids = Vec::new();
        while ids.len() < batch::MOST
            && let Some(id) = self.releases.pop_first()
        {
            ids.push(id);
        }
        self.release(Some(ids), effects);
    }

    fn release(&mut self, resource_ids: Option<Vec<ResourceId>>, effects: &mut Vec<Effect>) {
        let seq = self.next_seq();
        effects.push(Effect::SendRelease {
            seq,
            endpoint: self.endpoints.current(),
            request: ReleaseRequest {
                client_id: self.client_id.clone(),
                seq: Some(seq),
                resource_ids,
            },
        });
    }

    fn stop(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        if self.stopped {
            // The last release came to nothing.
            self.endpoints.skip();
        }
        self.stopped = true;
        self.under_way.clear();
        let leased = self.resources.leased();
        let leased: Vec<ResourceId> = leased.map(|(_, entry)| entry.resource().clone()).collect();
        for id in leased {
            self.resources.update(&id, Entry::lose);
            self.changed(&id, now, effects);
        }
        if self.seq > Seq::ZERO {
            self.release(None, effects);
        }
    }

    /// What is held of a resource at `now`; `None` when it is not wanted.
    #[must_use]
    pub fn holding(&self, resource: &ResourceId, now: Moment) -> Option<Holding> {
        let entry = self.resources.get(resource)?;
        let not_before = match (entry.ends(), self.mixing) {
            (None, Mixing::Apart { newcomers_from }) => newcomers_from.max(self.not_before()),
            (Some(_), _) | (None, Mixing::Together) => self.not_before(),
        };
        Some(entry.holding(not_before, now))
    }

    /// Says what is held of a resource from now on.
    fn changed(&self, id: &ResourceId, now: Moment, effects: &mut Vec<Effect>) {
        let holding = self.holding(id, now);
        effects.extend(holding.map(|holding| Effect::Changed {
            resource: id.clone(),
            holding,
        }));
    }

    fn next_seq(&mut self) -> Seq {
        self.seq = self.seq.next();
        self.seq
    }
}
