//! Demand over time and faults, as a scenario prescribes them.

use std::{f64::consts::TAU, ops::Range, sync::Arc};

use doorman_openapi::Moment;
use fastrand::Rng;

use super::Simulation;
use crate::{
    event_queue::Event, network::Delay, network::Process, scenario::DemandChange,
    scenario::DemandPattern, scenario::DemandSource, scenario::Fault, scenario::FaultKind,
    scenario::MAX_WANTS, scenario::RandomFaults, scenario::Requests, scenario::Scenario,
    scenario::Window,
};

/// Seconds between two values of a smooth demand.
const STEP: f64 = 1.0;

/// The most requests of one client in a second.
const MAX_REQUEST_RATE: f64 = 1e6;

/// The demand of each client, and the faults.
pub(super) struct Script {
    /// Other random numbers than those of the network, so that a seed has the same demand on every
    /// network.
    rng: Rng,
    demands: Vec<ScriptedDemand>,
    /// The uses of each client, one after the other.
    users: Vec<User>,
    /// The users of each client.
    users_of: Vec<Range<usize>>,
    /// When each client starts, and perhaps stops.
    starts: Vec<(Window, Option<Window>)>,
    faults: Vec<Fault>,
    random_faults: Option<RandomFaults>,
}

/// The processes that a fault may affect. Its kind decides which of them it does.
#[derive(Debug)]
struct Target {
    node: usize,
    server: Option<usize>,
    clients: Vec<usize>,
}

/// The effect of a fault.
#[derive(Debug)]
struct Effect {
    kind: FaultKind,
    seconds: f64,
    /// Seconds by which messages are late.
    late: f64,
    change: Option<DemandChange>,
}

/// A use of a resource by one client.
struct User {
    client: usize,
    slot: usize,
    priority: i32,
    /// The index of its demand.
    demand: usize,
    traffic: Option<Traffic>,
}

/// The requests of a user.
struct Traffic {
    kind: Requests,
    /// Seconds of the unit of the demand.
    per: f64,
    /// In requests a second.
    rate: f64,
    next: Moment,
    /// Counts the changes of the rate.
    plan: u32,
}

/// A demand, of one client or for a balancer to spread.
struct ScriptedDemand {
    pattern: DemandPattern,
    wants: f64,
    is_peak: bool,
    users: Vec<usize>,
    /// The users that run, among which a load is spread; `None` if it is not a load.
    running: Option<usize>,
}

impl Script {
    pub(super) fn new(seed: u64, scenario: &Scenario) -> Self {
        let mut demands: Vec<_> = scenario
            .loads
            .iter()
            .map(|it| ScriptedDemand::new(it.demand, Some(0)))
            .collect();
        let (mut users, mut users_of, mut starts) = (Vec::new(), Vec::new(), Vec::new());
        for group in &scenario.groups {
            for _ in 0..group.count {
                let first = users.len();
                for it in &group.uses {
                    let demand = match it.demand {
                        DemandSource::Load(load) => load,
                        DemandSource::Own(pattern) => {
                            demands.push(ScriptedDemand::new(pattern, None));
                            demands.len() - 1
                        }
                    };
                    demands[demand].users.push(users.len());
                    let per = scenario.resources()[group.resources[it.slot]].per;
                    users.push(User {
                        client: users_of.len(),
                        slot: it.slot,
                        priority: it.priority,
                        demand,
                        traffic: group.requests.map(|kind| Traffic::new(kind, per)),
                    });
                }
                users_of.push(first..users.len());
                starts.push((group.start, group.stop));
            }
        }
        Self {
            rng: Rng::with_seed(seed.rotate_left(32)),
            demands,
            users,
            users_of,
            starts,
            faults: scenario.faults.clone(),
            random_faults: scenario.random_faults.clone(),
        }
    }

    /// The users of a client with a demand of its own that is constant or a random walk.
    fn steady_users(&self, client: usize) -> Vec<usize> {
        let is_steady = |user: &usize| {
            let demand = &self.demands[self.users[*user].demand];
            demand.running.is_none() && demand.pattern.is_steady()
        };
        self.users_of[client].clone().filter(is_steady).collect()
    }

