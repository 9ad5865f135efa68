//! State machine of one holder: its resources and the requests in flight for them.

mod hints;
mod resource;
mod resources;
mod response;
mod terms;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use doorman_openapi::{CapacityRequest, ClientId, Moment, ReleaseRequest, ResourceId, Run, Seq};

pub use self::terms::TemplateTerms;
use self::{
    resource::{MIN_OVERLOAD_PAUSE, Resource},
    resources::{BatchLimits, Resources},
};
use crate::{
    backoff::Backoff,
    event::{Demand, Effect, Event, Failure, FirstAnswer, LeaseStatus},
    hint_poller::HintPoller,
    index::{Names, OwnNames, ResourceIndex},
    log_throttle::LogThrottle,
    servers::{Endpoints, MasterTracker},
    tuning::Tuning,
};

/// How soon a jump of demand is noticed, and then reported again, under SUPPRESSION. The control
/// plane acts on demand that has lasted for about a second.
pub const FOLLOW_UP_INTERVAL: Duration = Duration::from_millis(250);

/// Until a response says how often to refresh.
const DEFAULT_REFRESH_INTERVAL: Duration = Duration::from_secs(5);
const MAX_BATCH: usize = 1_000;
/// The most rejected resources in one request: a server names only so many positions.
const MAX_REJECTED_BATCH: usize = 100;
/// A new resource need not wait for a slow response; a dead server collects few requests.
const MAX_IN_FLIGHT: usize = 8;
/// The most queued releases. Beyond it, capacity is freed when the lease expires.
const MAX_RELEASES: usize = 10_000;

/// Settings of a [`Holder`].
#[derive(Debug, Clone)]
pub struct HolderSettings {
    /// The holder's id. No two processes should share one.
    pub client_id: ClientId,
    /// The run of the process, which tells it from others that use the same id; random. `None`: it
    /// states none, as a node.
    pub run: Option<Run>,
    /// Clients that are known to be dead, as in
    /// [`CapacityRequest::replaces`](doorman_openapi::CapacityRequest::replaces); at most 8.
    pub replaces: Vec<ClientId>,
    /// The number of servers to ask; at least one is assumed.
    pub endpoints: usize,
    /// The seed of jitter: the same events then have the same effects.
    pub seed: u64,
}

/// The leasing side of one client, as a pure state machine from events to effects.
///
/// For any sequence of events:
/// - a lease ends its length after its request was sent, and nothing extends it;
/// - at most one request is in flight for a resource, and any other response is ignored;
/// - every transmission has a larger sequence number than the one before;
/// - a smaller lease is applied and reported immediately;
/// - a failure never drops a lease before its end.
///
/// ```
/// use doorman_openapi::{Capacity, ClientId, Moment, ResourceId, Run};
/// use doorman_holder::{Demand, Effect, Event, Holder, HolderSettings};
///
/// let mut holder = Holder::new(HolderSettings {
///     client_id: ClientId::new("shop-1")?,
///     run: Some(Run::of_bits(0x9e37_79b9_7f4a_7c15)),
///     replaces: Vec::new(),
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
#[derive(Debug, Clone)]
pub struct Holder<N = OwnNames> {
    client_id: ClientId,
    run: Option<Run>,
    replaces: Vec<ClientId>,
    resources: Resources<N>,
    in_flight: BTreeMap<Seq, Request>,
    /// Forgotten resources that are not released yet.
    releases: BTreeSet<ResourceId>,
    seq: Seq,
    endpoints: Endpoints,
    backoff: Backoff,
    is_one_of_few: bool,
    /// `None`: it does not poll.
    poller: Option<HintPoller>,
    /// The server that tells of changed rules.
    rules_source: Option<usize>,
    master: MasterTracker,
    templates: Arc<TemplateTerms>,
    /// Smaller than usual after a request was too large or rejected.
    batch_limits: BatchLimits,
    /// When new leases may be requested, apart from renewals: the server rate limits them, and a
    /// request with one would fail as a whole. `None`: together with renewals.
    new_leases_after: Option<Moment>,
    /// When the resources that were rejected last are requested again.
    rejected_until: Moment,
    /// The shortest of the last response.
    refresh_interval: Duration,
    /// When the newest request that reports overloads was sent.
    overloads_sent: Option<Moment>,
    tuning: Tuning,
    rng: fastrand::Rng,
    unreachable: LogThrottle,
    foreign_node: LogThrottle,
    stale_epoch: LogThrottle,
    stopped: bool,
    effects: Vec<Effect>,
}

