//! The script of a run with random faults, and changes by operators.
//!
//! Safety rules break where several faults lie a lease, a bound or an election apart. Random times
//! almost never do, so a part of the faults are chains: a fault, and others when something ends
//! that it may have kept from being renewed.

use fastrand::Rng;

use super::{
    ablation::Rule, client::Client, extras::Extra, extras::Extras, limits, limits::Algorithm,
    limits::Glob, limits::Limit, limits::LimitFeedback, limits::LimitUnit, limits::Priorities,
    scenario::FaultKind, scenario::steps::End, scenario::steps::Fault, scenario::steps::Length,
    scenario::steps::Script, scenario::steps::ServerChoice, scenario::steps::ServerCount,
    scenario::steps::Step, tree::Node,
};

/// The most faults of a chain after the first one.
const MAX_FOLLOWING: usize = 3;
/// The most seconds between two changes of a demand, two faults, and two of the added kinds.
const INTERVALS: [f64; 3] = [8.0, 12.0, 30.0];
/// The most seconds for which servers have different documents.
pub(super) const DEPLOYMENT: f64 = 60.0;
/// The most seconds for which a deposed leader of etcd answers servers that know its successor.
const DEPOSED: f64 = 60.0;
/// The most seconds for which a server is down after a crash, and after a clean stop.
const CRASH: f64 = 8.0;
const STOP: f64 = 4.0;
/// A fault that is over at once.
const AT_ONCE: Length = Length::Seconds(0.05);

const CRASHES: [FaultKind; 4] = [
    FaultKind::CrashMachine,
    FaultKind::CrashServer,
    FaultKind::CrashServer,
    FaultKind::CrashServer,
];
const CUT_OFFS: [FaultKind; 2] = [FaultKind::LoseNodeAnswers, FaultKind::PartitionNode];
/// A server cannot renew its election lease, or does not know of it. Its clients still reach it.
const ETCD_PARTITIONS: [FaultKind; 4] = [
    FaultKind::LoseEtcdAnswers,
    FaultKind::PartitionServer,
    FaultKind::PartitionServer,
    FaultKind::PartitionServer,
];
const CLIENT_PARTITIONS: [FaultKind; 4] = [
    FaultKind::PartitionClients,
    FaultKind::LoseClientAnswers,
    FaultKind::LoseClientRequests,
    FaultKind::LoseClientRequests,
];

/// Draws the script of a run.
pub(super) struct Generator<'a> {
    pub(super) rng: Rng,
    pub(super) without: Option<Rule>,
    pub(super) nodes: &'a [Node],
    pub(super) clients: &'a [Client],
    pub(super) priorities: Priorities,
    /// Whether etcd may lose its data.
    pub(super) rebuilds_etcd: bool,
    /// Whether operators lower capacities. Only in some runs, because the overshoot that a cut
    /// allows would hide other faults.
    pub(super) allows_cuts: bool,
    /// The added kinds.
    pub(super) extras: Extras,
    /// The resource whose algorithm does not divide the capacity at first.
    pub(super) beside: Option<usize>,
    /// Of the document at the present second.
    pub(super) limits: Vec<Limit>,
    pub(super) longest_lease: f64,
    pub(super) second: f64,
    pub(super) script: Script,
}

/// The processes that a fault may affect. Its kind decides which of them it does.
#[derive(Clone, Copy)]
struct Target {
    node: usize,
    server: ServerChoice,
    client: usize,
}