    fn has_steady_demand(&self, client: usize) -> bool {
        !self.steady_users(client).is_empty()
    }

    /// The demand of a user, if it runs.
    fn wants(&self, user: &User) -> f64 {
        let demand = &self.demands[user.demand];
        match demand.running {
            Some(running) => demand.wants / running.max(1) as f64,
            None => demand.wants,
        }
    }
}

impl Traffic {
    fn new(kind: Requests, per: f64) -> Self {
        Self {
            kind,
            per,
            rate: 0.0,
            next: Moment::NEVER,
            plan: 0,
        }
    }

    /// The seconds to the next request.
    fn gap(&self, rng: &mut Rng) -> f64 {
        match self.kind {
            Requests::Even => 1.0 / self.rate,
            Requests::Random => exponential(1.0, rng) / self.rate,
        }
    }

    /// Changes the rate. Returns whether the next request is planned anew.
    fn change(&mut self, wants: f64, time: Moment, rng: &mut Rng) -> bool {
        let rate = (wants / self.per).min(MAX_REQUEST_RATE);
        if rate == self.rate {
            return false;
        }
        // The part of a gap that is left of even requests.
        let left = if self.rate > 0.0 {
            (self.next.seconds_since(time) * self.rate).min(1.0)
        } else {
            rng.f64()
        };
        self.rate = rate;
        self.plan = self.plan.wrapping_add(1);
        self.next = match self.kind {
            _ if rate <= 0.0 => Moment::NEVER,
            Requests::Even => time.after_seconds(left / rate),
            Requests::Random => time.after_seconds(self.gap(rng)),
        };
        true
    }
}

impl ScriptedDemand {
    fn new(pattern: DemandPattern, running: Option<usize>) -> Self {
        Self {
            pattern,
            wants: 0.0,
            is_peak: true,
            users: Vec::new(),
            running,
        }
    }

    /// Moves to the next value. Returns the seconds until the one after.
    fn advance(&mut self, seconds: f64, is_first: bool, rng: &mut Rng) -> Option<f64> {
        match self.pattern {
            DemandPattern::Constant { wants } => {
                self.wants = wants;
                None
            }
            DemandPattern::RandomWalk { start, step, every } => {
                self.wants = if is_first {
                    start
                } else {
                    let factor = 1.0 + step * (2.0 * rng.f64() - 1.0);
                    (self.wants * factor).min(MAX_WANTS)
                };
                Some(every)
            }
            DemandPattern::Sine {
                mean,
                amplitude,
                period,
            } => {
                let value = mean + amplitude * (TAU * seconds / period).sin();
                self.wants = value.max(0.0);
                Some(STEP.min(period / 8.0))
            }
            DemandPattern::Spikes {
                base,
                peak,
                every,
                length,
            } => {
                self.is_peak = !self.is_peak;
                self.wants = if self.is_peak { peak } else { base };
                Some(if self.is_peak {
                    length
                } else {
                    exponential(every, rng)
                })
            }
            DemandPattern::Poisson { mean, every } => {
                self.wants = arrivals(mean * every, rng) as f64 / every;
                Some(every)
            }
        }
    }
}

/// A time until a random event, so many seconds on average.
fn exponential(mean: f64, rng: &mut Rng) -> f64 {
    (-mean * (1.0 - rng.f64()).ln()).max(0.001)
}

/// A number of random arrivals with a Poisson distribution.
fn arrivals(mean: f64, rng: &mut Rng) -> u64 {
    let mut count = 0;
    let mut time = exponential(1.0, rng);
    while time < mean {
        count += 1;
        time += exponential(1.0, rng);
    }
    count
}

