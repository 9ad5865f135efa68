//! A client process: the real client state machine, with crashes, pauses and restarts.

use std::{cmp::Reverse, collections::VecDeque, ops::Range, sync::Arc, time::Duration};

use doorman_core::ledger::HolderId;
use doorman_openapi::{
    Capacity, CapacityRequest, CapacityResponse, ClientBand, ClientId, Epoch, HintsResponse,
    Moment, Reason, ResourceId, Run, Seconds, Seq, Unit,
};
use tower_doorman::{
    Cost, Outcome, OutcomeReport, Permit,
    lease::{Demand, DemandBands, Effect, Event, Holder, HolderSettings, SimulatedLayer},
};

use super::{
    ablation::{Rule, change_client_response},
    aimd::AimdLimit,
    clock::{Clock, ExpiringCapacity},
    limits::LimitUnit,
    network::{self, ClientCall, Message, PollCall, Polling, Process},
    operations::Operations,
    totals::RequestTotals,
};

/// A response that arrived.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) call: ClientCall,
    pub(super) outcome: network::Outcome,
}

/// When which master hinted a client.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LastHint {
    pub(super) server: usize,
    pub(super) epoch: Epoch,
    pub(super) at: Moment,
}

/// Requests to a client since its beginning, by resource.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct RequestCounts {
    pub(super) admitted: f64,
    pub(super) rejected: f64,
}

/// The leasing side of a client.
enum Leasing {
    /// Its demand is stated.
    Stated(Box<Holder>),
    /// Its layer measures the demand by requests.
    Measured(Box<SimulatedLayer>),
    /// It leases nothing, and keeps its limits alone.
    Alone(Vec<AimdLimit>),
}

/// A limit of a client that sends requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClientLimit {
    /// The index of the resource.
    pub(super) resource: usize,
    pub(super) unit: Unit,
    pub(super) priority: i32,
}

#[expect(clippy::struct_excessive_bools, reason = "each changes on its own")]
pub(super) struct Client {
    pub(super) clock: Clock,
    /// Counts restarts. Each incarnation has its own client id.
    pub(super) incarnation: u32,
    pub(super) is_up: bool,
    pub(super) paused_until: Option<Moment>,
    /// Replies that arrived during a pause.
    pub(super) inbox: VecDeque<Reply>,
    /// The capacity that the client may use, expiring in simulated time.
    pub(super) usable: Vec<ExpiringCapacity>,
    /// `None` for resources that the client does not lease. Of a rate per second where units are
    /// read.
    pub(super) wants: Vec<Option<f64>>,
    /// Whether it converts amounts from the units in which responses state them. Otherwise all
    /// amounts are in the unit of the document.
    pub(super) reads_units: bool,
    /// The unit of each resource by the last response.
    pub(super) units: Vec<LimitUnit>,
    /// Of resources that are gauges.
    pub(super) operations: Vec<Operations>,
    /// Whether it claims what it does not have.
    pub(super) is_liar: bool,
    /// Whether its requests state no units, as those of earlier versions.
    pub(super) states_no_units: bool,
    pub(super) priorities: Vec<i32>,
    /// The simulated time of the next timer.
    pub(super) wake: Moment,
    pub(super) polling: Polling,
    polls: bool,
    /// The position, among the servers of its node, of the server of the last request.
    pub(super) endpoint: usize,
    /// The newest transmission of this incarnation.
    pub(super) newest: Seq,
    /// The number of the last release.
    pub(super) released: Seq,
    /// Lease requests sent, of all incarnations.
    pub(super) requests: u64,
    /// When a server last hinted this client.
    pub(super) last_hint: Option<LastHint>,
    /// Whether it has stopped and does not start again.
    pub(super) has_left: bool,
    /// The demands of each resource by priority, where these are stated.
    pub(super) bands: Vec<Vec<(i32, f64)>>,
    pub(super) counts: Vec<RequestCounts>,
    /// Of each resource, if it states its demand and reports outcomes.
    pub(super) totals: Option<Vec<RequestTotals>>,
    /// Of a client that sends requests.
    limits: Vec<ClientLimit>,
    /// The first rates of its limits, if it keeps them alone.
    alone: Vec<f64>,
    leasing: Leasing,
    resources: Arc<[ResourceId]>,
    seed: u64,
    /// The time after which units of overloaded requests return.
    cool_down: Duration,
    index: usize,
    /// The number of the client id that it shares with another client, over restarts.
    shared_id: Option<usize>,
    /// The servers of its node.
    pub(super) servers: Range<usize>,
    without: Option<Rule>,
}

