//! Faults and holders of the kinds that a plan adds.

use fastrand::Rng;

use doorman_openapi::{CapacityRequest, Moment};

use super::{ELECTION_LEASE, Simulation, feedback::FeedbackFaults, lies::FirstClaims};
use crate::{
    event_queue::Event,
    extras::{Extra, Extras},
    limits::{self, Algorithm, Limit, LimitUnit, RESOURCES},
    network::Process,
    random::DEPLOYMENT,
    scenario::steps::{ServerCount, Step},
    tree::OnlyServer,
};

/// The most seconds of most operations, and of a few.
const OPERATION: f64 = 10.0;
const LONG_OPERATION: f64 = 120.0;
/// Less than some clients want.
const SMALL_CAPACITY: f64 = 40.0;
/// Seconds between two looks for the first master.
const START_INTERVAL: f64 = 0.5;

/// The added kinds of a run.
pub(super) struct ExtraFaults {
    pub(super) kinds: Extras,
    pub(super) first_claims: FirstClaims,
    /// The largest capacity that each resource had.
    pub(super) most_capacity: [f64; RESOURCES],
    /// The resource whose algorithm does not divide the capacity at first.
    pub(super) beside: Option<usize>,
    /// When each resource became a gauge or a rate last.
    pub(super) kind_changed: [Option<Moment>; RESOURCES],
    pub(super) feedback: FeedbackFaults,
}

impl ExtraFaults {
    pub(super) fn of_run(seed: u64, extras: Extras) -> Self {
        Self {
            kinds: extras.of_run(&mut Rng::with_seed(seed.rotate_left(32))),
            first_claims: FirstClaims::default(),
            most_capacity: [0.0; RESOURCES],
            beside: None,
            kind_changed: [None; RESOURCES],
            feedback: FeedbackFaults::new(seed),
        }
    }

    pub(super) fn include(&self, extra: Extra) -> bool {
        self.kinds.contains(extra)
    }
}

impl Simulation {
    /// Remembers the capacities before they change.
    pub(super) fn remember_capacities(&mut self) {
        for (most, limit) in self.extras.most_capacity.iter_mut().zip(&self.limits) {
            *most = most.max(limit.capacity);
        }
    }

    /// Whether servers may count in different units at a time.
    pub(super) fn has_several_units(&self) -> bool {
        self.extras.include(Extra::Documents)
    }

    /// Whether leases may last from a time when the resource was of the other kind. If that is
    /// changed back, a master elected meanwhile does not know them.
    pub(super) fn may_be_of_another_kind(&self, resource: usize) -> bool {
        let changed = self.extras.kind_changed[resource];
        let lasting = DEPLOYMENT + 2.0 * self.longest_lease;
        changed.is_some_and(|it| self.time.seconds_since(it) < lasting)
    }

    /// Changes a run that has not begun to one with the added kinds.
    pub(super) fn add_extras(&mut self) {
        if self.extras.kinds == Extras::NONE {
            return;
        }
        if self.extras.include(Extra::Gauges) {
            for limit in &mut self.limits {
                if self.rng.bool() {
                    limit.unit = LimitUnit::Gauge;
                }
            }
        }
        if self.extras.include(Extra::Algorithms) {
            self.extras.beside = Some(self.limits.len());
            let algorithm = Algorithm::random_undivided(&mut self.rng);
            self.limits.push(Limit {
                capacity: SMALL_CAPACITY,
                algorithm,
                unit: LimitUnit::Rate { per: 1.0 },
                ..self.limits[0]
            });
        }
        if self.extras.include(Extra::Feedback) {
            self.add_feedback();
        }
        self.document = limits::document(&self.limits);
        for server in &mut self.servers {
            server.reconfigure(&self.document);
        }
        let reads_units =
            self.extras.include(Extra::Gauges) || self.extras.include(Extra::Documents);
        let has_liars = self.extras.include(Extra::Liars);
        let has_old_clients = self.extras.include(Extra::Documents);
        for client in &mut self.clients {
            client.reads_units = reads_units;
            client.states_no_units = has_old_clients && self.rng.u8(..4) == 0;
            client.is_liar = has_liars && self.rng.u8(..3) == 0;
        }
        if self.extras.include(Extra::Clones) {
            self.share_ids();
        }
        if self.extras.include(Extra::ServerCount) {
            for node in self.nodes.iter_mut().filter(|it| it.etcd.is_some()) {
                let index = node.servers.start;
                let is_alone = true;
                node.only = self.rng.bool().then_some(OnlyServer { index, is_alone });
            }
        }
    }

    /// Gives most clients the same client id as their neighbour.
    fn share_ids(&mut self) {
        for index in 1..self.clients.len() {
            let servers = self.clients[index].servers.clone();
            let before = &self.clients[index - 1];
            if !before.shares_id() && before.servers == servers {
                self.clients[index - 1].share_id(index);
                self.clients[index].share_id(index);
            }
        }
    }