impl Simulation {
    pub(super) fn begin_script(&mut self) {
        for server in 0..self.servers.len() {
            self.start(Process::Server(server));
        }
        self.begin_parent_polls();
        let loads = self.script.iter().flat_map(|it| &it.demands);
        let loads = loads.take_while(|it| it.running.is_some()).count();
        for load in 0..loads {
            self.change_scripted_demand(load, true);
        }
        for client in 0..self.clients.len() {
            let Some(script) = &mut self.script else {
                return;
            };
            let (start, stop) = script.starts[client];
            let delay = start.at + start.within * script.rng.f64();
            let users = script.users_of[client].clone();
            let stop = stop.map(|it| it.at + it.within * script.rng.f64());
            self.after(delay, Event::Start(Process::Client(client)));
            if let Some(stop) = stop {
                self.after(stop, Event::Leave(client));
            }
            for user in users {
                let script = self.script.as_ref();
                let demand = script.map_or(0, |it| it.users[user].demand);
                if demand >= loads {
                    self.change_scripted_demand(demand, true);
                }
            }
        }
        let times = self.script.iter().flat_map(|it| &it.faults);
        let times: Vec<f64> = times.map(|fault| fault.at).collect();
        for (index, at) in times.into_iter().enumerate() {
            self.after(at, Event::ScriptedFault(index));
        }
        let times: Vec<f64> = self.changes.iter().map(|change| change.at).collect();
        for (index, at) in times.into_iter().enumerate() {
            self.after(at, Event::ScriptedChange(index));
        }
        self.expect_random_fault(true);
    }

    /// Moves a demand to its next value, and plans the one after.
    pub(super) fn change_scripted_demand(&mut self, demand: usize, is_first: bool) {
        let seconds = self.time.seconds_since(Moment::ORIGIN);
        let Some(script) = &mut self.script else {
            return;
        };
        let next = script.demands[demand].advance(seconds, is_first, &mut script.rng);
        if let Some(next) = next {
            self.after(next, Event::ScriptedDemand(demand));
        }
        self.report_to_users(demand);
    }

    fn report_to_users(&mut self, demand: usize) {
        let script = self.script.iter();
        let users =
            script.flat_map(|it| it.demands[demand].users.iter().map(|user| &it.users[*user]));
        let clients: Vec<_> = users.map(|it| it.client).collect();
        for client in clients {
            self.report_demand(client);
        }
    }

    /// Spreads the loads of a client anew, which has started or stopped to run.
    pub(super) fn spread_loads(&mut self, client: usize) {
        let Some(script) = &mut self.script else {
            return;
        };
        let mut changed = Vec::new();
        for user in &script.users[script.users_of[client].clone()] {
            let demand = &mut script.demands[user.demand];
            if let Some(running) = &mut demand.running {
                let users = demand.users.iter().map(|it| script.users[*it].client);
                *running = users.filter(|it| self.clients[*it].is_running()).count();
                changed.push(user.demand);
            }
        }
        for demand in changed {
            self.report_to_users(demand);
        }
    }

    /// Changes the demands of a client that are constant or a random walk.
    pub(crate) fn change_steady_demand(&mut self, client: usize, change: Option<DemandChange>) {
        let (Some(script), Some(change)) = (&mut self.script, change) else {
            return;
        };
        for user in script.steady_users(client) {
            let demand = script.users[user].demand;
            let wants = &mut script.demands[demand].wants;
            *wants = match change {
                DemandChange::To(wants) => wants,
                DemandChange::By(more) => (*wants + more).min(MAX_WANTS),
            };
        }
        self.report_demand(client);
    }

    /// Tells a client its demand: its state machine, or its traffic.
    pub(super) fn report_demand(&mut self, index: usize) {
        let Some(script) = &mut self.script else {
            return;
        };
        let is_running = self.clients[index].is_running();
        let users = script.users_of[index].clone();
        let mut wants = vec![0.0; self.clients[index].wants.len()];
        let mut bands = vec![Vec::new(); wants.len()];
        for user in users {
            let wanted = script.wants(&script.users[user]);
            let it = &mut script.users[user];
            wants[it.slot] += wanted;
            bands[it.slot].push((it.priority, wanted));
            let Some(traffic) = &mut it.traffic else {
                continue;
            };
            let rate = if is_running { wanted } else { 0.0 };
            if traffic.change(rate, self.time, &mut script.rng) && traffic.next < Moment::NEVER {
                let plan = traffic.plan;
                self.events.push_request(traffic.next, user as u32, plan);
            }
        }
        if !is_running {
            return;
        }
        for (slot, (wants, bands)) in wants.into_iter().zip(bands).enumerate() {
            let client = &mut self.clients[index];
            let highest = bands.iter().map(|it| it.0).max();
            client.priorities[slot] = highest.unwrap_or_default();
            client.bands[slot] = bands;
            let effects = client.set_demand(slot, wants, self.time);
            self.apply(index, effects);
        }
    }