impl Client {
    pub(super) fn new(
        index: usize,
        clock: Clock,
        servers: Range<usize>,
        resources: Arc<[ResourceId]>,
        without: Option<Rule>,
    ) -> Self {
        let count = resources.len();
        Self {
            clock,
            incarnation: 0,
            is_up: false,
            paused_until: None,
            inbox: VecDeque::new(),
            usable: vec![ExpiringCapacity::default(); count],
            wants: vec![None; count],
            reads_units: false,
            units: vec![LimitUnit::Rate { per: 1.0 }; count],
            operations: (0..count).map(|_| Operations::default()).collect(),
            is_liar: false,
            states_no_units: false,
            priorities: vec![0; count],
            wake: Moment::NEVER,
            polling: Polling::default(),
            polls: false,
            endpoint: 0,
            newest: Seq::ZERO,
            released: Seq::ZERO,
            requests: 0,
            last_hint: None,
            has_left: false,
            bands: vec![Vec::new(); count],
            counts: vec![RequestCounts::default(); count],
            totals: None,
            limits: Vec::new(),
            alone: Vec::new(),
            leasing: Leasing::Stated(Box::new(Holder::new(HolderSettings {
                client_id: own_id(index, 0),
                run: Some(run(index, 0)),
                replaces: vec![client_id(&format!("client-{index}"))],
                endpoints: servers.len(),
                seed: index as u64,
            }))),
            resources,
            seed: 0,
            cool_down: SimulatedLayer::COOL_DOWN,
            index,
            shared_id: None,
            servers,
            without,
        }
    }

    /// Lets a client that has not started yet use the same client id as another one.
    pub(super) fn share_id(&mut self, number: usize) {
        self.shared_id = Some(number);
        self.leasing = self.new_leasing();
    }

    /// Whether another client uses its client id.
    pub(super) fn shares_id(&self) -> bool {
        self.shared_id.is_some()
    }

    /// Assigns a client that has not started yet to the node with these servers.
    pub(super) fn with_servers(mut self, servers: Range<usize>) -> Self {
        self.servers = servers;
        self.leasing = self.new_leasing();
        self
    }

    /// Whether its node is the root, whose servers have the first numbers.
    fn is_of_root(&self) -> bool {
        self.servers.start == 0
    }

    /// The server of the last request.
    pub(super) fn server(&self) -> usize {
        self.servers.start + self.endpoint
    }

    /// A client of a scenario, which has not started yet.
    pub(super) fn with_seed(mut self, seed: u64, limits: Vec<ClientLimit>) -> Self {
        self.seed = seed;
        self.limits = limits;
        self.leasing = self.new_leasing();
        self
    }

    /// Lets a client that has not started yet keep its limits alone, with these rates at first.
    pub(super) fn limited_alone(mut self, rates: Vec<f64>) -> Self {
        self.alone = rates;
        self.leasing = self.new_leasing();
        self
    }

    /// Lets units of overloaded requests return so much later in a client that has not started yet.
    pub(super) fn with_cool_down(mut self, cool_down: Duration) -> Self {
        self.cool_down = cool_down;
        self.leasing = self.new_leasing();
        self
    }

    /// Lets a client that has not started yet poll for hints.
    pub(super) fn enable_polls(&mut self) {
        self.polls = true;
        self.leasing = self.new_leasing();
    }

    fn new_leasing(&self) -> Leasing {
        let (index, incarnation) = (self.index, self.incarnation);
        let settings = HolderSettings {
            client_id: self.client_id(),
            run: Some(self.run()),
            replaces: vec![client_id(&format!("client-{index}"))],
            endpoints: self.servers.len(),
            seed: (self.seed).wrapping_add(u64::from(incarnation) * 100 + index as u64),
        };
        if !self.alone.is_empty() {
            let limits = self.alone.iter().copied().map(AimdLimit::new);
            Leasing::Alone(limits.collect())
        } else if self.limits.is_empty() {
            Leasing::Stated(Box::new(Holder::new(settings).polling(self.polls)))
        } else {
            let layer = SimulatedLayer::new(settings, self.polls);
            Leasing::Measured(Box::new(layer.with_cool_down(self.cool_down)))
        }
    }

    /// Whether it sends requests, instead of stating its demand.
    pub(super) fn sends_requests(&self) -> bool {
        !self.limits.is_empty()
    }

