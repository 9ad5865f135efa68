//! Faults and holders of the kinds that a plan adds.

use fastrand::Rng;

use doorman_openapi::{CapacityRequest, Moment};

use super::{ELECTION_LEASE, Simulation, lies::FirstClaims};
use crate::{
    event_queue::Event, extras::Extra, extras::Extras, limits, limits::Algorithm, limits::Glob,
    limits::Limit, limits::LimitUnit, limits::RESOURCES, network::Process, tree::OnlyServer,
};

/// The most seconds between two faults of these kinds.
const INTERVAL: f64 = 30.0;
/// The most seconds for which a server is down.
const CRASH: f64 = 8.0;
/// The most seconds for which servers have different documents.
const DEPLOYMENT: f64 = 60.0;
/// The most seconds for which a deposed leader of etcd answers servers that know its successor.
const DEPOSED: f64 = 60.0;
/// The most seconds of most operations, and of a few.
const OPERATION: f64 = 10.0;
const LONG_OPERATION: f64 = 120.0;
/// Less than some clients want.
const SMALL_CAPACITY: f64 = 40.0;
/// Seconds between two looks for the first master.
const START_INTERVAL: f64 = 0.5;

/// The added kinds of a run, and their randomness.
pub(super) struct ExtraFaults {
    kinds: Extras,
    pub(super) rng: Rng,
    pub(super) first_claims: FirstClaims,
    /// The largest capacity that each resource had.
    pub(super) most_capacity: [f64; RESOURCES],
    /// The resource whose algorithm does not divide the capacity at first.
    pub(super) beside: Option<usize>,
    /// When each resource became a gauge or a rate last.
    kind_changed: [Option<Moment>; RESOURCES],
}