    /// Sends a request, and plans the next one of its user.
    pub(super) fn send_request(&mut self, user: usize, plan: u32) {
        let Some(script) = &mut self.script else {
            return;
        };
        let it = &mut script.users[user];
        let (client, limit) = (it.client, user - script.users_of[it.client].start);
        let Some(traffic) = it.traffic.as_mut().filter(|it| it.plan == plan) else {
            return;
        };
        traffic.next = self.time.after_seconds(traffic.gap(&mut script.rng));
        self.events.push_request(traffic.next, user as u32, plan);
        self.clients[client].request(limit, self.time);
        self.schedule_wake(Process::Client(client));
    }

    /// The demand of a client for one of its resources at this time. One that is down or paused
    /// wants nothing.
    pub(crate) fn scripted_demand(&self, client: usize, slot: usize) -> f64 {
        let Some(script) = self
            .script
            .as_ref()
            .filter(|_| self.clients[client].is_running())
        else {
            return 0.0;
        };
        let users = script.users[script.users_of[client].clone()].iter();
        let users = users.filter(|it| it.slot == slot);
        users.map(|it| script.wants(it)).sum()
    }

    /// A client starts for the first time, or again after a crash.
    pub(super) fn start_scripted_client(&mut self, index: usize) {
        self.clients[index].begin_requests(self.time);
        self.schedule_wake(Process::Client(index));
        self.report_demand(index);
        self.spread_loads(index);
        let number = self.clients[index].poll;
        self.poll(index, number);
    }

    /// Stops a client, which releases its leases.
    fn stop_scripted_client(&mut self, index: usize) {
        if self.clients[index].is_running() {
            let effects = self.clients[index].stop(self.time);
            self.record(|| format!("client {index} shuts down"));
            self.apply(index, effects);
        }
        self.clients[index].crash();
        self.report_demand(index);
        self.spread_loads(index);
    }

    /// Stops a client for good.
    pub(crate) fn leave(&mut self, index: usize) {
        self.clients[index].has_left = true;
        self.stop_scripted_client(index);
    }

    /// Stops a client, and starts another in its place.
    pub(super) fn replace(&mut self, index: usize) {
        if self.clients[index].is_running() {
            self.stop_scripted_client(index);
            self.start(Process::Client(index));
        }
    }

    /// Activates a document of the scenario on every server.
    pub(super) fn change_document(&mut self, index: usize) {
        if let Some(change) = self.changes.get(index) {
            self.document = Arc::clone(&change.document);
            self.activate_document();
        }
    }

    pub(super) fn inject_scripted_fault(&mut self, index: usize) {
        let fault = self.script.as_ref().and_then(|it| it.faults.get(index));
        let Some(fault) = fault.cloned() else { return };
        let node = self.choose_node(&fault.nodes);
        let first = self.nodes[node].servers.start;
        let server = fault.server.map(|it| first + it);
        let target = Target {
            node,
            server: server.or_else(|| self.master_of(node)),
            clients: self.choose_clients(fault.kind, fault.group, fault.clients),
        };
        let effect = Effect {
            kind: fault.kind,
            seconds: fault.seconds,
            late: fault.late,
            change: fault.change,
        };
        self.execute_fault(&effect, &target);
    }

    fn expect_random_fault(&mut self, is_first: bool) {
        let Some(script) = &mut self.script else {
            return;
        };
        if let Some(random) = &script.random_faults {
            let delay = match random.from {
                Some(from) if is_first => from,
                Some(_) => random.every,
                None => exponential(random.every, &mut script.rng),
            };
            self.after(delay, Event::RandomFault);
        }
    }