    /// Begins an incarnation that sends requests.
    pub(super) fn begin_requests(&mut self, time: Moment) {
        let now = self.clock.local(time);
        if let Leasing::Measured(layer) = &mut self.leasing {
            for limit in &self.limits {
                let resource = &self.resources[limit.resource];
                layer.add_limit(resource, limit.unit, limit.priority, now);
            }
        }
    }

    /// Handles the hints that end its poll.
    pub(super) fn on_hints(
        &mut self,
        endpoint: usize,
        hints: HintsResponse,
        time: Moment,
    ) -> Vec<Effect> {
        if let Leasing::Stated(holder) = &mut self.leasing {
            holder.end_poll(&hints, self.clock.local(time));
        }
        self.handle(Event::Hinted { endpoint, hints }, time)
    }

    /// The poll that is open from now on, and the server that gets it.
    pub(super) fn poll_message(&mut self, endpoint: usize, after: u64) -> (Process, Message) {
        let server = self.servers.start + endpoint;
        let number = self.polling.open(server);
        let message = Message::Poll {
            call: self.poll_call(number),
            poller: HolderId::Client(self.client_id(), Some(self.run())),
            after,
        };
        (Process::Server(server), message)
    }

    /// Closes the open poll.
    pub(super) fn close_poll(&mut self) -> Option<(usize, PollCall)> {
        let (server, number) = self.polling.end()?;
        Some((server, self.poll_call(number)))
    }

    fn poll_call(&self, number: u64) -> PollCall {
        PollCall {
            incarnation: self.incarnation,
            number,
        }
    }

    /// Decides a request at one of its limits. If it is admitted, returns the index of the resource
    /// and the units that it uses.
    pub(super) fn request(
        &mut self,
        limit: usize,
        time: Moment,
    ) -> Option<(usize, Option<Permit>)> {
        let now = self.clock.local(time);
        let admitted = match &mut self.leasing {
            Leasing::Measured(layer) => layer.admit(limit, Cost::ONE, now).map(Some),
            Leasing::Alone(limits) => limits[limit].admit(now).then_some(None),
            Leasing::Stated(_) => return None,
        };
        let resource = self.limits[limit].resource;
        let counts = &mut self.counts[resource];
        if admitted.is_some() {
            counts.admitted += 1.0;
        } else {
            counts.rejected += 1.0;
        }
        admitted.map(|permit| (resource, permit))
    }

    /// Ends a request that one of its limits admitted.
    pub(super) fn end_request(
        &mut self,
        limit: usize,
        permit: Option<Permit>,
        outcome: Outcome,
        report: &OutcomeReport,
        time: Moment,
    ) {
        let now = self.clock.local(time);
        match &mut self.leasing {
            Leasing::Measured(layer) => {
                if let Some(permit) = permit {
                    layer.end(limit, permit, report, now);
                }
            }
            Leasing::Alone(limits) if outcome == Outcome::Overloaded => {
                limits[limit].on_overload(now);
            }
            Leasing::Alone(_) | Leasing::Stated(_) => {}
        }
    }

    /// The index of a resource of this client.
    pub(super) fn resource_index(&self, id: &ResourceId) -> Option<usize> {
        self.resources.iter().position(|it| it == id)
    }

    pub(super) fn is_running(&self) -> bool {
        self.is_up && self.paused_until.is_none()
    }

    /// Ends this incarnation without a release.
    pub(super) fn crash(&mut self) {
        self.is_up = false;
        self.incarnation += 1;
        self.polling.end();
        self.paused_until = None;
        self.inbox.clear();
        self.usable.fill(ExpiringCapacity::default());
        self.units.fill(LimitUnit::Rate { per: 1.0 });
        self.operations.iter_mut().for_each(Operations::clear);
        if let Some(totals) = &mut self.totals {
            totals.fill(RequestTotals::default());
        }
        self.wake = Moment::NEVER;
        self.newest = Seq::ZERO;
        self.released = Seq::ZERO;
        self.last_hint = None;
        self.leasing = self.new_leasing();
    }

    /// The simulated time at which the state machine needs a tick.
    pub(super) fn wake_at(&self) -> Moment {
        self.clock.time(match &self.leasing {
            Leasing::Stated(holder) => holder.wake_at(),
            Leasing::Measured(layer) => layer.wake_at(),
            Leasing::Alone(_) => Moment::NEVER,
        })
    }