    /// A server that has heard of the leases of its master. Others may start alone only with
    /// `--longest-lease`: operators are told so.
    fn choose_informed(&mut self, node: usize, choice: f64) -> Option<usize> {
        let master = self.master_of(node)?;
        let servers = self.nodes[node].servers.clone();
        let informed = servers.filter(|it| {
            let server = &self.servers[*it];
            *it == master || server.is_running() && server.knows_leases_of(&self.servers[master])
        });
        let informed: Vec<_> = informed.collect();
        let index = (choice * informed.len() as f64) as usize;
        informed.get(index).copied()
    }

    /// Lets the servers of a node run with an election, or one of them without.
    pub(super) fn change_server_count(&mut self, change: ServerCount) {
        let node = change.node;
        let servers = self.nodes[node].servers.clone();
        let is_alone = self.nodes[node].only.is_none();
        let chosen = match self.nodes[node].only {
            // The others start only when it is master.
            Some(only) if !only.is_alone => return,
            Some(only) => Some(only.index),
            None => self.choose_informed(node, change.choice),
        };
        let Some(chosen) = chosen else { return };
        self.stats.server_counts += 1;
        self.record(|| format!("only server {chosen} of node {node} starts, alone: {is_alone}"));
        self.nodes[node].only = Some(OnlyServer {
            index: chosen,
            is_alone,
        });
        for server in servers.filter(|it| *it != chosen) {
            self.servers[server].crash();
        }
        self.change_limits(change.limits);
        for server in 0..self.servers.len() {
            self.after(0.0, Event::Step(Step::Deploy(server)));
        }
        if change.is_stopped {
            self.stop_server(chosen, change.seconds);
        } else {
            let is_machine = self.rng.u8(..4) == 0;
            self.crash_server(chosen, change.seconds, is_machine);
        }
        if !is_alone {
            self.after(START_INTERVAL, Event::StartPeers(node));
        }
    }

    /// Starts the other servers of a node whose first server takes part in an election.
    pub(super) fn start_peers(&mut self, node: usize) {
        let Some(only) = self.nodes[node].only.filter(|it| !it.is_alone) else {
            return;
        };
        let server = &self.servers[only.index];
        if !server.takes_part_in_election() || server.epoch().is_none() {
            self.after(START_INTERVAL, Event::StartPeers(node));
            return;
        }
        self.nodes[node].only = None;
        for server in self.nodes[node].servers.clone() {
            self.start(Process::Server(server));
        }
    }

    /// When the leases of the present have ended. A server that crashes now learns for one lease,
    /// and lets holders keep their capacity for another. Leases of lower levels end with those of
    /// the root.
    pub(super) fn leases_end(&self) -> Moment {
        let seconds = 4.0 * self.longest_lease + 4.0 * f64::from(ELECTION_LEASE);
        self.time.after_seconds(seconds)
    }

    /// Takes units of the gauges for which a client has leases, for a while.
    pub(super) fn begin_operations(&mut self, index: usize) {
        if !self.extras.include(Extra::Gauges) || !self.network.is_hostile() {
            return;
        }
        for resource in 0..self.limits.len() {
            let client = &self.clients[index];
            let (Some(wants), true) = (client.wants[resource], client.units[resource].is_gauge())
            else {
                continue;
            };
            let in_use = client.operations[resource].in_use;
            let usable = client.usable[resource].at(self.time);
            self.stats.overlong_operations += u64::from(in_use > usable);
            let units = (usable.min(wants) - in_use) * self.rng.f64();
            if units <= 0.0 {
                continue;
            }
            let longest = match self.rng.u8(..5) {
                0 => LONG_OPERATION,
                _ => OPERATION,
            };
            let seconds = longest * self.rng.f64();
            let incarnation = client.incarnation;
            let end = Event::EndOperations {
                client: index,
                incarnation,
                resource,
                units,
            };
            self.after(seconds, end);
            let effects = self.clients[index].change_in_use(resource, units, self.time);
            self.apply(index, effects);
        }
    }

    pub(super) fn end_operations(
        &mut self,
        index: usize,
        incarnation: u32,
        resource: usize,
        units: f64,
    ) {
        let client = &mut self.clients[index];
        let is_open = client.incarnation == incarnation && client.operations[resource].in_use > 0.0;
        if !is_open || client.wants[resource].is_none() {
            return;
        }
        let mut effects = client.change_in_use(resource, -units, self.time);
        if client.is_running() {
            effects.extend(client.report_soon(resource, self.time));
        }
        self.apply(index, effects);
    }

    /// Changes a request to that of a client of an earlier version.
    pub(super) fn omit_units(request: &mut CapacityRequest) {
        for asked in &mut request.resources {
            (asked.unit, asked.per) = (None, None);
        }
    }

    /// Ends the added faults, and repairs their effects.
    pub(super) fn stop_extra_faults(&mut self) {
        if self.extras.kinds == Extras::NONE {
            return;
        }
        for index in 0..self.clients.len() {
            self.clients[index].is_liar = false;
            for resource in 0..self.limits.len() {
                let in_use = self.clients[index].operations[resource].in_use;
                if in_use > 0.0 && self.clients[index].wants[resource].is_some() {
                    let effects = self.clients[index].change_in_use(resource, -in_use, self.time);
                    self.apply(index, effects);
                }
            }
        }
        if self.extras.include(Extra::Feedback) {
            self.stop_feedback();
        }
        self.activate_document();
    }
}