#[derive(Debug, Clone)]
struct Request {
    seq: Seq,
    resources: Vec<ResourceIndex>,
    endpoint: usize,
    sent: Moment,
    deadline: Moment,
    wants_new_lease: bool,
}

impl Holder {
    /// Creates a holder without resources.
    #[must_use]
    pub fn new(settings: HolderSettings) -> Self {
        Self::with_names(settings, OwnNames::default())
    }
}

impl<N: Names> Holder<N> {
    /// Creates a holder without resources, whose resources get their numbers from `names`.
    #[must_use]
    pub fn with_names(settings: HolderSettings, names: N) -> Self {
        let mut rng = fastrand::Rng::with_seed(settings.seed);
        // A fleet does not begin at one server.
        let first_server = rng.usize(..settings.endpoints.max(1));
        Self {
            client_id: settings.client_id,
            run: settings.run,
            replaces: settings.replaces,
            resources: Resources::new(names),
            in_flight: BTreeMap::new(),
            releases: BTreeSet::new(),
            seq: Seq::ZERO,
            endpoints: Endpoints::new(settings.endpoints, first_server),
            backoff: Backoff::default(),
            is_one_of_few: false,
            poller: None,
            rules_source: None,
            master: MasterTracker::default(),
            templates: Arc::default(),
            batch_limits: BatchLimits {
                normal: MAX_BATCH,
                rejected: MAX_REJECTED_BATCH,
            },
            new_leases_after: None,
            rejected_until: Moment::ORIGIN,
            refresh_interval: DEFAULT_REFRESH_INTERVAL,
            overloads_sent: None,
            tuning: Tuning::DEFAULT,
            rng,
            unreachable: LogThrottle::default(),
            foreign_node: LogThrottle::default(),
            stale_epoch: LogThrottle::default(),
            stopped: false,
            effects: Vec::new(),
        }
    }

    /// Uses these constants instead of [`Tuning::DEFAULT`].
    #[must_use]
    pub fn with_tuning(self, tuning: Tuning) -> Self {
        Self { tuning, ..self }
    }

    /// One of few holders of its server, on which others depend. It pauses at most 250 ms after a
    /// failed request, and confirms its claims at a new master when that says so. By default these
    /// requests are spread over a refresh interval and more, because a fleet would send them at
    /// once.
    #[must_use]
    pub fn one_of_few(self) -> Self {
        Self {
            is_one_of_few: true,
            ..self
        }
    }

    /// Polls for hints, if `polls`.
    #[must_use]
    pub fn polling(mut self, polls: bool) -> Self {
        // Without polls the holder draws the same numbers.
        let seed = self.rng.clone().u64(..);
        self.poller = polls.then(|| HintPoller::new(seed));
        self
    }

    /// Requests all resources soon, although none is due.
    pub fn refresh_all(&mut self, now: Moment) {
        self.resources
            .update_all(|resource| resource.refresh_by(now));
    }

    /// The server to ask now: a position in the list of servers.
    #[must_use]
    pub fn server(&self) -> usize {
        self.endpoints.current()
    }

    /// Asks this server next, a position in the list of servers: the first one is random.
    pub fn begin_at(&mut self, endpoint: usize) {
        self.endpoints.on_success(endpoint);
    }