    /// With the priority that was set.
    pub(super) fn set_demand(&mut self, resource: usize, wants: f64, time: Moment) -> Vec<Effect> {
        self.wants[resource] = Some(wants);
        if self.sends_requests() {
            return Vec::new();
        }
        let bands = self.bands[resource]
            .iter()
            .map(|(priority, wants)| ClientBand {
                priority: *priority,
                wants: Capacity::saturating(*wants),
            });
        let mut bands: Vec<_> = bands.collect();
        bands.sort_unstable_by_key(|it| Reverse(it.priority));
        let unit = self.units[resource];
        let in_use = self.operations[resource].in_use;
        let totals = self.totals.as_ref().map(|it| it[resource]);
        let demand = Demand {
            used: Capacity::saturating(totals.map_or(0.0, |it| it.used)),
            feedback: totals.map(|it| it.feedback(unit.is_gauge())),
            wants: Capacity::saturating(wants / unit.scale()),
            outstanding: Capacity::saturating(in_use),
            priority: self.priorities[resource],
            bands: (bands.len() > 1).then(|| Arc::new(DemandBands(bands))),
            ..Demand::default()
        };
        let resource = self.resources[resource].clone();
        self.handle(Event::Demand { resource, demand }, time)
    }

    /// The amount that it may use, and what its operations use beyond that.
    pub(super) fn counted(&self, resource: usize, time: Moment) -> f64 {
        let usable = self.usable[resource].at(time);
        usable.max(self.operations[resource].counted(time))
    }

    /// Changes the units of a gauge that are in use.
    pub(super) fn change_in_use(&mut self, resource: usize, by: f64, time: Moment) -> Vec<Effect> {
        let in_use = &mut self.operations[resource].in_use;
        *in_use = (*in_use + by).max(0.0);
        let wants = self.wants[resource].unwrap_or_default();
        self.set_demand(resource, wants, time)
    }

    /// Reports a resource before it is due.
    pub(super) fn report_soon(&mut self, resource: usize, time: Moment) -> Vec<Effect> {
        let resource = self.resources[resource].clone();
        self.handle(Event::Report { resource }, time)
    }

    /// Records the operations that a request reports.
    pub(super) fn on_send(&mut self, seq: Seq, request: &CapacityRequest, time: Moment) {
        for asked in &request.resources {
            let Some(index) = self.resource_index(&asked.resource_id) else {
                continue;
            };
            if let Some(totals) = &mut self.totals {
                totals[index].seen = None;
            }
            let usable = self.usable[index];
            // At a node the lease that covers them may end before the newest one.
            if self.units[index].is_gauge() && self.is_of_root() && usable.at(time) > 0.0 {
                self.operations[index].report(seq, asked.outstanding.get(), usable.expires);
            }
        }
    }

    /// Releases a resource.
    pub(super) fn forget(&mut self, resource: usize, time: Moment) -> Vec<Effect> {
        self.wants[resource] = None;
        self.usable[resource] = ExpiringCapacity::default();
        if let Some(totals) = &mut self.totals {
            totals[resource] = RequestTotals::default();
        }
        let resource = self.resources[resource].clone();
        self.handle(Event::Forget { resource }, time)
    }

    /// Releases all resources.
    pub(super) fn stop(&mut self, time: Moment) -> Vec<Effect> {
        self.handle(Event::Stop, time)
    }

