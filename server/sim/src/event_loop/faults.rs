//! Executes the steps of a script.

use doorman_core::election::Event as ElectionEvent;
use doorman_openapi::Moment;
use fastrand::Rng;

use super::{ELECTION_LEASE, Simulation};
use crate::{
    event_queue::Event,
    network::{Delay, Message, PollEnd, Process},
    scenario::FaultKind,
    scenario::steps::{Fault, Length, ServerChoice, Step},
};

/// Seconds for which a server waits until etcd has recorded its resignation.
const RESIGN_TIME: f64 = 2.0;
/// The shortest time until an end, in seconds.
const SHORTEST: f64 = 0.05;

impl Simulation {
    pub(crate) fn execute(&mut self, step: Step) {
        match step {
            Step::Fault(fault) => self.inject_fault(&fault),
            Step::AtEnd(end, step) => {
                // A fault counts itself.
                let is_counted = u64::from(!matches!(*step, Step::Fault(_)));
                self.stats.faults += is_counted;
                self.stats.aimed_faults += is_counted;
                let seconds = self.seconds_to(end);
                self.after(seconds, Event::Step(*step));
            }
            Step::Demand {
                client,
                resource,
                wants,
                priority,
            } => self.set_client_demand(client, resource, wants, priority),
            Step::Release { client, resource } => self.release(client, resource),
            Step::ChangeDocument(document) => {
                self.document = document;
                self.activate_document();
            }
            Step::ChangeLimits { limits, are_active } => {
                self.stats.faults += 1;
                self.change_limits(limits);
                if are_active {
                    self.activate_document();
                } else {
                    self.stats.document_changes += 1;
                }
            }
            Step::ChangeServerCount(change) => self.change_server_count(change),
            Step::Deploy(server) => self.deploy(server),
            Step::ChangeTarget { resource } => self.change_target(resource),
            Step::ChangeClaims { client } => self.change_claims(client),
        }
    }

    fn inject_fault(&mut self, fault: &Fault) {
        self.stats.faults += 1;
        let seconds = match fault.length {
            Length::Seconds(seconds) => seconds,
            Length::Until(end) => {
                self.stats.aimed_faults += 1;
                self.seconds_to(end).max(SHORTEST)
            }
        };
        let server = match fault.server {
            Some(ServerChoice::Number(server)) => Some(server),
            Some(ServerChoice::Master) => self.master_of(fault.node),
            Some(ServerChoice::NewestMaster { otherwise }) => {
                Some(self.newest_master(fault.node).unwrap_or(otherwise))
            }
            None => None,
        };
        self.record(|| {
            let (kind, clients, change) = (fault.kind, &fault.clients, &fault.change);
            format!("{kind:?} for {seconds} s: {server:?}, clients {clients:?}, {change:?}")
        });
        if fault.kind.is_of_clients() {
            self.inject_client_fault(fault, server, seconds);
        } else if let (true, Some(server)) = (fault.kind.is_of_one_server(), server) {
            self.inject_server_fault(fault, server, seconds);
        } else {
            self.inject_node_fault(fault, seconds);
        }
    }

    fn inject_server_fault(&mut self, fault: &Fault, server: usize, seconds: f64) {
        let until = self.time.after_seconds(seconds);
        let (process, etcd) = (Process::Server(server), self.etcd_of(server));
        match fault.kind {
            FaultKind::CrashServer => self.crash_server(server, seconds, false),
            FaultKind::CrashMachine => self.crash_server(server, seconds, true),
            FaultKind::StopServer => self.stop_server(server, seconds),
            FaultKind::PauseServer => self.pause_server_for(server, seconds),
            FaultKind::FillDisk => self.servers[server].disk_full_until = until,
            FaultKind::DelayEtcdRequests => {
                self.delay_requests(fault, seconds, process, Some(etcd));
            }
            FaultKind::LoseEtcdCalls => self.network.partition(process, Some(etcd), until),
            FaultKind::LoseEtcdAnswers => self.network.partition(etcd, Some(process), until),
            _ => self.cut_off_from_etcd(server, until),
        }
    }

