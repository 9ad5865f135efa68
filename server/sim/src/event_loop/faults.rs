//! Faults of processes, network and disk, and changes by operators.

use doorman_openapi::Moment;

use doorman_core::election::Event as ElectionEvent;

use super::{ELECTION_LEASE, Simulation};
use crate::{
    ablation::Rule, event_queue::Event, limits::Algorithm, limits::Limit, network::Process,
};

/// Seconds for which a server waits until etcd has recorded its resignation.
const RESIGN_TIME: f64 = 2.0;

impl Simulation {
    pub(super) fn inject_fault(&mut self) {
        let client = self.rng.usize(..self.clients.len());
        let server = self.rng.usize(..self.servers.len());
        // Without these rules only rare faults do harm.
        match self.plan.without {
            Some(Rule::DeadlineFromSend | Rule::BoundAnswerInTime) if self.rng.bool() => {
                return self.pause_and_partition(server);
            }
            Some(Rule::GuardedWrites) if self.rng.bool() => return self.stop_server(server),
            _ => {}
        }
        match self.rng.u8(..22) {
            0 => {
                let delay = 8.0 * self.rng.f64();
                self.crash_random_server(server, delay);
            }
            1 => self.stop_server(server),
            2..4 => self.pause_server(server),
            4..6 => {
                let seconds = 6.0 + 50.0 * self.rng.f64();
                self.partition_from_etcd(server, seconds);
            }
            6..9 => {
                let seconds = 2.0 + 60.0 * self.rng.f64();
                self.partition_client(client, seconds);
            }
            9..11 => self.pause_client(client),
            11 => self.crash_client(client),
            12 => self.stop_client(client),
            13..15 => self.release_and_want(client),
            15 => self.fill_disk(server),
            16 => self.fail_node(),
            17..19 => self.change_leases(),
            19 => self.change_capacity(),
            _ => self.fail_etcd(),
        }
    }

    /// Crashes a server, or its machine, for so many seconds.
    pub(super) fn crash_random_server(&mut self, index: usize, seconds: f64) {
        let server = &mut self.servers[index];
        if server.is_up {
            if self.rng.u8(..4) == 0 {
                server.crash_machine(&mut self.rng);
            } else {
                server.crash();
            }
            self.record(|| format!("server {index} crashes"));
            self.after(seconds, Event::Start(Process::Server(index)));
        }
    }

    /// Stops a server cleanly.
    pub(super) fn stop_server(&mut self, index: usize) {
        let server = &mut self.servers[index];
        if !server.is_running() || server.shuts_down_at.is_some() {
            return;
        }
        let secret = server.secret();
        server.handle(ElectionEvent::Resign { secret }, self.time);
        self.record(|| format!("server {index} resigns"));
        self.shut_down_after(index, RESIGN_TIME);
        self.drive(index);
    }

    /// Ends a server that has resigned.
    pub(super) fn shut_down(&mut self, index: usize) {
        let server = &mut self.servers[index];
        if server.is_running() && server.shuts_down_at.is_some_and(|at| at <= self.time) {
            server.shut_down(self.time);
            self.record(|| format!("server {index} shuts down"));
            let scripted = self.servers[index].restarts_after.take();
            let delay = scripted.unwrap_or_else(|| 4.0 * self.rng.f64());
            self.after(delay, Event::Start(Process::Server(index)));
        }
    }

    pub(super) fn shut_down_after(&mut self, index: usize, seconds: f64) {
        let at = self.time.after_seconds(seconds);
        self.servers[index].shuts_down_at = Some(at);
        self.events.push(at, Event::ShutDown(index));
    }

    fn pause_server(&mut self, index: usize) {
        let seconds = 20.0 * self.rng.f64();
        self.pause_server_for(index, seconds);
    }

    pub(super) fn pause_server_for(&mut self, index: usize, seconds: f64) {
        let until = self.time.after_seconds(seconds);
        let server = &mut self.servers[index];
        if server.is_running() {
            server.paused_until = Some(until);
            self.record(|| format!("server {index} pauses for {seconds} s"));
            self.after(seconds, Event::Resume(Process::Server(index)));
        }
    }

    /// Pauses a server. Answers of etcd wait for it, but its next calls are lost.
    fn pause_and_partition(&mut self, index: usize) {
        self.pause_server(index);
        let paused = self.servers[index].paused_until;
        let until = paused.unwrap_or(self.time).after_seconds(6.0);
        let server = Process::Server(index);
        self.network
            .partition(server, Some(self.etcd_of(index)), until);
    }

    /// Sometimes pauses a server between the clock reading for a request and the response. Returns
    /// the seconds until the pause ends.
    pub(super) fn stall(&mut self, index: usize) -> f64 {
        let stalls = self.network.is_hostile() && self.rng.u8(..=u8::MAX) == 0;
        if !stalls || !self.servers[index].is_up {
            return 0.0;
        }
        self.pause_server(index);
        let until = self.servers[index].paused_until;
        until.map_or(0.0, |until| until.seconds_since(self.time))
    }