    /// Handles an event at `now`, which never goes back, and returns the effects.
    #[must_use = "what is held may have changed"]
    pub fn handle(&mut self, event: Event, now: Moment) -> Vec<Effect> {
        match event {
            Event::Stop => self.stop(now),
            Event::Demand { resource, demand } if !self.stopped => {
                self.set_demand(&resource, demand, now);
            }
            Event::Tick if !self.stopped => {
                self.tick(now);
                self.poll(now);
            }
            Event::Demand { .. } | Event::Tick => {}
            Event::Overloaded { resource } => {
                if let Some(index) = self.resources.find(&resource) {
                    self.on_overload(index, now);
                }
            }
            Event::Report { resource } => {
                if let Some(index) = self.resources.find(&resource) {
                    self.report_returned(index, now);
                }
            }
            Event::Forget { resource } => {
                if let Some(index) = self.resources.find(&resource) {
                    self.forget(index, resource);
                }
            }
            Event::Answered { seq, response } => {
                if let Some(request) = self.in_flight.remove(&seq) {
                    self.on_response(&request, response, now);
                    self.schedule_poll_after_answer(request.endpoint, now);
                }
            }
            Event::Hinted { endpoint, hints } => self.on_hints(endpoint, &hints, now),
            Event::PollFailed { endpoint, failure } => self.on_poll_failed(endpoint, &failure, now),
            Event::PollUnsupported => {
                if let Some(poller) = &mut self.poller {
                    poller.on_unsupported(now);
                }
            }
            Event::Failed { seq, failure } => {
                if let Some(request) = self.in_flight.remove(&seq) {
                    self.on_failure(&request, failure, now);
                }
            }
        }
        std::mem::take(&mut self.effects)
    }

    /// When to [tick](Event::Tick) next; not after now while there is more to do.
    #[must_use]
    pub fn wake_at(&self) -> Moment {
        if self.stopped {
            return Moment::NEVER;
        }
        let backoff = self.backoff_until();
        let due = self.resources.first_due(self.new_leases_from());
        let release = self.releases.first().map(|_| backoff);
        let deadline = self.in_flight.values().map(|it| it.deadline).min();
        [
            self.poller_wakes_at(),
            due.map(|due| due.max(self.next_send_at()).max(backoff)),
            release,
            self.resources.first_lease_end(),
            deadline,
        ]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(Moment::NEVER)
    }

    /// The resources that a tick at `now` would request. Report their demand first.
    #[must_use]
    pub fn due(&self, now: Moment) -> Vec<ResourceId> {
        let due = self.due_indices(now).into_iter();
        due.filter_map(|index| self.resources.id(index)).collect()
    }

    /// The numbers of the resources that are [`due`](Self::due).
    #[must_use]
    pub fn due_indices(&self, now: Moment) -> Vec<ResourceIndex> {
        if self.stopped || now < self.next_send_at() || now < self.backoff_until() {
            return Vec::new();
        }
        self.resources
            .next_batch(self.batch_limits, self.new_leases_from(), now)
    }

    /// The status of a resource at `now`; `None` when it is not wanted.
    #[must_use]
    pub fn status(&self, resource: &ResourceId, now: Moment) -> Option<LeaseStatus> {
        self.holding_at(self.resources.find(resource)?, now)
    }

    fn holding_at(&self, index: ResourceIndex, now: Moment) -> Option<LeaseStatus> {
        let resource = self.resources.get(index)?;
        let new_leases_after = self.new_leases_after.unwrap_or_default();
        let not_before = match resource.lease_end() {
            None => self.backoff_until().max(new_leases_after),
            Some(_) => self.backoff_until(),
        };
        Some(resource.status(not_before, now))
    }

    /// The terms known by template, another allocation after every change.
    #[must_use]
    pub fn templates(&self) -> &Arc<TemplateTerms> {
        &self.templates
    }

    /// The number of resources without a lease.
    #[must_use]
    pub fn without_lease(&self) -> usize {
        self.resources.without_lease()
    }

    /// Whether any resource has a lease.
    #[must_use]
    pub fn has_leases(&self) -> bool {
        self.resources.first_lease_end().is_some()
    }