    fn inject_node_fault(&mut self, fault: &Fault, seconds: f64) {
        let node = fault.node;
        let until = self.time.after_seconds(seconds);
        let servers = self.nodes[node].servers.clone();
        match fault.kind {
            FaultKind::LoseMaster => {
                if let Some(master) = self.master_of(node) {
                    self.crash_server(master, seconds, false);
                }
                for server in servers {
                    self.cut_off_from_etcd(server, until);
                }
            }
            FaultKind::ElectMaster => {
                if let Some(master) = self.master_of(node) {
                    self.crash_server(master, 0.0, false);
                }
            }
            FaultKind::CrashNode => {
                self.stats.node_crashes += 1;
                for server in servers {
                    let (seconds, is_machine) = (seconds * self.rng.f64(), self.rng.u8(..4) == 0);
                    self.crash_server(server, seconds, is_machine);
                }
            }
            FaultKind::PartitionNode => self.cut_off_from_parent(node, false, until),
            FaultKind::LoseNodeAnswers => self.cut_off_from_parent(node, true, until),
            FaultKind::DelayNodeRequests | FaultKind::RepeatNodeRequests => {
                let parent = self.nodes[node].parent;
                let parents = parent.map_or(0..0, |it| self.nodes[it].servers.clone());
                for server in servers {
                    for parent in parents.clone() {
                        let to = Some(Process::Server(parent));
                        self.delay_requests(fault, seconds, Process::Server(server), to);
                    }
                }
            }
            _ => self.inject_etcd_fault(fault.kind, node, seconds),
        }
    }

    fn inject_etcd_fault(&mut self, kind: FaultKind, node: usize, seconds: f64) {
        let Some(etcd) = &mut self.nodes[node].etcd else {
            return;
        };
        match kind {
            // No lease ends without a quorum, or while no member runs.
            FaultKind::StopEtcd => {
                etcd.stop(self.time, self.time.after_seconds(seconds));
                self.after(seconds, Event::RestartEtcd(node));
            }
            FaultKind::ElectEtcdLeader => etcd.restart(self.time),
            FaultKind::RebuildEtcd => etcd.rebuild(),
            FaultKind::DeposeEtcdLeader => {
                let rng = &mut self.rng;
                let (timeout, own) = (1.0 + 2.0 * rng.f64(), Rng::with_seed(rng.u64(..)));
                etcd.depose_leader(self.time, timeout, seconds, own);
                self.stats.etcd_depositions += 1;
            }
            // There is no master.
            _ => {}
        }
    }

    fn inject_client_fault(&mut self, fault: &Fault, server: Option<usize>, seconds: f64) {
        let until = self.time.after_seconds(seconds);
        for (number, client) in fault.clients.iter().copied().enumerate() {
            match fault.kind {
                FaultKind::ChangeDemand => self.change_steady_demand(client, fault.change),
                FaultKind::StopClients if self.clients[client].is_running() => {
                    let effects = self.clients[client].stop(self.time);
                    self.apply(client, effects);
                    self.crash_client(client, seconds);
                }
                FaultKind::CrashClients if self.clients[client].is_up => {
                    self.crash_client(client, seconds);
                }
                FaultKind::PauseClients => self.pause_client_for(client, seconds),
                FaultKind::PartitionClients => {
                    self.network.partition(Process::Client(client), None, until);
                    self.lose_answers_to(client, None, until);
                }
                FaultKind::LoseClientRequests => {
                    let server = server.map(Process::Server);
                    self.network
                        .partition(Process::Client(client), server, until);
                }
                FaultKind::LoseClientAnswers => self.lose_answers_to(client, server, until),
                FaultKind::DelayClientRequests | FaultKind::RepeatClientRequests => {
                    self.delay_requests(fault, seconds, Process::Client(client), None);
                }
                FaultKind::ReleaseClients => self.release_and_want_all(client),
                FaultKind::RestartClients => {
                    let delay = seconds * number as f64 / fault.clients.len() as f64;
                    self.after(delay, Event::Replace(client));
                }
                _ => {}
            }
        }
    }

    /// Crashes a server, or its machine, for so many seconds.
    pub(super) fn crash_server(&mut self, index: usize, seconds: f64, is_machine: bool) {
        let server = &mut self.servers[index];
        if server.is_up {
            if is_machine {
                server.crash_machine(&mut self.rng);
            } else {
                // The kernel closes its connections.
                let closed = server.close_parent_poll();
                for (to, call, _) in server.end_polls() {
                    self.respond_to_poll(index, to, call, PollEnd::Failed);
                }
                if let Some((to, call)) = closed {
                    self.send_hints(Process::Server(index), to, &Message::ClosePoll { call });
                }
                self.servers[index].crash();
            }
            self.after(seconds, Event::Start(Process::Server(index)));
        }
    }