    /// Prevents a server from renewing its election lease, or from knowing it. Its clients still
    /// reach it.
    pub(super) fn partition_from_etcd(&mut self, index: usize, seconds: f64) {
        let until = self.time.after_seconds(seconds);
        let loses_calls = self.rng.u8(..4) > 0;
        self.record(|| format!("server {index} is partitioned from etcd, calls: {loses_calls}"));
        let (server, etcd) = (Process::Server(index), self.etcd_of(index));
        self.network.partition(etcd, Some(server), until);
        if loses_calls {
            self.network.partition(server, Some(etcd), until);
        }
    }

    fn fail_etcd(&mut self) {
        let (time, seconds) = (self.time, 10.0 * self.rng.f64());
        let until = time.after_seconds(seconds);
        let node = match self.nodes.len() {
            1 => 0,
            nodes => self.rng.usize(..nodes),
        };
        let Some(etcd) = &mut self.nodes[node].etcd else {
            return;
        };
        match self.rng.u8(..8) {
            0 if self.rebuilds_etcd => {
                etcd.rebuild();
                self.record(|| format!("etcd of node {node} loses its data"));
            }
            // No lease ends without a quorum, or while no member runs.
            0..4 => self.stop_etcd(node, seconds),
            4..6 => {
                etcd.restart(time);
                self.record(|| format!("etcd of node {node} has a new leader"));
            }
            _ => {
                for index in self.nodes[node].servers.clone() {
                    let server = Process::Server(index);
                    let etcd = Process::Etcd(node);
                    self.network.partition(server, Some(etcd), until);
                }
                self.record(|| format!("no server of node {node} reaches etcd for {seconds} s"));
            }
        }
    }

    pub(super) fn stop_etcd(&mut self, node: usize, seconds: f64) {
        if let Some(etcd) = &mut self.nodes[node].etcd {
            etcd.stop(self.time, self.time.after_seconds(seconds));
            self.after(seconds, Event::RestartEtcd(node));
            self.record(|| format!("etcd of node {node} stops for {seconds} s"));
        }
    }

    /// Prevents a client from reaching one server or all, or from receiving responses.
    pub(super) fn partition_client(&mut self, index: usize, seconds: f64) {
        let until = self.time.after_seconds(seconds);
        let client = Process::Client(index);
        let servers = self.clients[index].servers.clone();
        let server = Process::Server(self.rng.usize(servers));
        self.record(|| format!("client {index} is partitioned"));
        match self.rng.u8(..4) {
            0 => self.network.partition(client, None, until),
            1 => self.network.partition(server, Some(client), until),
            _ => self.network.partition(client, Some(server), until),
        }
    }

    fn pause_client(&mut self, index: usize) {
        let seconds = 40.0 * self.rng.f64();
        self.pause_client_for(index, seconds);
    }

    pub(super) fn pause_client_for(&mut self, index: usize, seconds: f64) {
        let until = self.time.after_seconds(seconds);
        let client = &mut self.clients[index];
        if client.is_running() {
            client.paused_until = Some(until);
            self.record(|| format!("client {index} pauses for {seconds} s"));
            self.after(seconds, Event::Resume(Process::Client(index)));
        }
    }

    /// Ends a pause. A client handles waiting replies either before or after its timers.
    pub(super) fn resume(&mut self, process: Process) {
        let time = self.time;
        match process {
            Process::Client(index) => {
                let paused = &mut self.clients[index].paused_until;
                if paused.take_if(|until| *until <= time).is_none() {
                    return;
                }
                self.record(|| format!("client {index} resumes"));
                let ticks_first = self.rng.bool();
                if ticks_first {
                    self.tick_client(index);
                }
                while let Some(reply) = self.clients[index].inbox.pop_front() {
                    self.handle_reply(index, reply);
                }
                self.tick_client(index);
                self.report_demand(index);
                self.spread_loads(index);
            }
            Process::Server(index) => {
                let server = &mut self.servers[index];
                if server
                    .paused_until
                    .take_if(|until| *until <= time)
                    .is_none()
                {
                    return;
                }
                let waiting = std::mem::take(&mut server.inbox);
                self.record(|| format!("server {index} resumes"));
                // The requests and the election are handled by different tasks.
                if self.rng.bool() {
                    self.drive(index);
                }
                for (from, message) in waiting {
                    self.deliver_to_server(index, from, message);
                    if self.rng.bool() {
                        self.drive(index);
                    }
                }
                self.drive(index);
                self.shut_down(index);
            }
            Process::Etcd(_) => {}
        }
    }

    pub(super) fn crash_client(&mut self, index: usize) {
        if self.clients[index].is_up {
            self.record(|| format!("client {index} crashes"));
            self.restart_client(index);
        }
    }

    /// Releases all leases and restarts.
    fn stop_client(&mut self, index: usize) {
        let client = &mut self.clients[index];
        if client.is_running() {
            let effects = client.stop(self.time);
            self.record(|| format!("client {index} shuts down"));
            self.apply(index, effects);
            self.restart_client(index);
        }
    }

