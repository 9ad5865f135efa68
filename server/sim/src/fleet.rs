//! Fleets of clients under one limit, on a local network without faults.

use doorman_openapi::Moment;

use super::{
    event_loop::Simulation,
    extras::Extras,
    limits::{Demand, Limit},
    network::{Process, RETRANSMISSION},
    report::Plan,
    scenario::PollMode,
    scenario::steps::{Fault, Length, ServerChoice, Step},
    scenario::{DemandChange, FaultKind, NetworkQuality, Scenario},
};

/// The only resource.
const RESOURCE: usize = 0;

/// The most clients of a fleet whose capacity is checked: after every event, for each of them.
const MOST_CHECKED: usize = 1_000;

/// Simulated seconds within which a condition must hold.
const PATIENCE: f64 = 60.0;

/// Options of a fleet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FleetPlan {
    /// The limit.
    pub capacity: f64,
    /// Whether the algorithm is PROPORTIONAL_SHARE instead of FAIR_SHARE.
    pub is_proportional: bool,
    /// The servers of the root.
    pub servers: usize,
    /// For each level below the root: the number of nodes below each node of the level above.
    pub nodes: &'static [usize],
    /// Seconds between two refreshes.
    pub refresh_interval: f64,
    /// Seconds within which clients join.
    pub joining: f64,
    /// How clients and nodes poll for hints.
    pub polls: PollMode,
    /// The round trip of the network, in seconds.
    pub round_trip: f64,
    /// The part of the packets that is lost.
    pub loss: f64,
}

impl FleetPlan {
    /// The scenario of clients that join the leaves in turn, and want so much from the beginning
    /// on.
    fn scenario(&self, wants: &[f64]) -> Scenario {
        let kind = if self.is_proportional {
            "PROPORTIONAL_SHARE"
        } else {
            "FAIR_SHARE"
        };
        let levels = self.nodes.iter().enumerate().rev();
        let nodes = levels.fold("[]".to_owned(), |below, (level, count)| {
            format!("[{{name: level-{level}, count: {count}, nodes: {below}}}]")
        });
        let (servers, joining) = (self.servers, self.joining);
        let clients = wants.iter().map(|wants| {
            format!(
                "  - {{count: 1, resource: db, start: {{at: 0, within: {joining}}}, \
                 demand: {{constant: {{wants: {wants}}}}}}}\n"
            )
        });
        let clients: String = clients.collect();
        let (capacity, refresh) = (self.capacity, self.refresh_interval);
        let lease = 12.0 * refresh;
        let text = format!(
            "seconds: 100\nclock_drift: 0.05\nservers: {{count: {servers}}}\nnodes: {nodes}\nclients:\n{clients}document:\n  \
             resources:\n  - {{identifier_glob: db, capacity: {capacity}, \
             minimum_refresh_interval: 0, algorithm: {{kind: {kind}, lease_length: {lease}, \
             refresh_interval: {refresh}}}}}\n"
        );
        let mut scenario = Scenario::parse(&text, None).expect("the plan is valid");
        scenario.polls = self.polls;
        scenario.network = NetworkQuality {
            delay: self.round_trip / 2.0,
            loss: self.loss,
            retransmission: Some(RETRANSMISSION),
            ..NetworkQuality::default()
        };
        scenario
    }
}

/// Clients under one limit, at one server or at the leaves of a tree: a scenario whose demands
/// change as the caller says. Clients have the numbers of their demands.
///
/// Messages take half of a [round trip](FleetPlan::round_trip). Lost packets are sent again. After
/// every event up to 1,000 clients may together use no more than the limit.
///
/// # Panics
/// [`Fleet::new`] panics for a plan that is no scenario, [`run`](Self::run) and
/// [`seconds_until`](Self::seconds_until) when an invariant breaks, and what names a client if there
/// is no such client.
#[expect(missing_debug_implementations, reason = "nobody prints it")]
pub struct Fleet {
    simulation: Simulation,
    limit: Limit,
}

impl Fleet {
    /// Starts the servers, and a client for each demand.
    #[must_use]
    pub fn new(seed: u64, plan: &FleetPlan, wants: &[f64]) -> Self {
        let scenario = plan.scenario(wants);
        let limit = scenario.limit().expect("the resource is divided");
        let plan = Plan {
            seconds: 0.0,
            without: None,
            extras: Extras::NONE,
            trace: false,
        };
        let mut simulation = Simulation::of_scenario(seed, &scenario, plan);
        if wants.len() <= MOST_CHECKED {
            simulation.check_limits(vec![limit]);
        }
        Self { simulation, limit }
    }