    pub(super) fn inject_random_fault(&mut self) {
        let Some(script) = &mut self.script else {
            return;
        };
        let rng = &mut script.rng;
        if let Some(random) = &script.random_faults
            && let Some((kind, nodes)) = rng.choice(&random.kinds).cloned()
        {
            let (seconds, change) = (random.longest * rng.f64(), random.change);
            let node = self.choose_node(&nodes);
            let servers = self.nodes[node].servers.clone();
            let server = self.script.as_mut().map(|it| it.rng.usize(servers));
            let target = Target {
                node,
                server,
                clients: self.choose_clients(kind, None, Some(1)),
            };
            let effect = Effect {
                kind,
                seconds,
                late: 0.0,
                change,
            };
            self.execute_fault(&effect, &target);
        }
        self.expect_random_fault(false);
    }

    /// Chooses one of these nodes at random.
    fn choose_node(&mut self, nodes: &[usize]) -> usize {
        match (&mut self.script, nodes) {
            (_, [only]) => *only,
            (Some(script), _) => script.rng.choice(nodes).copied().unwrap_or(0),
            (None, _) => 0,
        }
    }

    /// Chooses `count` clients of a group at random that a fault can affect; all of these without
    /// `count`.
    fn choose_clients(
        &mut self,
        kind: FaultKind,
        group: Option<Range<usize>>,
        count: Option<usize>,
    ) -> Vec<usize> {
        let Some(script) = &mut self.script else {
            return Vec::new();
        };
        let is_affected =
            |client: &usize| kind != FaultKind::ChangeDemand || script.has_steady_demand(*client);
        let group = group.unwrap_or(0..self.clients.len());
        let clients: Vec<_> = group.filter(is_affected).collect();
        match count {
            Some(count) if count < clients.len() => script.rng.choose_multiple(clients, count),
            _ => clients,
        }
    }

    /// The master of a node: the running server whose reign has the highest epoch.
    pub(super) fn master_of(&self, node: usize) -> Option<usize> {
        let servers = self.nodes[node].servers.clone();
        let masters = servers.filter(|it| {
            let server = &self.servers[*it];
            server.is_running() && server.epoch().is_some()
        });
        masters.max_by_key(|it| self.servers[*it].epoch())
    }

    /// Whether each node has a master.
    pub(crate) fn have_masters(&self) -> bool {
        (0..self.nodes.len()).all(|node| self.master_of(node).is_some())
    }

    fn execute_fault(&mut self, effect: &Effect, target: &Target) {
        self.stats.faults += 1;
        let Effect {
            kind,
            seconds,
            change,
            ..
        } = effect;
        self.record(|| format!("{kind:?} for {seconds} s: {target:?}, {change:?}"));
        if effect.kind.is_of_clients() {
            self.execute_client_fault(effect, &target.clients);
        } else {
            self.execute_node_fault(effect, target.node, target.server);
        }
    }

    fn execute_node_fault(&mut self, effect: &Effect, node: usize, server: Option<usize>) {
        let seconds = effect.seconds;
        let until = self.time.after_seconds(seconds);
        match (effect.kind, server) {
            (FaultKind::LoseMaster, _) => {
                if let Some(master) = self.master_of(node) {
                    self.crash_server_for(master, seconds);
                }
                for server in self.nodes[node].servers.clone() {
                    self.cut_off_from_etcd(server, until);
                }
            }
            (FaultKind::ElectMaster, _) => {
                if let Some(master) = self.master_of(node) {
                    self.crash_server_for(master, 0.0);
                }
            }
            (FaultKind::PartitionNode, _) => self.cut_off_from_parent(node, false, until),
            (FaultKind::LoseNodeAnswers, _) => self.cut_off_from_parent(node, true, until),
            (FaultKind::DelayNodeRequests | FaultKind::RepeatNodeRequests, _) => {
                let parent = self.nodes[node].parent;
                let parents = parent.map_or(0..0, |it| self.nodes[it].servers.clone());
                for server in self.nodes[node].servers.clone() {
                    for parent in parents.clone() {
                        let to = Process::Server(parent);
                        self.delay_requests(effect, Process::Server(server), Some(to));
                    }
                }
            }
            (FaultKind::DelayEtcdRequests, Some(server)) => {
                let etcd = self.etcd_of(server);
                self.delay_requests(effect, Process::Server(server), Some(etcd));
            }
            (FaultKind::CrashServer, Some(server)) => self.crash_server_for(server, seconds),
            (FaultKind::StopServer, Some(server)) => {
                self.servers[server].restarts_after = Some(seconds);
                self.stop_server(server);
            }
            (FaultKind::PauseServer, Some(server)) => self.pause_server_for(server, seconds),
            (FaultKind::PartitionServer, Some(server)) => self.cut_off_from_etcd(server, until),
            (FaultKind::StopEtcd, _) => self.stop_etcd(node, seconds),
            // There is no master.
            _ => {}
        }
    }