    /// As `new_leases_after`. While new leases are rate limited, one request probes.
    fn new_leases_from(&self) -> Option<Moment> {
        let not_before = self.new_leases_after?;
        let probes = self.in_flight.values().any(|it| it.wants_new_lease);
        Some(if probes { Moment::NEVER } else { not_before })
    }

    /// When one more request may be in flight. After a failure a single request probes, unless a
    /// lease is missing: then a slow renewal does not hold up the others.
    fn next_send_at(&self) -> Moment {
        if self.in_flight.len() >= MAX_IN_FLIGHT {
            return Moment::NEVER;
        }
        match self.in_flight.values().map(|request| request.sent).max() {
            None => Moment::ORIGIN,
            Some(_) if self.backoff.is_idle() => Moment::ORIGIN,
            Some(sent) if self.without_lease() > 0 => {
                sent.after(self.tuning.max_pause_without_lease)
            }
            Some(_) => Moment::NEVER,
        }
    }

    fn backoff_until(&self) -> Moment {
        self.backoff.until(self.without_lease() > 0)
    }

    fn set_demand(&mut self, id: &ResourceId, demand: Demand, now: Moment) {
        let index = self.resources.find(id);
        if index.is_some_and(|index| self.update_demand(index, &demand, now)) {
            return;
        }
        self.releases.remove(id);
        let terms = self.templates.find(id);
        // During an outage no answer comes in a round trip.
        let answers = self.backoff.is_idle() && self.new_leases_after.is_none();
        let first_answer = if answers {
            FirstAnswer::Awaited
        } else {
            FirstAnswer::Failed
        };
        let resource = Resource::new(demand, terms, first_answer, now);
        if let Some(index) = self.resources.insert(id, resource) {
            self.emit_changed(index, now);
        }
    }

    /// Changes the demand for a resource that is wanted, as [`Event::Demand`] does without the cost
    /// of a lookup by id. Returns false if it is not wanted so far.
    pub fn update_demand(&mut self, index: ResourceIndex, demand: &Demand, now: Moment) -> bool {
        let tuning = &self.tuning;
        let update = |resource: &mut Resource| resource.set_demand(demand, tuning, now);
        self.resources.update(index, update).is_some()
    }

    /// As [`Event::Overloaded`].
    pub fn on_overload(&mut self, index: ResourceIndex, now: Moment) {
        // Many resources may be overloaded at once, as by one target. Their first reports wait for
        // each other.
        let next = self.overloads_sent.map(|it| it.after(MIN_OVERLOAD_PAUSE));
        let earliest = next.map_or(now, |it| it.max(now));
        self.resources.update(index, |it| it.on_overload(earliest));
    }

    /// As [`Event::Report`]: units of a gauge were given back, of which more are in use than
    /// leased.
    pub fn report_returned(&mut self, index: ResourceIndex, now: Moment) {
        let report = |resource: &mut Resource| resource.report_returned(now);
        self.resources.update(index, report);
    }

    /// As [`Event::Forget`], for a resource that may not be found by its id any more.
    pub fn forget(&mut self, index: ResourceIndex, id: ResourceId) {
        let resource = self.resources.remove(index);
        if resource.is_some_and(|it| it.was_sent()) && self.releases.len() < MAX_RELEASES {
            self.releases.insert(id);
        }
    }

    fn tick(&mut self, now: Moment) {
        let dropped = self.drop_leases(now, |end| end <= now);
        let overdue = self.in_flight.values().filter(|it| it.deadline <= now);
        let overdue: Vec<Seq> = overdue.map(|it| it.seq).collect();
        for seq in &overdue {
            if let Some(request) = self.in_flight.remove(seq) {
                let failure = Failure::Unavailable { retry_after: None };
                self.on_failure(&request, failure, now);
            }
        }
        self.send_releases(now);
        if dropped > 0 || !overdue.is_empty() {
            // More may be due now. Their demand is reported before the next tick.
            return;
        }
        let batch = self.due_indices(now);
        if !batch.is_empty() {
            self.send(batch, now);
        }
    }

