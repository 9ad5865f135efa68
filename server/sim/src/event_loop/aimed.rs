//! Faults at the ends of leases, bounds, elections, learning modes and hand-overs.
//!
//! Safety rules break where several faults lie such a time apart. Random times almost never do, so
//! a part of the faults are chains: a fault, and others when something ends that it may have kept
//! from being renewed.

use doorman_openapi::{CLOCK_DRIFT, Moment};

use super::Simulation;
use crate::{event_queue::Event, limits::resource_id};

/// The most faults of a chain after the first one.
const MAX_FOLLOWING: usize = 3;
/// The shortest time of a fault, in seconds.
const SHORTEST: f64 = 0.05;

impl Simulation {
    /// Injects the first fault of a chain, and plans the others.
    pub(super) fn begin_fault_chain(&mut self) {
        self.inject_aimed_fault();
        for _ in 0..self.rng.usize(1..=MAX_FOLLOWING) {
            let delay = self.seconds_to_end();
            self.after(delay, Event::AimedFault);
        }
    }

    /// A fault that lasts until something ends.
    pub(super) fn inject_aimed_fault(&mut self) {
        self.stats.aimed_faults += 1;
        let seconds = self.seconds_to_end().max(SHORTEST);
        let node = self.rng.usize(..self.nodes.len());
        let server = self.aimed_server(node);
        let client = self.rng.usize(..self.clients.len());
        match self.rng.u8(..13) {
            0..3 if self.nodes[node].parent.is_some() => self.cut_off_random_node(node, seconds),
            0..2 => self.crash_random_server(server, SHORTEST),
            2 | 3 => self.crash_random_server(server, seconds),
            4 => self.stop_server(server),
            5 => self.pause_server_for(server, seconds),
            6 if self.nodes[node].etcd.is_some() => self.stop_etcd(node, seconds),
            6 | 7 => self.partition_from_etcd(server, seconds),
            8 | 9 => self.partition_client(client, seconds),
            10 => self.pause_client_for(client, seconds),
            11 => self.release_and_want(client),
            _ => self.change_demand(),
        }
    }

    /// Most often the master.
    fn aimed_server(&mut self, node: usize) -> usize {
        let servers = self.nodes[node].servers.clone();
        let random = self.rng.usize(servers);
        match self.rng.u8(..4) {
            0 => random,
            _ => self.newest_master(node).unwrap_or(random),
        }
    }

    /// The time to an end, to just before it, or to just after it.
    fn seconds_to_end(&mut self) -> f64 {
        let ends = self.ends();
        let end = self.rng.choice(ends).unwrap_or(self.time);
        let offset = match self.rng.u8(..4) {
            0 => -0.1 - 1.9 * self.rng.f64(),
            1 => 0.1 * self.rng.f64() - 0.05,
            2 => 0.1 + 1.9 * self.rng.f64(),
            _ => 0.0,
        };
        (end.seconds_since(self.time) + offset).max(0.0)
    }

    /// When something ends that is valid now.
    fn ends(&mut self) -> Vec<Moment> {
        let time = self.time;
        let mut ends = Vec::new();
        for client in &self.clients {
            for usable in &client.usable {
                // A server books a lease for longer than its holder uses it.
                let booked = (CLOCK_DRIFT - 1.0) * self.longest_lease;
                ends.extend([usable.expires, usable.expires.after_seconds(booked)]);
            }
        }
        let resources: Vec<_> = (0..self.limits.len()).map(resource_id).collect();
        for server in &mut self.servers {
            ends.extend(server.ends(&resources, time));
        }
        for etcd in self.nodes.iter().filter_map(|it| it.etcd.as_ref()) {
            ends.extend(etcd.ends());
        }
        ends.retain(|end| time < *end && *end < Moment::NEVER);
        ends
    }
}
