//! Event loop of a simulation, and the state of all processes.

mod demands;
mod ends;
mod extras;
mod faults;
mod feedback;
mod invariants;
mod lies;
mod messages;
mod polls;
mod processes;
mod targets;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use doorman_config::Document;
use doorman_openapi::{Epoch, Moment};
use fastrand::Rng;

use self::{
    demands::Demands,
    extras::ExtraFaults,
    invariants::{BrokenInvariant, CapacityCheck},
    polls::Polls,
    targets::Targets,
};
use super::{
    ablation::Rule,
    client::{Client, ClientLimit},
    clock::Clock,
    etcd::Etcd,
    event_queue::{Event, EventQueue},
    limits::{self, DIVIDED, Limit, Priorities, resource_ids},
    network::{Network, Process},
    random::Generator,
    report::{Plan, Stats, Violation},
    scenario::steps::Script,
    scenario::{OwnLimits, Scenario},
    server::Server,
    tree::{self, ELECTION_LEASE, Node, Participation},
};

/// The most servers of the root.
const SERVERS: usize = 3;
/// The number of events in a trace.
const TRACE_LENGTH: usize = 400;
/// The number of events in the trace of a scenario.
const SCENARIO_TRACE_LENGTH: usize = 100_000;

pub(super) struct Simulation {
    seed: u64,
    plan: Plan,
    pub(super) time: Moment,
    pub(super) rng: Rng,
    priorities: Priorities,
    events: EventQueue,
    pub(super) clients: Vec<Client>,
    pub(super) servers: Vec<Server>,
    /// The root, and the nodes below it.
    nodes: Vec<Node>,
    pub(super) network: Network,
    polls: Polls,
    extras: ExtraFaults,
    limits: Vec<Limit>,
    document: Arc<Document>,
    /// The longest lease of any document of this run, in seconds.
    longest_lease: f64,
    capacity_check: CapacityCheck,
    /// Of a scenario.
    demands: Option<Demands>,
    pub(super) targets: Targets,
    /// Whether a client has another lease since this was cleared.
    pub(super) has_lease_changed: bool,
    /// Leases of clients that ended before the next one began.
    pub(super) lapses: u64,
    /// The epoch of the last response to each client.
    pub(super) heard_epochs: BTreeMap<usize, Epoch>,
    pub(super) stats: Stats,
    /// A broken invariant that the current event has found.
    broken: Option<BrokenInvariant>,
    /// The first one of a node in a run without a rule.
    node_violation: Option<Box<Violation>>,
    trace: VecDeque<String>,
}

impl Simulation {
    /// A run with faults.
    pub(super) fn new(seed: u64, plan: Plan) -> Self {
        let mut rng = Rng::with_seed(seed);
        let resources = rng.usize(1..=DIVIDED);
        let priorities = Priorities::of_run(seed);
        let limits: Vec<_> = (0..resources)
            .map(|_| Limit::random(&mut rng, priorities))
            .collect();
        let servers = rng.usize(1..=SERVERS);
        let clients = rng.usize(2..=12);
        let without = plan.without;
        let clients = (0..clients)
            .map(|index| {
                let clock = Clock::random(&mut rng);
                Client::new(index, clock, 0..servers, resource_ids(), without)
            })
            .collect();
        let etcd = (servers > 1).then(|| Etcd::new(Clock::random(&mut rng)));
        let document = limits::document(&limits);
        let mut clocks: Vec<_> = (0..servers).map(|_| Clock::random(&mut rng)).collect();
        let rebuilds_etcd = etcd.is_some() && rng.u8(..8) == 0;
        let participation = Participation {
            ttl: etcd.is_some().then(|| rng.u32(2..=ELECTION_LEASE)),
            // Otherwise a server that has heard of no epoch would take a rebuilt etcd for a new
            // one.
            is_first: !rebuilds_etcd,
        };
        let mut nodes = vec![Node::root(servers, etcd, participation)];
        let mut clients: Vec<Client> = clients;
        if rng.bool() {
            nodes.extend(tree::random_nodes(servers, !rebuilds_etcd, &mut rng));
            let all = nodes.iter().flat_map(|it| it.servers.clone()).count();
            clocks.extend((servers..all).map(|_| Clock::random(&mut rng)));
            let spread = clients.into_iter().map(|client| {
                let node = rng.usize(..nodes.len());
                client.with_servers(nodes[node].servers.clone())
            });
            clients = spread.collect();
        }
        let servers = new_servers(&nodes, clocks.into_iter(), &document, without);
        let allows_cuts = without == Some(Rule::GradualCut) || rng.u8(..3) == 0;
        let mut simulation = Self {
            clients,
            servers,
            nodes,
            polls: Polls::of_run(seed),
            priorities,
            ..Self::empty(seed, plan, rng, document, limits)
        };
        simulation.add_extras();
        simulation.begin(rebuilds_etcd, allows_cuts);
        simulation
    }