    pub(super) fn tick(&mut self, time: Moment) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.totals.is_some() {
            // For the requests that are due.
            for resource in 0..self.wants.len() {
                let wants = self.wants[resource];
                effects
                    .extend(wants.map_or_else(Vec::new, |it| self.set_demand(resource, it, time)));
            }
        }
        effects.extend(self.handle(Event::Tick, time));
        effects
    }

    /// A request to the target of a resource was overloaded.
    pub(super) fn on_overload(&mut self, resource: usize, time: Moment) -> Vec<Effect> {
        let resource = self.resources[resource].clone();
        self.handle(Event::Overloaded { resource }, time)
    }

    /// Handles a reply. Also returns the resources for which it took all capacity although the
    /// client wants some.
    pub(super) fn on_reply(&mut self, reply: Reply, time: Moment) -> (Vec<Effect>, Vec<usize>) {
        let ClientCall { seq, sent, .. } = reply.call;
        let mut response = match reply.outcome {
            Ok(response) => response,
            Err(failure) => {
                return (
                    self.handle(Event::Failed { seq, failure }, time),
                    Vec::new(),
                );
            }
        };
        if let Some(rule) = self.without {
            let latency = self.clock.local(time).seconds_since(sent);
            change_client_response(rule, &mut response, latency);
        }
        let zero_grants: Vec<usize> = response
            .resources
            .iter()
            .filter(|it| it.gets.capacity == Capacity::ZERO && it.reason != Reason::Blocked)
            // A node without a lease from its parent grants none.
            .filter(|it| self.is_of_root() || it.gets.lease_length > Seconds::ZERO)
            .filter_map(|it| self.resource_index(&it.resource_id))
            .filter(|resource| self.usable[*resource].at(time) > 0.0)
            .filter(|resource| self.wants[*resource].is_some_and(|wants| wants > 0.0))
            .collect();
        let (effects, converted) = self.accept(seq, response, time);
        // Leases in another unit are none.
        let is_lost = |it: &usize| self.usable[*it].at(time) == 0.0 && !converted.contains(it);
        let lost = zero_grants.into_iter().filter(is_lost).collect();
        (effects, lost)
    }

    /// Handles a response. Also returns the resources whose unit is another one than before.
    fn accept(
        &mut self,
        seq: Seq,
        response: CapacityResponse,
        time: Moment,
    ) -> (Vec<Effect>, Vec<usize>) {
        let epoch = response.epoch;
        let units = self.units_in(&response);
        let before = self.units.clone();
        let usable_before = self.usable.clone();
        let mut effects = self.handle_answer(Event::Answered { seq, response }, &units, time);
        let mut converted = Vec::new();
        for index in units.iter().map(|(index, _)| *index) {
            let (unit, usable) = (self.units[index], self.usable[index]);
            self.operations[index].on_answer(seq, epoch, time);
            // The client ignores some responses.
            let is_new = usable != usable_before[index];
            if unit.is_gauge() && is_new && usable.at(time) > 0.0 {
                self.operations[index].add_lease(usable.amount, usable.expires, epoch, time);
            }
            if unit != before[index] {
                converted.push(index);
                if !unit.is_gauge() {
                    self.operations[index].clear();
                }
                let wants = self.wants[index];
                effects.extend(wants.map_or_else(Vec::new, |it| self.set_demand(index, it, time)));
            }
        }
        (effects, converted)
    }

    /// The units of the resources of a response.
    fn units_in(&self, response: &CapacityResponse) -> Vec<(usize, LimitUnit)> {
        let read = response.resources.iter().filter(|_| self.reads_units);
        let units = read.filter_map(|it| {
            let unit = match it.unit? {
                Unit::Gauge => LimitUnit::Gauge,
                Unit::Rate => LimitUnit::Rate { per: it.per?.get() },
            };
            Some((self.resource_index(&it.resource_id)?, unit))
        });
        units.collect()
    }

    pub(super) fn client_id(&self) -> ClientId {
        match self.shared_id {
            Some(number) => client_id(&format!("clone-{number}")),
            None => own_id(self.index, self.incarnation),
        }
    }

    fn run(&self) -> Run {
        run(self.index, self.incarnation)
    }

    pub(super) fn handle(&mut self, event: Event, time: Moment) -> Vec<Effect> {
        self.handle_answer(event, &[], time)
    }

    /// Handles an event: a response with these units, or another one.
    fn handle_answer(
        &mut self,
        event: Event,
        units: &[(usize, LimitUnit)],
        time: Moment,
    ) -> Vec<Effect> {
        let now = self.clock.local(time);
        let effects = match &mut self.leasing {
            Leasing::Stated(holder) => holder.handle(event, now),
            Leasing::Measured(layer) if event == Event::Tick => layer.tick(now),
            Leasing::Measured(layer) => layer.handle(event, now),
            Leasing::Alone(_) => Vec::new(),
        };
        for effect in &effects {
            if let Effect::Changed { resource, status } = effect
                && let Some(index) = self.resource_index(resource)
            {
                if let Some((_, unit)) = units.iter().find(|(it, _)| *it == index) {
                    self.units[index] = *unit;
                }
                self.usable[index] = status
                    .lease
                    .map(|lease| ExpiringCapacity {
                        amount: lease.capacity.get() * self.units[index].scale(),
                        expires: self.clock.time(lease.ends),
                    })
                    .unwrap_or_default();
            }
        }
        effects
    }
}

fn own_id(index: usize, incarnation: u32) -> ClientId {
    client_id(&format!("client-{index}-{incarnation}"))
}

/// Another number for each process of a simulation.
fn run(index: usize, incarnation: u32) -> Run {
    Run::of_bits((u64::from(incarnation) << 32 | index as u64) << 11)
}

fn client_id(id: &str) -> ClientId {
    ClientId::new(id).expect("the id is valid")
}