    /// Changes the demand of a client. Like the layer, it tells the server at once only if the
    /// demand has outgrown its lease.
    pub fn set_demand(&mut self, client: usize, wants: f64) {
        let change = Some(DemandChange::To(wants));
        self.simulation.change_steady_demand(client, change);
    }

    /// Shuts a client down: it releases its lease.
    pub fn leave(&mut self, client: usize) {
        self.simulation.leave(client);
    }

    /// Starts a client that has left.
    pub fn join(&mut self, client: usize) {
        self.simulation.clients[client].has_left = false;
        self.simulation.start(Process::Client(client));
    }

    /// Crashes the master of the root. No server of it reaches etcd for so many seconds.
    pub fn lose_master(&mut self, seconds: f64) {
        self.inject(FaultKind::LoseMaster, seconds);
    }

    /// Stops the master of the root for good. It hands its ledger over.
    pub fn stop_master(&mut self) {
        self.inject(FaultKind::StopServer, f64::INFINITY);
    }

    fn inject(&mut self, kind: FaultKind, seconds: f64) {
        self.simulation.execute(Step::Fault(Fault {
            server: Some(ServerChoice::Master),
            ..Fault::new(kind, Length::Seconds(seconds))
        }));
    }

    /// Changes the limit.
    pub fn set_capacity(&mut self, capacity: f64) {
        self.limit.capacity = capacity;
        self.simulation.change_limits(vec![self.limit]);
        self.simulation.activate_document();
    }

    /// Sends a client 100 invented hints within a second.
    pub fn invent_hints(&mut self, client: usize) {
        self.simulation.invent_hints(client, 0);
    }

    /// Lets so many seconds pass.
    pub fn run(&mut self, seconds: f64) {
        let end = self.simulation.time.after_seconds(seconds);
        while self.step(end) {}
        self.simulation.time = end;
    }

    /// Lets time pass until a condition holds, and returns the seconds; infinity if it does not
    /// within a minute.
    pub fn seconds_until(&mut self, condition: impl Fn(&Self) -> bool) -> f64 {
        let start = self.simulation.time;
        let end = start.after_seconds(PATIENCE);
        while !condition(self) {
            if !self.step(end) {
                return f64::INFINITY;
            }
        }
        self.simulation.time.seconds_since(start)
    }

    fn step(&mut self, until: Moment) -> bool {
        let stepped = self.simulation.step(until);
        stepped.expect("the invariants hold")
    }

    /// The capacity that a client may use.
    #[must_use]
    pub fn usable(&self, client: usize) -> f64 {
        self.simulation.clients[client].usable[RESOURCE].at(self.simulation.time)
    }

    /// The capacity that all clients together may use.
    #[must_use]
    pub fn sum_usable(&self) -> f64 {
        (0..self.simulation.clients.len())
            .map(|client| self.usable(client))
            .sum()
    }

    /// Lease requests that a client has sent.
    #[must_use]
    pub fn requests_of(&self, client: usize) -> u64 {
        self.simulation.clients[client].requests
    }

    /// Lease requests that all clients have sent.
    #[must_use]
    pub fn requests(&self) -> u64 {
        let clients = self.simulation.clients.iter();
        clients.map(|client| client.requests).sum()
    }

    /// Responses with leases that clients have received.
    #[must_use]
    pub fn responses(&self) -> u64 {
        self.simulation.stats.responses
    }

    /// Leases that ended before the next one began.
    #[must_use]
    pub fn lapses(&self) -> u64 {
        self.simulation.lapses
    }

    /// The clients that hold leases of the present master of the root.
    #[must_use]
    pub fn clients_of_master(&self) -> usize {
        let master = self.simulation.master_of(0);
        let epoch = master.and_then(|it| self.simulation.servers[it].epoch());
        let heard = self.simulation.heard_epochs.values();
        heard.filter(|it| Some(**it) == epoch).count()
    }

    /// Hints that the server has sent.
    #[must_use]
    pub fn hints(&self) -> u64 {
        self.simulation.stats.hints
    }

    /// Packets that were lost.
    #[must_use]
    pub fn lost_packets(&self) -> u64 {
        self.simulation.network.lost_packets
    }

    /// The capacity that each client would get if all had one server that knows all demands.
    #[must_use]
    pub fn shares(&self) -> Vec<f64> {
        let demands = self.simulation.clients.iter().map(|client| Demand {
            weight: 1.0,
            wants: client.wants[RESOURCE].unwrap_or_default(),
            priority: 0,
        });
        self.limit.shares(&demands.collect::<Vec<_>>())
    }

    /// Whether the server has neither leases, nor polls, nor hints to plan.
    #[must_use]
    pub fn is_server_idle(&mut self) -> bool {
        let time = self.simulation.time;
        let mut servers = self.simulation.servers.iter_mut();
        servers.all(|server| server.is_idle(time))
    }
}
