//! Demands of a scenario: each client's own, and loads that a balancer spreads.

use std::ops::Range;

use doorman_openapi::Moment;
use fastrand::Rng;

use super::Simulation;
use crate::{
    event_queue::Event,
    network::Process,
    scenario::wave::{Traffic, Wave},
    scenario::{DemandChange, DemandPattern, DemandSource, MAX_WANTS, Scenario, Use, Window},
};

/// The demand of each client of a scenario.
pub(super) struct Demands {
    /// Other random numbers than those of the network, so that a seed has the same demand on every
    /// network.
    rng: Rng,
    demands: Vec<ScriptedDemand>,
    /// The uses of each client, one after the other.
    users: Vec<User>,
    /// The users of each client.
    users_of: Vec<Range<usize>>,
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

/// A demand, of one client or for a balancer to spread.
struct ScriptedDemand {
    wave: Wave,
    users: Vec<usize>,
    /// The users that run, among which a load is spread; `None` if it is not a load.
    running: Option<usize>,
}

impl ScriptedDemand {
    fn new(pattern: DemandPattern, running: Option<usize>) -> Self {
        Self {
            wave: Wave::new(pattern),
            users: Vec::new(),
            running,
        }
    }
}

impl Demands {
    pub(super) fn new(seed: u64, scenario: &Scenario) -> Self {
        let loads = scenario.loads.iter();
        let loads = loads.map(|it| ScriptedDemand::new(it.demand, Some(0)));
        let mut demands = Self {
            rng: Rng::with_seed(seed.rotate_left(32)),
            demands: loads.collect(),
            users: Vec::new(),
            users_of: Vec::new(),
        };
        for group in &scenario.groups {
            for _ in 0..group.count {
                let first = demands.users.len();
                for it in &group.uses {
                    let per = scenario.resources()[group.resources[it.slot]].per;
                    let traffic = group.requests.map(|kind| Traffic::new(kind, per));
                    demands.add(it, traffic);
                }
                demands.users_of.push(first..demands.users.len());
            }
        }
        demands
    }

    /// Adds a use of the client that is being added.
    fn add(&mut self, it: &Use, traffic: Option<Traffic>) {
        let demand = match it.demand {
            DemandSource::Load(load) => load,
            DemandSource::Own(pattern) => {
                self.demands.push(ScriptedDemand::new(pattern, None));
                self.demands.len() - 1
            }
        };
        self.demands[demand].users.push(self.users.len());
        self.users.push(User {
            client: self.users_of.len(),
            slot: it.slot,
            priority: it.priority,
            demand,
            traffic,
        });
    }

    /// The users of a client with a demand of its own that is constant or a random walk.
    fn steady_users(&self, client: usize) -> Vec<usize> {
        let is_steady = |user: &usize| {
            let demand = &self.demands[self.users[*user].demand];
            demand.running.is_none() && demand.wave.pattern.is_steady()
        };
        self.users_of[client].clone().filter(is_steady).collect()
    }

    /// The demand of a user, if it runs.
    fn wants(&self, user: &User) -> f64 {
        let demand = &self.demands[user.demand];
        match demand.running {
            Some(running) => demand.wave.wants / running.max(1) as f64,
            None => demand.wave.wants,
        }
    }
}

impl Simulation {
    /// Begins a run of a scenario: starts the servers, and plans what follows.
    pub(super) fn begin_scenario(&mut self, scenario: &Scenario) {
        self.begin_polls();
        self.start_servers();
        for load in 0..scenario.loads.len() {
            self.change_scripted_demand(load, true);
        }
        let groups = scenario.groups.iter();
        let members = groups.flat_map(|group| std::iter::repeat_n(group, group.count));
        for (client, group) in members.enumerate() {
            let Some(demands) = &mut self.demands else {
                return;
            };
            let mut within = |it: Window| it.at + it.within * demands.rng.f64();
            let (start, stop) = (within(group.start), group.stop.map(within));
            let users = demands.users[demands.users_of[client].clone()].iter();
            let own: Vec<_> = users.map(|it| it.demand).collect();
            self.after(start, Event::Start(Process::Client(client)));
            if let Some(stop) = stop {
                self.after(stop, Event::Leave(client));
            }
            for demand in own.into_iter().filter(|it| *it >= scenario.loads.len()) {
                self.change_scripted_demand(demand, true);
            }
        }
        if let Some(demands) = &mut self.demands {
            for (at, step) in scenario.script(&mut demands.rng) {
                self.after(at, Event::Step(step));
            }
        }
    }