    /// A run of a scenario, which has begun.
    pub(super) fn of_scenario(seed: u64, scenario: &Scenario, plan: Plan) -> Self {
        let mut rng = Rng::with_seed(seed);
        let without = plan.without;
        let servers = scenario.nodes.iter().map(|it| it.servers).sum();
        let clocks = (0..servers).map(|_| Clock::with_drift(scenario.clock_drift, &mut rng));
        let clocks: Vec<_> = clocks.collect();
        let groups = scenario.groups.iter();
        let members = groups.flat_map(|group| std::iter::repeat_n(group, group.count));
        let clients = members.enumerate().map(|(index, group)| {
            let clock = Clock::with_drift(scenario.clock_drift, &mut rng);
            let resources = group.resources.iter();
            let resources = resources.map(|it| scenario.resources()[*it].id.clone());
            let uses = group.uses.iter().filter(|_| group.requests.is_some());
            let limits = uses.map(|it| ClientLimit {
                resource: it.slot,
                unit: scenario.resources()[group.resources[it.slot]].unit,
                priority: it.priority,
            });
            // Clients are spread evenly over the nodes of their group.
            let servers = scenario.servers_of(group.nodes[index % group.nodes.len()]);
            let client = Client::new(index, clock, servers, resources.collect(), without)
                .with_seed(rng.u64(..), limits.collect())
                .with_cool_down(scenario.cool_down);
            match group.limits {
                Some(OwnLimits::Aimd) => client.limited_alone(scenario.even_rates(group)),
                None => client,
            }
        });
        let clients: Vec<_> = clients.collect();
        let nodes = tree::scenario_nodes(scenario, &mut rng);
        let servers = new_servers(&nodes, clocks.into_iter(), &scenario.document, without);
        let servers = servers
            .into_iter()
            .map(|it| it.with_tuning(scenario.tuning));
        let mut simulation = Self {
            clients,
            servers: servers.collect(),
            nodes,
            network: Network::scripted(scenario.network),
            polls: Polls::new(scenario.polls, seed),
            longest_lease: scenario.document.longest_lease().get(),
            demands: Some(Demands::new(seed, scenario)),
            targets: Targets::new(seed, scenario),
            ..Self::empty(seed, plan, rng, Arc::clone(&scenario.document), Vec::new())
        };
        simulation.begin_scenario(scenario);
        simulation
    }

    fn empty(seed: u64, plan: Plan, rng: Rng, document: Arc<Document>, limits: Vec<Limit>) -> Self {
        Self {
            seed,
            plan,
            time: Moment::ORIGIN,
            rng,
            events: EventQueue::default(),
            clients: Vec::new(),
            servers: Vec::new(),
            nodes: Vec::new(),
            network: Network::default(),
            polls: Polls::new(crate::scenario::PollMode::Off, seed),
            priorities: Priorities::default(),
            extras: ExtraFaults::of_run(seed, plan.extras),
            document,
            longest_lease: limits::longest_lease(&limits),
            limits,
            capacity_check: CapacityCheck::default(),
            demands: None,
            targets: Targets::default(),
            has_lease_changed: false,
            lapses: 0,
            heard_epochs: BTreeMap::new(),
            stats: Stats::default(),
            broken: None,
            node_violation: None,
            trace: VecDeque::new(),
        }
    }

    /// Also checks the invariants of runs with random faults, for these limits of all resources.
    pub(super) fn check_limits(&mut self, limits: Vec<Limit>) {
        self.limits = limits;
    }

    pub(super) fn run_until(&mut self, end: Moment) -> Result<Stats, Box<Violation>> {
        while self.step(end)? {}
        self.node_violation.take().map_or(Ok(self.stats), Err)
    }

    pub(super) fn run(mut self) -> Result<Stats, Box<Violation>> {
        while self.step(Moment::NEVER)? {}
        self.stats.above_capacity = self.capacity_check.above_capacity;
        self.node_violation.map_or(Ok(self.stats), Err)
    }

    /// Handles the next event up to `until`. Returns whether there was one, and another may follow.
    pub(super) fn step(&mut self, until: Moment) -> Result<bool, Box<Violation>> {
        let Some((at, event)) = self.events.pop_until(until) else {
            return Ok(false);
        };
        self.time = at;
        let is_last = matches!(event, Event::CheckShares);
        let moves_leases = invariants::moves_leases(&event);
        let is_of_servers = invariants::is_of_servers(&event);
        let checked = self.handle(event).and_then(|()| self.check_capacity());
        let checked = match checked {
            Ok(()) if is_of_servers => self.check_feedback(),
            checked => checked,
        };
        if let Err(broken) = checked {
            return Err(Box::new(self.violation(broken)));
        }
        if moves_leases && let Err(broken) = self.check_nodes() {
            let violation = Box::new(self.violation(broken));
            if self.plan.without.is_none() {
                return Err(violation);
            }
            // Without a rule, another invariant may break later.
            self.node_violation = Some(violation);
        }
        Ok(!is_last)
    }

    fn violation(&self, broken: BrokenInvariant) -> Violation {
        let BrokenInvariant { invariant, detail } = broken;
        Violation {
            seed: self.seed,
            plan: self.plan,
            at: self.time.seconds_since(Moment::ORIGIN),
            invariant,
            detail,
            trace: self.trace.iter().cloned().collect(),
        }
    }