impl ExtraFaults {
    pub(super) fn of_run(seed: u64, extras: Extras) -> Self {
        let mut rng = Rng::with_seed(seed.rotate_left(32));
        Self {
            kinds: extras.of_run(&mut rng),
            rng,
            first_claims: FirstClaims::default(),
            most_capacity: [0.0; RESOURCES],
            beside: None,
            kind_changed: [None; RESOURCES],
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
                if self.extras.rng.bool() {
                    limit.unit = LimitUnit::Gauge;
                }
            }
        }
        if self.extras.include(Extra::Algorithms) {
            self.extras.beside = Some(self.limits.len());
            let algorithm = Algorithm::random_undivided(&mut self.extras.rng);
            self.limits.push(Limit {
                capacity: SMALL_CAPACITY,
                algorithm,
                unit: LimitUnit::Rate { per: 1.0 },
                ..self.limits[0]
            });
        }
        self.document = limits::document(&self.limits);
        for server in &mut self.servers {
            server.reconfigure(&self.document, self.time);
        }
        let reads_units =
            self.extras.include(Extra::Gauges) || self.extras.include(Extra::Documents);
        let has_liars = self.extras.include(Extra::Liars);
        let has_old_clients = self.extras.include(Extra::Documents);
        for client in &mut self.clients {
            client.reads_units = reads_units;
            client.states_no_units = has_old_clients && self.extras.rng.u8(..4) == 0;
            client.is_liar = has_liars && self.extras.rng.u8(..3) == 0;
        }
        if self.extras.include(Extra::ServerCount) {
            for node in self.nodes.iter_mut().filter(|it| it.etcd.is_some()) {
                let index = node.servers.start;
                let is_alone = true;
                node.only = self
                    .extras
                    .rng
                    .bool()
                    .then_some(OnlyServer { index, is_alone });
            }
        }
    }

    pub(super) fn begin_extra_faults(&mut self) {
        if self.extras.kinds != Extras::NONE {
            self.after(10.0, Event::InjectExtraFault);
        }
    }

    pub(super) fn inject_extra_fault(&mut self) {
        if !self.network.is_hostile() {
            return;
        }
        let kinds = [
            Extra::Documents,
            Extra::ServerCount,
            Extra::Algorithms,
            Extra::DeposedLeader,
        ];
        let kinds: Vec<_> = kinds
            .into_iter()
            .filter(|it| self.extras.include(*it))
            .collect();
        match self.extras.rng.choice(kinds) {
            Some(Extra::Documents) => self.change_documents(),
            Some(Extra::ServerCount) => self.change_server_count(),
            Some(Extra::Algorithms) => self.change_algorithm_beside(),
            Some(Extra::DeposedLeader) => self.depose_etcd_leader(),
            _ => {}
        }
        let delay = INTERVAL * self.extras.rng.f64();
        self.after(delay, Event::InjectExtraFault);
    }

    fn crash_for_a_while(&mut self, server: usize) {
        let seconds = CRASH * self.extras.rng.f64();
        self.crash_random_server(server, seconds);
    }

    /// Changes the document. Some servers are down meanwhile, and the others have it later.
    fn change_documents(&mut self) {
        self.stats.document_changes += 1;
        self.change_templates();
        for index in 0..self.servers.len() {
            match self.extras.rng.u8(..4) {
                0 => self.crash_for_a_while(index),
                1 => self.stop_server(index),
                _ => {
                    let delay = DEPLOYMENT * self.extras.rng.f64();
                    self.after(delay, Event::Deploy(index));
                }
            }
        }
    }

    /// Changes templates in the document that servers read when they start. No rate changes.
    fn change_templates(&mut self) {
        let rng = &mut self.extras.rng;
        let converts = self.extras.kinds.contains(Extra::Documents);
        for (index, limit) in self.limits.iter_mut().enumerate() {
            let lease_length = (self.longest_lease * [0.25, 0.5, 1.0][rng.usize(..3)]).max(5.0);
            limit.lease_length = lease_length;
            limit.refresh_interval = (lease_length / 5.0).max(1.5);
            limit.minimum_refresh_interval = limit.minimum_refresh_interval.min(1.0);
            if !converts {
                continue;
            }
            if rng.bool() {
                limit.glob = [Glob::Exact, Glob::Prefix][rng.usize(..2)];
            }
            let may_be_gauge = Some(index) != self.extras.beside;
            let unit = match rng.u8(..8) {
                0 if may_be_gauge => LimitUnit::Gauge,
                0..4 => LimitUnit::Rate {
                    per: [1.0, 60.0, 0.5][rng.usize(..3)],
                },
                _ => limit.unit,
            };
            if unit.is_gauge() != limit.unit.is_gauge() {
                self.extras.kind_changed[index] = Some(self.time);
            }
            limit.unit = unit;
        }
        self.document = limits::document(&self.limits);
        self.record(|| "the document has changed".to_owned());
    }

    /// A server that has heard of the leases of its master. Others may start alone only with
    /// `--longest-lease`: operators are told so.
    fn choose_informed(&mut self, node: usize) -> Option<usize> {
        let master = self.master_of(node)?;
        let servers = self.nodes[node].servers.clone();
        let informed = servers.filter(|it| {
            let server = &self.servers[*it];
            *it == master || server.is_running() && server.knows_leases_of(&self.servers[master])
        });
        let informed: Vec<_> = informed.collect();
        self.extras.rng.choice(informed)
    }

    /// Lets the servers of a node run with an election, or one of them without.
    fn change_server_count(&mut self) {
        let nodes = (0..self.nodes.len()).filter(|it| self.nodes[*it].etcd.is_some());
        let nodes: Vec<_> = nodes.collect();
        let Some(node) = self.extras.rng.choice(nodes) else {
            return;
        };
        let servers = self.nodes[node].servers.clone();
        let is_alone = self.nodes[node].only.is_none();
        let chosen = match self.nodes[node].only {
            // The others start only when it is master.
            Some(only) if !only.is_alone => return,
            Some(only) => Some(only.index),
            None => self.choose_informed(node),
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
        self.change_templates();
        for server in 0..self.servers.len() {
            self.after(0.0, Event::Deploy(server));
        }
        if self.extras.rng.bool() {
            self.stop_server(chosen);
        } else {
            self.crash_for_a_while(chosen);
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

    /// Changes the algorithm of the resource that was not divided at first.
    fn change_algorithm_beside(&mut self) {
        let Some(resource) = self.extras.beside else {
            return;
        };
        let mut limits = self.limits.clone();
        limits[resource].algorithm = Algorithm::random_of_all(&mut self.extras.rng);
        self.reload(limits);
        // Leases of the algorithm before may last.
        let until = self.leases_end();
        self.capacity_check.allow(resource, f64::INFINITY, until);
    }

    /// When the leases of the present have ended. A server that crashes now learns for one lease,
    /// and lets holders keep their capacity for another. Leases of lower levels end with those of
    /// the root.
    pub(super) fn leases_end(&self) -> Moment {
        let seconds = 4.0 * self.longest_lease + 4.0 * f64::from(ELECTION_LEASE);
        self.time.after_seconds(seconds)
    }

    /// The etcd of a node has another leader, and the one before answers on. The master of the node
    /// often crashes then.
    fn depose_etcd_leader(&mut self) {
        let nodes = self.nodes.iter_mut().enumerate();
        let nodes = nodes.filter_map(|(node, it)| Some((node, it.etcd.as_mut()?)));
        let Some((node, etcd)) = self.extras.rng.choice(nodes.collect::<Vec<_>>()) else {
            return;
        };
        let rng = &mut self.extras.rng;
        let (timeout, seconds) = (1.0 + 2.0 * rng.f64(), DEPOSED * rng.f64());
        let own = Rng::with_seed(rng.u64(..));
        etcd.depose_leader(self.time, timeout, seconds, own);
        self.stats.etcd_depositions += 1;
        self.record(|| format!("a deposed leader of etcd answers node {node} for {seconds} s"));
        if self.extras.rng.bool() {
            let servers = self.nodes[node].servers.clone();
            let masters = servers.filter(|it| self.servers[*it].epoch().is_some());
            for master in masters.collect::<Vec<_>>() {
                self.crash_for_a_while(master);
            }
        }
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
            let units = (usable.min(wants) - in_use) * self.extras.rng.f64();
            if units <= 0.0 {
                continue;
            }
            let longest = match self.extras.rng.u8(..5) {
                0 => LONG_OPERATION,
                _ => OPERATION,
            };
            let seconds = longest * self.extras.rng.f64();
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
        self.activate_document();
    }
}