    /// Moves a demand to its next value, and plans the one after.
    pub(super) fn change_scripted_demand(&mut self, demand: usize, is_first: bool) {
        let seconds = self.time.seconds_since(Moment::ORIGIN);
        let Some(demands) = &mut self.demands else {
            return;
        };
        let next = demands.demands[demand]
            .wave
            .advance(seconds, is_first, &mut demands.rng);
        if let Some(next) = next {
            self.after(next, Event::ScriptedDemand(demand));
        }
        self.report_to_users(demand);
    }

    fn report_to_users(&mut self, demand: usize) {
        let script = self.demands.iter();
        let users =
            script.flat_map(|it| it.demands[demand].users.iter().map(|user| &it.users[*user]));
        let clients: Vec<_> = users.map(|it| it.client).collect();
        for client in clients {
            self.report_demand(client);
        }
    }

    /// Spreads the loads of a client anew, which has started or stopped to run.
    pub(super) fn spread_loads(&mut self, client: usize) {
        let Some(demands) = &mut self.demands else {
            return;
        };
        let mut changed = Vec::new();
        for user in &demands.users[demands.users_of[client].clone()] {
            let demand = &mut demands.demands[user.demand];
            if let Some(running) = &mut demand.running {
                let users = demand.users.iter().map(|it| demands.users[*it].client);
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
        let (Some(demands), Some(change)) = (&mut self.demands, change) else {
            return;
        };
        for user in demands.steady_users(client) {
            let demand = demands.users[user].demand;
            let wants = &mut demands.demands[demand].wave.wants;
            *wants = match change {
                DemandChange::To(wants) => wants,
                DemandChange::By(more) => (*wants + more).min(MAX_WANTS),
            };
        }
        self.report_demand(client);
    }

    /// Tells a client its demand: its state machine, or its traffic.
    pub(super) fn report_demand(&mut self, index: usize) {
        let Some(demands) = &mut self.demands else {
            return;
        };
        let is_running = self.clients[index].is_running();
        let users = demands.users_of[index].clone();
        let mut wants = vec![0.0; self.clients[index].wants.len()];
        let mut bands = vec![Vec::new(); wants.len()];
        for user in users {
            let wanted = demands.wants(&demands.users[user]);
            let it = &mut demands.users[user];
            wants[it.slot] += wanted;
            bands[it.slot].push((it.priority, wanted));
            let Some(traffic) = &mut it.traffic else {
                continue;
            };
            let rate = if is_running { wanted } else { 0.0 };
            if traffic.change(rate, self.time, &mut demands.rng) && traffic.next < Moment::NEVER {
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
        let Some(demands) = &mut self.demands else {
            return;
        };
        let it = &mut demands.users[user];
        let (client, limit) = (it.client, user - demands.users_of[it.client].start);
        let Some(traffic) = it.traffic.as_mut().filter(|it| it.plan == plan) else {
            return;
        };
        traffic.next = self.time.after_seconds(traffic.gap(&mut demands.rng));
        self.events.push_request(traffic.next, user as u32, plan);
        if let Some((slot, permit)) = self.clients[client].request(limit, self.time) {
            self.send_to_target(client, limit, slot, permit);
        }
        self.schedule_wake(Process::Client(client));
    }

    /// The demand of a client for one of its resources at this time. One that is down or paused
    /// wants nothing.
    pub(crate) fn scripted_demand(&self, client: usize, slot: usize) -> f64 {
        let Some(demands) = self
            .demands
            .as_ref()
            .filter(|_| self.clients[client].is_running())
        else {
            return 0.0;
        };
        let users = demands.users[demands.users_of[client].clone()].iter();
        let users = users.filter(|it| it.slot == slot);
        users.map(|it| demands.wants(it)).sum()
    }

    /// A client starts for the first time, or again after a crash.
    pub(super) fn start_scripted_client(&mut self, index: usize) {
        self.clients[index].begin_requests(self.time);
        self.schedule_wake(Process::Client(index));
        self.report_demand(index);
        self.spread_loads(index);
    }

    /// Stops a client, which releases its leases.
    fn stop_scripted_client(&mut self, index: usize) {
        if self.clients[index].is_running() {
            let effects = self.clients[index].stop(self.time);
            self.record(|| format!("client {index} shuts down"));
            self.apply(index, effects);
        }
        self.close_client_poll(index);
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
}