    fn restart_client(&mut self, index: usize) {
        self.clients[index].crash();
        let delay = 10.0 * self.rng.f64();
        self.after(delay, Event::Start(Process::Client(index)));
    }

    /// Releases a resource, and sometimes wants it again immediately.
    pub(super) fn release_and_want(&mut self, index: usize) {
        let resource = self.rng.usize(..self.limits.len());
        let client = &mut self.clients[index];
        // Units in use are not released.
        if client.is_running() && client.operations[resource].in_use == 0.0 {
            let mut effects = client.forget(resource, self.time);
            effects.extend(client.tick(self.time));
            self.record(|| format!("client {index} releases resource {resource}"));
            self.apply(index, effects);
            if self.rng.bool() {
                self.change_client_demand(index, resource);
            }
        }
    }

    fn fill_disk(&mut self, index: usize) {
        self.record(|| format!("the disk of server {index} is full"));
        let until = self.time.after_seconds(60.0 * self.rng.f64());
        self.servers[index].disk_full_until = until;
    }

    /// Crashes all servers of a node below the root, or cuts it off from its parent.
    fn fail_node(&mut self) {
        if self.nodes.len() == 1 {
            return;
        }
        let node = self.rng.usize(1..self.nodes.len());
        let servers = self.nodes[node].servers.clone();
        if self.rng.bool() {
            self.stats.node_crashes += 1;
            for server in servers {
                let delay = 8.0 * self.rng.f64();
                self.crash_random_server(server, delay);
            }
            return;
        }
        let seconds = 2.0 + 40.0 * self.rng.f64();
        self.cut_off_random_node(node, seconds);
    }

    pub(super) fn cut_off_random_node(&mut self, node: usize, seconds: f64) {
        let until = self.time.after_seconds(seconds);
        let loses_answers = self.rng.bool();
        self.stats.cut_offs += 1;
        self.record(|| format!("node {node} is cut off, answers only: {loses_answers}"));
        self.cut_off_from_parent(node, loses_answers, until);
    }

    /// Loses all messages from a parent to a node, and those from the node, too, unless
    /// `loses_answers`.
    pub(super) fn cut_off_from_parent(&mut self, node: usize, loses_answers: bool, until: Moment) {
        let Some(parent) = self.nodes[node].parent else {
            return;
        };
        for upper in self.nodes[parent].servers.clone() {
            for lower in self.nodes[node].servers.clone() {
                let (lower, upper) = (Process::Server(lower), Process::Server(upper));
                self.network.partition(upper, Some(lower), until);
                if !loses_answers {
                    self.network.partition(lower, Some(upper), until);
                }
            }
        }
    }

    /// The etcd of a server's node.
    pub(super) fn etcd_of(&self, server: usize) -> Process {
        Process::Etcd(self.servers[server].membership.index)
    }

    /// Changes the lease lengths and algorithms.
    fn change_leases(&mut self) {
        let mut limits = self.limits.clone();
        for limit in &mut limits {
            let factor = [0.25, 0.5, 1.0][self.rng.usize(..3)];
            let lease_length = (self.longest_lease * factor).max(5.0);
            let algorithm = Algorithm::random(&mut self.rng, &self.priorities);
            *limit = Limit {
                algorithm: if limit.algorithm.divides() {
                    algorithm
                } else {
                    limit.algorithm
                },
                lease_length,
                refresh_interval: (lease_length / 5.0).max(1.5),
                minimum_refresh_interval: limit.minimum_refresh_interval.min(1.0),
                ..*limit
            };
        }
        self.reload(limits);
    }

    /// Raises the capacity of a resource, or lowers it where the run allows that.
    fn change_capacity(&mut self) {
        let mut limits = self.limits.clone();
        let resource = self.rng.usize(..limits.len());
        let capacity = &mut limits[resource].capacity;
        let least = if self.allows_cuts { 5.0 } else { *capacity };
        *capacity = least + (200.0 - least).max(0.0) * self.rng.f64();
        self.reload(limits);
    }

    /// Ends all faults and repairs their effects.
    pub(super) fn stop_faults(&mut self) {
        self.record(|| "faults stop".to_owned());
        self.network.make_reliable();
        self.events.drop_messages();
        for index in 0..self.servers.len() {
            let server = &mut self.servers[index];
            server.disk_full_until = self.time;
            if let Some(until) = &mut server.paused_until {
                *until = self.time;
            }
            self.resume(Process::Server(index));
            if !self.servers[index].is_up {
                self.after(0.0, Event::Start(Process::Server(index)));
            }
        }
        for index in 0..self.clients.len() {
            if let Some(until) = &mut self.clients[index].paused_until {
                *until = self.time;
            }
            self.resume(Process::Client(index));
            self.after(0.0, Event::Start(Process::Client(index)));
        }
        for etcd in self.nodes.iter_mut().filter_map(|it| it.etcd.as_mut()) {
            etcd.down_until = self.time;
        }
        self.stop_extra_faults();
        let rest = 1.8 * self.longest_lease + 2.0 * f64::from(ELECTION_LEASE);
        let rest = rest * self.levels();
        self.after(rest, Event::FinalDemand);
    }
}