    /// Returns the number of dropped leases.
    fn drop_leases(&mut self, now: Moment, ends: impl Fn(Moment) -> bool) -> usize {
        let leased = self.resources.leased().take_while(|(end, ..)| ends(*end));
        let dropped: Vec<ResourceIndex> = leased.map(|(_, index, _)| index).collect();
        for &index in &dropped {
            self.resources.update(index, Resource::drop_lease);
            self.emit_changed(index, now);
        }
        dropped.len()
    }

    fn send(&mut self, batch: Vec<ResourceIndex>, now: Moment) {
        let seq = self.next_seq();
        let endpoint = self.endpoints.current();
        let timeout = self.timeout(&batch, now);
        let wants_new_lease = self
            .resources
            .get_all(&batch)
            .any(|it| it.lease_end().is_none());
        let resources = batch
            .iter()
            .filter_map(|&index| {
                let id = self.resources.id(index)?;
                self.resources.update(index, |it| it.send(id, seq, now))
            })
            .collect();
        let request = Request {
            seq,
            resources: batch,
            endpoint,
            sent: now,
            deadline: now.after(timeout),
            wants_new_lease,
        };
        if self
            .resources
            .get_all(&request.resources)
            .any(Resource::told_overload)
        {
            self.overloads_sent = Some(now);
        }
        self.in_flight.insert(seq, request);
        self.effects.push(Effect::Send {
            seq,
            endpoint,
            request: CapacityRequest {
                client_id: self.client_id.clone(),
                run: self.run,
                seq: Some(seq),
                heard_epoch: self.master.heard_epoch(),
                polls: self.is_polling(endpoint, now),
                replaces: self.replaces.clone(),
                resources,
            },
            timeout,
        });
    }

    /// The shortest of the resources; bounded for a probe, because it holds up the others.
    fn timeout(&self, batch: &[ResourceIndex], now: Moment) -> Duration {
        let resources = self.resources.get_all(batch);
        let shortest = resources.map(|it| it.timeout(&self.tuning, now)).min();
        let timeout = shortest.unwrap_or_default();
        if self.backoff.is_idle() {
            timeout
        } else {
            timeout.min(self.tuning.max_pause_without_lease)
        }
    }

    fn send_releases(&mut self, now: Moment) {
        if self.releases.is_empty() || now < self.backoff_until() {
            return;
        }
        let mut ids = Vec::new();
        while ids.len() < MAX_BATCH
            && let Some(id) = self.releases.pop_first()
        {
            ids.push(id);
        }
        self.release(Some(ids));
    }

    /// Releases these resources; `None` releases all.
    fn release(&mut self, resource_ids: Option<Vec<ResourceId>>) {
        let seq = self.next_seq();
        self.effects.push(Effect::SendRelease {
            seq,
            endpoint: self.endpoints.current(),
            request: ReleaseRequest {
                client_id: self.client_id.clone(),
                run: self.run,
                seq: Some(seq),
                heard_epoch: self.master.heard_epoch(),
                resource_ids,
                tokens: BTreeMap::new(),
            },
        });
    }

    fn stop(&mut self, now: Moment) {
        if self.stopped {
            // The last release failed.
            self.endpoints.advance();
        }
        self.stopped = true;
        if self.poller.as_mut().is_some_and(|it| it.close(now)) {
            self.effects.push(Effect::ClosePoll);
        }
        self.in_flight.clear();
        self.drop_leases(now, |_| true);
        if self.seq > Seq::ZERO {
            self.release(None);
        }
    }

    fn emit_changed(&mut self, index: ResourceIndex, now: Moment) {
        if let Some(resource) = self.resources.id(index)
            && let Some(status) = self.holding_at(index, now)
        {
            self.effects.push(Effect::Changed { resource, status });
        }
    }

    fn next_seq(&mut self) -> Seq {
        self.seq = self.seq.next();
        self.seq
    }
}
