//! Demand over time and faults, as a scenario prescribes them.

use std::f64::consts::TAU;

use doorman_openapi::Moment;
use fastrand::Rng;

use super::Simulation;
use crate::simulation::{
    event_queue::Event,
    network::Process,
    scenario::{DemandPattern, Fault, FaultKind, MAX_WANTS, RandomFaults},
};

/// Seconds within which the clients start.
const JOINING: f64 = 5.0;
/// Seconds between two values of a smooth demand.
const STEP: f64 = 1.0;

/// The demand of each client, and the faults.
pub(super) struct Script {
    /// Other random numbers than those of the network, so that a seed has the same demand on every
    /// network.
    rng: Rng,
    demands: Vec<ScriptedDemand>,
    faults: Vec<Fault>,
    random_faults: Option<RandomFaults>,
}

/// The demand of a client.
struct ScriptedDemand {
    pattern: DemandPattern,
    wants: f64,
    is_peak: bool,
}

impl Script {
    pub(super) fn new(
        seed: u64,
        patterns: impl Iterator<Item = DemandPattern>,
        faults: Vec<Fault>,
        random_faults: Option<RandomFaults>,
    ) -> Self {
        let demands = patterns.map(|pattern| ScriptedDemand {
            pattern,
            wants: 0.0,
            is_peak: true,
        });
        Self {
            rng: Rng::with_seed(seed.rotate_left(32)),
            demands: demands.collect(),
            faults,
            random_faults,
        }
    }
}

impl ScriptedDemand {
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
        for client in 0..self.clients.len() {
            let Some(script) = &mut self.script else {
                return;
            };
            let delay = JOINING * script.rng.f64();
            self.after(delay, Event::Start(Process::Client(client)));
            self.change_scripted_demand(client, true);
        }
        let times = self.script.iter().flat_map(|it| &it.faults);
        let times: Vec<f64> = times.map(|fault| fault.at).collect();
        for (index, at) in times.into_iter().enumerate() {
            self.after(at, Event::ScriptedFault(index));
        }
        self.expect_random_fault();
    }

    /// Changes the demand of a client, and plans the next change.
    pub(super) fn change_scripted_demand(&mut self, client: usize, is_first: bool) {
        let seconds = self.time.seconds_since(Moment::ORIGIN);
        let Some(script) = &mut self.script else {
            return;
        };
        let next = script.demands[client].advance(seconds, is_first, &mut script.rng);
        if let Some(next) = next {
            self.after(next, Event::ScriptedDemand(client));
        }
        self.report_demand(client);
    }

    pub(super) fn report_demand(&mut self, index: usize) {
        let Some(script) = &self.script else { return };
        let wants = script.demands[index].wants;
        let client = &mut self.clients[index];
        if client.is_running() {
            let effects = client.set_demand(0, wants, self.time);
            self.apply(index, effects);
        }
    }

    /// The demand of a client at this time. One that is down or paused wants nothing.
    pub(in crate::simulation) fn scripted_demand(&self, client: usize) -> f64 {
        let script = self.script.iter();
        let wants = script.map(|it| it.demands[client].wants).sum();
        if self.clients[client].is_running() {
            wants
        } else {
            0.0
        }
    }

    /// A client starts for the first time, or again after a crash.
    pub(super) fn start_scripted_client(&mut self, index: usize) {
        self.report_demand(index);
        let number = self.clients[index].poll;
        self.poll(index, number);
    }

    pub(super) fn inject_scripted_fault(&mut self, index: usize) {
        let fault = self.script.as_ref().and_then(|it| it.faults.get(index));
        let Some(fault) = fault.copied() else { return };
        let server = fault.server.or_else(|| self.master());
        let clients = self.choose_clients(fault.clients.unwrap_or(self.clients.len()));
        self.execute_fault(fault.kind, fault.seconds, server, &clients);
    }

    fn expect_random_fault(&mut self) {
        let Some(script) = &mut self.script else {
            return;
        };
        if let Some(random) = &script.random_faults {
            let delay = exponential(random.every, &mut script.rng);
            self.after(delay, Event::RandomFault);
        }
    }

    pub(super) fn inject_random_fault(&mut self) {
        let servers = self.servers.len();
        let Some(script) = &mut self.script else {
            return;
        };
        let rng = &mut script.rng;
        let random = script.random_faults.as_ref();
        if let Some(RandomFaults { kinds, longest, .. }) = random
            && let Some(kind) = rng.choice(kinds).copied()
        {
            let (seconds, server) = (*longest * rng.f64(), rng.usize(..servers));
            let clients = self.choose_clients(1);
            self.execute_fault(kind, seconds, Some(server), &clients);
        }
        self.expect_random_fault();
    }

    fn choose_clients(&mut self, count: usize) -> Vec<usize> {
        let all = 0..self.clients.len();
        match &mut self.script {
            Some(script) if count < all.len() => script.rng.choose_multiple(all, count),
            _ => all.collect(),
        }
    }

    /// The running server with a reign of the highest epoch.
    pub(in crate::simulation) fn master(&self) -> Option<usize> {
        let servers = self.servers.iter().enumerate();
        let masters = servers.filter(|(_, it)| it.is_running() && it.epoch().is_some());
        masters.max_by_key(|(_, it)| it.epoch()).map(|it| it.0)
    }

    /// Executes a fault of so many seconds. `server` and `clients` count for faults of those.
    fn execute_fault(
        &mut self,
        kind: FaultKind,
        seconds: f64,
        server: Option<usize>,
        clients: &[usize],
    ) {
        let until = self.time.after_seconds(seconds);
        self.stats.faults += 1;
        self.record(|| format!("{kind:?} for {seconds} s: server {server:?}, clients {clients:?}"));
        match (kind, server) {
            (FaultKind::LoseMaster, _) => {
                if let Some(master) = self.master() {
                    self.crash_server_for(master, seconds);
                }
                for server in 0..self.servers.len() {
                    self.cut_off_from_etcd(server, until);
                }
            }
            (FaultKind::CrashServer, Some(server)) => self.crash_server_for(server, seconds),
            (FaultKind::StopServer, Some(server)) => {
                self.servers[server].restarts_after = Some(seconds);
                self.stop_server(server);
            }
            (FaultKind::PauseServer, Some(server)) => self.pause_server_for(server, seconds),
            (FaultKind::PartitionServer, Some(server)) => self.cut_off_from_etcd(server, until),
            (FaultKind::StopEtcd, _) => self.stop_etcd(0, seconds),
            (FaultKind::CrashClients, _) => {
                for client in clients {
                    self.clients[*client].crash();
                    self.after(seconds, Event::Start(Process::Client(*client)));
                }
            }
            (FaultKind::PauseClients, _) => {
                for client in clients {
                    self.pause_client_for(*client, seconds);
                }
            }
            (FaultKind::PartitionClients, _) => {
                for client in clients {
                    let client = Process::Client(*client);
                    self.network.partition(client, None, until);
                    for server in 0..self.servers.len() {
                        let server = Process::Server(server);
                        self.network.partition(server, Some(client), until);
                    }
                }
            }
            // There is no master.
            (_, None) => {}
        }
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