impl Generator<'_> {
    /// The steps before a second.
    pub(super) fn draw(mut self, end: f64) -> Script {
        let extra = if self.extras == Extras::NONE {
            f64::INFINITY
        } else {
            10.0
        };
        let mut next = [5.0, 10.0, extra];
        loop {
            self.second = next.into_iter().fold(end, f64::min);
            let Some(due) = next.iter().position(|it| *it == self.second && *it < end) else {
                return self.script;
            };
            match due {
                0 => self.change_demand(),
                1 => self.add_fault(),
                _ => self.add_extra_fault(),
            }
            next[due] += INTERVALS[due] * self.rng.f64();
        }
    }

    fn push(&mut self, step: Step) {
        self.script.push((self.second, step));
    }

    fn add(&mut self, kind: FaultKind, length: Length, target: Target) {
        let of_client = self.rng.usize(self.clients[target.client].servers.clone());
        self.push(Step::Fault(Fault {
            kind,
            length,
            node: target.node,
            server: Some(if kind.is_of_clients() {
                ServerChoice::Number(of_client)
            } else {
                target.server
            }),
            clients: vec![target.client],
            late: 0.0,
            change: None,
        }));
    }

    fn pick(&mut self, kinds: &[FaultKind]) -> FaultKind {
        kinds[self.rng.usize(..kinds.len())]
    }

    fn servers(&self) -> usize {
        self.nodes.iter().map(|it| it.servers.len()).sum()
    }

    fn add_fault(&mut self) {
        let servers = self.servers();
        let target = Target {
            node: self.rng.usize(..self.nodes.len()),
            server: ServerChoice::Number(self.rng.usize(..servers)),
            client: self.rng.usize(..self.clients.len()),
        };
        // Without these rules only rare faults do harm.
        match self.without {
            Some(Rule::DeadlineFromSend | Rule::BoundAnswerInTime) if self.rng.bool() => {
                return self.pause_and_partition(target);
            }
            Some(Rule::GuardedWrites) if self.rng.bool() => {
                let length = Length::Seconds(STOP * self.rng.f64());
                return self.add(FaultKind::StopServer, length, target);
            }
            _ => {}
        }
        // A chain has several faults, so a third of all are aimed.
        if self.rng.u8(..7) == 0 {
            return self.add_chain();
        }
        let part = self.rng.f64();
        let (kind, seconds) = match self.rng.u8(..22) {
            0 => (self.pick(&CRASHES), CRASH * part),
            1 => (FaultKind::StopServer, STOP * part),
            2..4 => (FaultKind::PauseServer, 20.0 * part),
            4..6 => (self.pick(&ETCD_PARTITIONS), 6.0 + 50.0 * part),
            6..9 => (self.pick(&CLIENT_PARTITIONS), 2.0 + 60.0 * part),
            9..11 => (FaultKind::PauseClients, 40.0 * part),
            11 => (FaultKind::CrashClients, 10.0 * part),
            12 => (FaultKind::StopClients, 10.0 * part),
            13..15 => return self.release(target.client),
            15 => (FaultKind::FillDisk, 60.0 * part),
            16 => return self.fail_node(part, target),
            17..19 => return self.change_leases(),
            19 => return self.change_capacity(),
            _ => return self.fail_etcd(Length::Seconds(10.0 * part), target),
        };
        self.add(kind, Length::Seconds(seconds), target);
    }

    /// Adds a fault until an end, and others at ends.
    fn add_chain(&mut self) {
        self.add_aimed_fault();
        for _ in 0..self.rng.usize(1..=MAX_FOLLOWING) {
            let first = self.script.len();
            self.add_aimed_fault();
            let end = End::random(&mut self.rng);
            let steps = self.script.split_off(first).into_iter();
            let aimed = steps.map(|(at, step)| (at, Step::AtEnd(end, Box::new(step))));
            self.script.extend(aimed);
        }
    }

    /// Adds a fault that lasts until something ends.
    fn add_aimed_fault(&mut self) {
        let until = Length::Until(End::random(&mut self.rng));
        let node = self.rng.usize(..self.nodes.len());
        let otherwise = self.rng.usize(self.nodes[node].servers.clone());
        let client = self.rng.usize(..self.clients.len());
        let server = match self.rng.u8(..4) {
            0 => ServerChoice::Number(otherwise),
            _ => ServerChoice::NewestMaster { otherwise },
        };
        let Node { parent, etcd, .. } = &self.nodes[node];
        let (has_parent, has_etcd) = (parent.is_some(), etcd.is_some());
        let (kind, length) = match self.rng.u8(..13) {
            0..3 if has_parent => (self.pick(&CUT_OFFS), until),
            0..2 => (self.pick(&CRASHES), AT_ONCE),
            2 | 3 => (self.pick(&CRASHES), until),
            4 => {
                let length = Length::Seconds(STOP * self.rng.f64());
                (FaultKind::StopServer, length)
            }
            5 => (FaultKind::PauseServer, until),
            6 if has_etcd => (FaultKind::StopEtcd, until),
            6 | 7 => (self.pick(&ETCD_PARTITIONS), until),
            8 | 9 => (self.pick(&CLIENT_PARTITIONS), until),
            10 => (FaultKind::PauseClients, until),
            11 => return self.release(client),
            _ => return self.change_demand(),
        };
        let target = Target {
            node,
            server,
            client,
        };
        self.add(kind, length, target);
    }

    /// Pauses a server. Answers of etcd wait for it, but its next calls are lost.
    fn pause_and_partition(&mut self, target: Target) {
        let seconds = 20.0 * self.rng.f64();
        self.add(FaultKind::PauseServer, Length::Seconds(seconds), target);
        let length = Length::Seconds(seconds + 6.0);
        self.add(FaultKind::LoseEtcdCalls, length, target);
    }

    /// Crashes all servers of a node below the root, or cuts it off from its parent.
    fn fail_node(&mut self, part: f64, target: Target) {
        if self.nodes.len() > 1 {
            let node = self.rng.usize(1..self.nodes.len());
            let (kind, seconds) = if self.rng.bool() {
                (FaultKind::CrashNode, CRASH)
            } else {
                (self.pick(&CUT_OFFS), 2.0 + 40.0 * part)
            };
            self.add(kind, Length::Seconds(seconds), Target { node, ..target });
        }
    }

    fn fail_etcd(&mut self, length: Length, target: Target) {
        let kind = match self.rng.u8(..8) {
            0 if self.rebuilds_etcd => FaultKind::RebuildEtcd,
            0..4 => FaultKind::StopEtcd,
            4..6 => FaultKind::ElectEtcdLeader,
            _ => {
                for server in self.nodes[target.node].servers.clone() {
                    let server = ServerChoice::Number(server);
                    let target = Target { server, ..target };
                    self.add(FaultKind::LoseEtcdCalls, length, target);
                }
                return;
            }
        };
        self.add(kind, length, target);
    }

    /// Releases a resource, and sometimes wants it again at once.
    fn release(&mut self, client: usize) {
        let resource = self.rng.usize(..self.limits.len());
        self.push(Step::Release { client, resource });
        if self.rng.bool() {
            self.change_demand_of(client, resource);
        }
    }

    fn change_demand(&mut self) {
        let client = self.rng.usize(..self.clients.len());
        let resource = self.rng.usize(..self.limits.len());
        self.change_demand_of(client, resource);
    }

    fn change_demand_of(&mut self, client: usize, resource: usize) {
        let wants = limits::random_demand(&mut self.rng);
        let priority = self.priorities.random(&mut self.rng);
        self.push(Step::Demand {
            client,
            resource,
            wants,
            priority,
        });
    }

    fn change_limits(&mut self, are_active: bool) {
        let limits = self.limits.clone();
        self.push(Step::ChangeLimits { limits, are_active });
    }

    fn change_lease_lengths(&mut self) {
        for limit in &mut self.limits {
            let factor = [0.25, 0.5, 1.0][self.rng.usize(..3)];
            let lease_length = (self.longest_lease * factor).max(5.0);
            limit.lease_length = lease_length;
            limit.refresh_interval = (lease_length / 5.0).max(1.5);
            limit.minimum_refresh_interval = limit.minimum_refresh_interval.min(1.0);
        }
    }

    /// Changes the lease lengths and algorithms.
    fn change_leases(&mut self) {
        self.change_lease_lengths();
        for limit in self.limits.iter_mut().filter(|it| it.algorithm.divides()) {
            limit.algorithm = Algorithm::random(&mut self.rng, self.priorities);
        }
        self.change_limits(true);
    }

    /// Raises the capacity of a resource, or lowers it where the run allows that.
    fn change_capacity(&mut self) {
        let index = self.rng.usize(..self.limits.len());
        let capacity = &mut self.limits[index].capacity;
        let least = if self.allows_cuts { 5.0 } else { *capacity };
        *capacity = least + (200.0 - least).max(0.0) * self.rng.f64();
        self.change_limits(true);
    }

    fn add_extra_fault(&mut self) {
        let kinds = [
            Extra::Documents,
            Extra::ServerCount,
            Extra::Algorithms,
            Extra::DeposedLeader,
            Extra::Feedback,
        ];
        let kinds = kinds.into_iter().filter(|it| self.extras.contains(*it));
        let kind = self.rng.choice(kinds.collect::<Vec<_>>());
        let nodes = (0..self.nodes.len()).filter(|it| self.nodes[*it].etcd.is_some());
        let with_etcd = self.rng.choice(nodes.collect::<Vec<_>>());
        match (kind, with_etcd) {
            (Some(Extra::Documents), _) => self.change_documents(),
            (Some(Extra::ServerCount), Some(node)) => self.change_server_count(node),
            (Some(Extra::Algorithms), _) => self.change_algorithm(),
            (Some(Extra::Feedback), _) => self.change_feedback(),
            (Some(Extra::DeposedLeader), Some(node)) => self.depose_etcd_leader(node),
            _ => {}
        }
    }

    /// Changes the document. Some servers are down meanwhile, and the others have it later.
    fn change_documents(&mut self) {
        self.change_templates();
        self.change_limits(false);
        for server in 0..self.servers() {
            let target = Target {
                node: 0,
                server: ServerChoice::Number(server),
                client: 0,
            };
            let part = self.rng.f64();
            let (kind, seconds) = match self.rng.u8(..4) {
                0 => (self.pick(&CRASHES), CRASH * part),
                1 => (FaultKind::StopServer, STOP * part),
                _ => {
                    let at = self.second + DEPLOYMENT * part;
                    self.script.push((at, Step::Deploy(server)));
                    continue;
                }
            };
            self.add(kind, Length::Seconds(seconds), target);
        }
    }

    /// Changes templates in the document that servers read when they start. No rate changes.
    fn change_templates(&mut self) {
        self.change_lease_lengths();
        if !self.extras.contains(Extra::Documents) {
            return;
        }
        let rng = &mut self.rng;
        for (index, limit) in self.limits.iter_mut().enumerate() {
            if rng.bool() {
                limit.glob = [Glob::Exact, Glob::Prefix][rng.usize(..2)];
            }
            limit.unit = match rng.u8(..8) {
                0 if Some(index) != self.beside => LimitUnit::Gauge,
                0..4 => LimitUnit::Rate {
                    per: [1.0, 60.0, 0.5][rng.usize(..3)],
                },
                _ => limit.unit,
            };
        }
    }

    /// Lets the servers of a node run with an election, or one of them without.
    fn change_server_count(&mut self, node: usize) {
        self.change_templates();
        let change = ServerCount {
            node,
            choice: self.rng.f64(),
            is_stopped: self.rng.bool(),
            seconds: CRASH * self.rng.f64(),
            limits: self.limits.clone(),
        };
        self.push(Step::ChangeServerCount(change));
    }

    /// Changes the algorithm of the resource that was not divided at first.
    fn change_algorithm(&mut self) {
        if let Some(resource) = self.beside {
            self.limits[resource].algorithm = Algorithm::random_of_all(&mut self.rng);
            self.change_limits(true);
        }
    }

    /// Changes a target, often when the master of the root fails or something else ends, or the
    /// `feedback` of a template, or what a client says of its requests.
    fn change_feedback(&mut self) {
        let resource = self.rng.usize(..self.limits.len());
        let target = Step::ChangeTarget { resource };
        let until = Length::Until(End::random(&mut self.rng));
        match self.rng.u8(..8) {
            0..3 => self.push(target),
            3 | 4 => {
                let end = End::random(&mut self.rng);
                self.push(Step::AtEnd(end, Box::new(target)));
            }
            5 => {
                self.push(target);
                let otherwise = self.nodes[0].servers.start;
                let root = Target {
                    node: 0,
                    server: ServerChoice::NewestMaster { otherwise },
                    client: 0,
                };
                let kind = self.pick(&CRASHES);
                self.add(kind, until, root);
            }
            6 => {
                let is_removed = self.rng.u8(..3) == 0;
                let feedback = (!is_removed).then(|| LimitFeedback::random(&mut self.rng));
                self.limits[resource].feedback = feedback;
                self.change_limits(true);
            }
            _ => {
                let client = self.rng.usize(..self.clients.len());
                self.push(Step::ChangeClaims { client });
            }
        }
    }

    /// The etcd of a node has another leader, and the one before answers on. The master of the node
    /// often crashes then.
    fn depose_etcd_leader(&mut self, node: usize) {
        let otherwise = self.nodes[node].servers.start;
        let target = Target {
            node,
            server: ServerChoice::NewestMaster { otherwise },
            client: 0,
        };
        let length = Length::Seconds(DEPOSED * self.rng.f64());
        self.add(FaultKind::DeposeEtcdLeader, length, target);
        if self.rng.bool() {
            let (kind, length) = (self.pick(&CRASHES), CRASH * self.rng.f64());
            self.add(kind, Length::Seconds(length), target);
        }
    }
}