    /// Stops a server cleanly. It starts again so long after its end.
    pub(super) fn stop_server(&mut self, index: usize, seconds: f64) {
        let server = &mut self.servers[index];
        if !server.is_running() || server.shuts_down_at.is_some() {
            return;
        }
        server.restarts_after = Some(seconds);
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
            let polls = server.end_polls();
            server.shut_down(self.time);
            for (to, call, end) in polls {
                self.respond_to_poll(index, to, call, end);
            }
            self.record(|| format!("server {index} shuts down"));
            let delay = self.servers[index].restarts_after.take();
            let start = Event::Start(Process::Server(index));
            self.after(delay.unwrap_or_default(), start);
        }
    }

    pub(super) fn shut_down_after(&mut self, index: usize, seconds: f64) {
        let at = self.time.after_seconds(seconds);
        self.servers[index].shuts_down_at = Some(at);
        self.events.push(at, Event::ShutDown(index));
    }

    fn pause_server_for(&mut self, index: usize, seconds: f64) {
        let until = self.time.after_seconds(seconds);
        let server = &mut self.servers[index];
        if server.is_running() {
            server.paused_until = Some(until);
            self.record(|| format!("server {index} pauses for {seconds} s"));
            self.after(seconds, Event::Resume(Process::Server(index)));
        }
    }

    /// Sometimes pauses a server between the clock reading for a request and the response. Returns
    /// the seconds until the pause ends.
    pub(super) fn stall(&mut self, index: usize) -> f64 {
        let stalls = self.network.is_hostile() && self.rng.u8(..=u8::MAX) == 0;
        if !stalls || !self.servers[index].is_up {
            return 0.0;
        }
        let seconds = 20.0 * self.rng.f64();
        self.pause_server_for(index, seconds);
        let until = self.servers[index].paused_until;
        until.map_or(0.0, |until| until.seconds_since(self.time))
    }

    fn crash_client(&mut self, index: usize, seconds: f64) {
        self.close_client_poll(index);
        self.clients[index].crash();
        self.after(seconds, Event::Start(Process::Client(index)));
        self.report_demand(index);
        self.spread_loads(index);
    }

    fn pause_client_for(&mut self, index: usize, seconds: f64) {
        let until = self.time.after_seconds(seconds);
        let client = &mut self.clients[index];
        if client.is_running() {
            client.paused_until = Some(until);
            self.record(|| format!("client {index} pauses for {seconds} s"));
            self.after(seconds, Event::Resume(Process::Client(index)));
            self.report_demand(index);
            self.spread_loads(index);
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

    /// Releases a resource of a client.
    pub(super) fn release(&mut self, index: usize, resource: usize) {
        let client = &mut self.clients[index];
        // Units in use are not released.
        if client.is_running() && client.operations[resource].in_use == 0.0 {
            let mut effects = client.forget(resource, self.time);
            effects.extend(client.tick(self.time));
            self.record(|| format!("client {index} releases resource {resource}"));
            self.apply(index, effects);
        }
    }

    /// Releases all leases of a client that states its demand, and wants them again at once.
    fn release_and_want_all(&mut self, index: usize) {
        if !self.clients[index].sends_requests() {
            for slot in 0..self.clients[index].wants.len() {
                self.release(index, slot);
            }
            self.report_demand(index);
        }
    }

    /// Loses all messages from a parent to a node, and those from the node, too, unless
    /// `loses_answers`.
    fn cut_off_from_parent(&mut self, node: usize, loses_answers: bool, until: Moment) {
        let Some(parent) = self.nodes[node].parent else {
            return;
        };
        self.stats.cut_offs += 1;
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

    fn cut_off_from_etcd(&mut self, server: usize, until: Moment) {
        let (server, etcd) = (Process::Server(server), self.etcd_of(server));
        self.network.partition(server, Some(etcd), until);
        self.network.partition(etcd, Some(server), until);
    }

    /// Loses the answers of one server to a client, or of all.
    fn lose_answers_to(&mut self, client: usize, server: Option<usize>, until: Moment) {
        let all = self.clients[client].servers.clone();
        let servers = server.map_or(all, |it| it..it + 1);
        for server in servers {
            let (server, client) = (Process::Server(server), Process::Client(client));
            self.network.partition(server, Some(client), until);
        }
    }

    /// Delays or repeats the requests of a process to another one, or to all.
    fn delay_requests(&mut self, fault: &Fault, seconds: f64, from: Process, to: Option<Process>) {
        self.network.delay(Delay {
            from,
            to,
            until: self.time.after_seconds(seconds),
            by: fault.late,
            is_repeated: matches!(
                fault.kind,
                FaultKind::RepeatNodeRequests | FaultKind::RepeatClientRequests
            ),
        });
    }

    /// The master of a node: the running server whose reign has the highest epoch.
    pub(crate) fn master_of(&self, node: usize) -> Option<usize> {
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

    /// Ends all faults and repairs their effects.
    pub(super) fn stop_faults(&mut self) {
        self.record(|| "faults stop".to_owned());
        self.network.make_reliable();
        self.events.drop_messages_and_steps();
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