    fn begin(&mut self, rebuilds_etcd: bool, allows_cuts: bool) {
        self.begin_polls();
        let parents = self.nodes.iter().filter_map(|it| it.parent);
        for parent in parents {
            self.stats.nodes += 1;
            self.stats.third_level_nodes += u64::from(parent > 0);
        }
        self.start_servers();
        for client in 0..self.clients.len() {
            let delay = 20.0 * self.rng.f64();
            self.after(delay, Event::Start(Process::Client(client)));
        }
        // On each level, old leases must expire, one election take place, and three refreshes
        // follow.
        let rest = 2.5 * self.longest_lease + 4.0 * f64::from(ELECTION_LEASE);
        let end = (self.plan.seconds - rest * self.levels()).max(30.0);
        let generator = Generator {
            rng: self.rng.fork(),
            without: self.plan.without,
            nodes: &self.nodes,
            clients: &self.clients,
            priorities: self.priorities,
            rebuilds_etcd,
            allows_cuts,
            extras: self.extras.kinds,
            beside: self.extras.beside,
            limits: self.limits.clone(),
            longest_lease: self.longest_lease,
            second: 0.0,
            script: Script::new(),
        };
        for (at, step) in generator.draw(end) {
            self.after(at, Event::Step(step));
        }
        self.after(end, Event::StopFaults);
    }

    fn start_servers(&mut self) {
        for server in 0..self.servers.len() {
            self.start(Process::Server(server));
        }
    }

    pub(super) fn after(&mut self, seconds: f64, event: Event) {
        self.events.push(self.time.after_seconds(seconds), event);
    }

    /// The number of levels of the tree.
    fn levels(&self) -> f64 {
        let levels = self.servers.iter().map(|it| it.membership.level);
        1.0 + f64::from(levels.max().unwrap_or(0))
    }

    fn record(&mut self, event: impl FnOnce() -> String) {
        if self.plan.trace {
            let most = match self.demands {
                Some(_) => SCENARIO_TRACE_LENGTH,
                None => TRACE_LENGTH,
            };
            if self.trace.len() >= most {
                self.trace.pop_front();
            }
            let at = self.time.seconds_since(Moment::ORIGIN);
            self.trace.push_back(format!("{at:10.3} {}", event()));
        }
    }

    pub(super) fn take_trace(&mut self) -> Vec<String> {
        std::mem::take(&mut self.trace).into()
    }

    fn handle(&mut self, event: Event) -> Result<(), BrokenInvariant> {
        match event {
            Event::Deliver { from, to, message } => self.deliver(from, to, message),
            Event::Wake(process) => self.wake(process),
            Event::Resume(process) => self.resume(process),
            Event::Start(process) => self.start(process),
            Event::ShutDown(server) => self.shut_down(server),
            Event::RestartEtcd(node) => self.restart_etcd(node),
            Event::Local { server, message } => {
                self.deliver(Process::Server(server), Process::Server(server), message);
            }
            Event::PollTimeout {
                process,
                server,
                call,
            } => self.time_out_poll(process, server, call),
            Event::AnswerPolls(server) => self.answer_polls(server),
            Event::EndPoll {
                server,
                ticket,
                call,
            } => self.end_poll(server, ticket, call),
            Event::InventHints { client, left } => self.invent_hints(client, left),
            Event::ScriptedDemand(demand) => self.change_scripted_demand(demand, false),
            Event::Request { user, plan } => self.send_request(user as usize, plan),
            Event::TargetResponse(response) => self.on_target_response(response),
            Event::Leave(client) => self.leave(client),
            Event::Replace(client) => self.replace(client),
            Event::Step(step) => self.execute(step),
            Event::StartPeers(node) => self.start_peers(node),
            Event::EndOperations {
                client,
                incarnation,
                resource,
                units,
            } => self.end_operations(client, incarnation, resource, units),
            Event::Traffic => self.send_traffic(),
            Event::StopFaults => self.stop_faults(),
            Event::FinalDemand => self.set_final_demand(),
            Event::CheckShares => return self.check_shares(),
        }
        self.broken.take().map_or(Ok(()), Err)
    }

    fn restart_etcd(&mut self, node: usize) {
        if let Some(etcd) = &mut self.nodes[node].etcd {
            etcd.restart(self.time);
        }
    }
}

/// Creates the servers of all nodes, with these clocks.
fn new_servers(
    nodes: &[Node],
    clocks: impl Iterator<Item = Clock>,
    document: &Arc<Document>,
    without: Option<Rule>,
) -> Vec<Server> {
    let members = nodes.iter().enumerate();
    let members = members.flat_map(|(node, it)| std::iter::repeat_n(node, it.servers.len()));
    let servers = members
        .zip(clocks)
        .enumerate()
        .map(|(index, (node, clock))| {
            let membership = tree::membership(nodes, node);
            Server::new(index, clock, Arc::clone(document), membership, without)
        });
    servers.collect()
}