    fn execute_client_fault(&mut self, effect: &Effect, clients: &[usize]) {
        let seconds = effect.seconds;
        let until = self.time.after_seconds(seconds);
        for (number, client) in clients.iter().copied().enumerate() {
            match effect.kind {
                FaultKind::ChangeDemand => self.change_steady_demand(client, effect.change),
                FaultKind::CrashClients if self.clients[client].is_up => {
                    self.clients[client].crash();
                    self.after(seconds, Event::Start(Process::Client(client)));
                    self.report_demand(client);
                    self.spread_loads(client);
                }
                FaultKind::PauseClients => {
                    self.pause_client_for(client, seconds);
                    self.report_demand(client);
                    self.spread_loads(client);
                }
                FaultKind::PartitionClients => {
                    self.network.partition(Process::Client(client), None, until);
                    self.lose_answers_to(client, until);
                }
                FaultKind::LoseClientAnswers => self.lose_answers_to(client, until),
                FaultKind::DelayClientRequests | FaultKind::RepeatClientRequests => {
                    self.delay_requests(effect, Process::Client(client), None);
                }
                FaultKind::ReleaseClients => self.release_and_want_all(client),
                FaultKind::RestartClients => {
                    let delay = seconds * number as f64 / clients.len() as f64;
                    self.after(delay, Event::Replace(client));
                }
                _ => {}
            }
        }
    }

    /// Delays or repeats the requests of a process to another one, or to all.
    fn delay_requests(&mut self, effect: &Effect, from: Process, to: Option<Process>) {
        self.network.delay(Delay {
            from,
            to,
            until: self.time.after_seconds(effect.seconds),
            by: effect.late,
            is_repeated: matches!(
                effect.kind,
                FaultKind::RepeatNodeRequests | FaultKind::RepeatClientRequests
            ),
        });
    }

    fn lose_answers_to(&mut self, client: usize, until: Moment) {
        for server in 0..self.servers.len() {
            let (server, client) = (Process::Server(server), Process::Client(client));
            self.network.partition(server, Some(client), until);
        }
    }

    /// Releases all leases of a client that states its demand, and wants them again at once.
    fn release_and_want_all(&mut self, index: usize) {
        let client = &mut self.clients[index];
        if !client.is_running() || client.sends_requests() {
            return;
        }
        for slot in 0..client.wants.len() {
            let client = &mut self.clients[index];
            let mut effects = client.forget(slot, self.time);
            effects.extend(client.tick(self.time));
            self.apply(index, effects);
        }
        self.report_demand(index);
    }

    fn crash_server_for(&mut self, index: usize, seconds: f64) {
        let server = &mut self.servers[index];
        if server.is_up {
            server.crash();
            self.after(seconds, Event::Start(Process::Server(index)));
        }
    }

    fn cut_off_from_etcd(&mut self, server: usize, until: Moment) {
        let (server, etcd) = (Process::Server(server), self.etcd_of(server));
        self.network.partition(server, Some(etcd), until);
        self.network.partition(etcd, Some(server), until);
    }
}
