//! Actions of the processes: start, timers, campaigns, demand, new documents.

use std::sync::Arc;

use doorman_openapi::Moment;

use super::Simulation;
use crate::{event_queue::Event, limits, limits::Limit, network::Process};

impl Simulation {
    /// Schedules the next timer of a process.
    pub(super) fn schedule_wake(&mut self, process: Process) {
        let (wake, scheduled) = match process {
            Process::Client(index) => {
                let client = &mut self.clients[index];
                (client.wake_at(), &mut client.wake)
            }
            Process::Server(index) => {
                let server = &mut self.servers[index];
                (server.wake_at(self.time), &mut server.wake)
            }
            Process::Etcd(_) => return,
        };
        let wake = wake.max(self.time);
        if *scheduled != wake {
            *scheduled = wake;
            if wake < Moment::NEVER {
                self.events.push(wake, Event::Wake(process));
            }
        }
    }

    pub(super) fn wake(&mut self, process: Process) {
        match process {
            Process::Client(index) => {
                let client = &mut self.clients[index];
                if client.wake == self.time && client.is_running() {
                    client.wake = Moment::NEVER;
                    self.tick_client(index);
                }
            }
            Process::Server(index) => {
                let server = &mut self.servers[index];
                if server.wake == self.time && server.is_running() {
                    server.wake = Moment::NEVER;
                    self.drive(index);
                }
            }
            Process::Etcd(_) => {}
        }
    }

    pub(super) fn tick_client(&mut self, index: usize) {
        let effects = self.clients[index].tick(self.time);
        self.apply(index, effects);
    }

    pub(crate) fn start(&mut self, process: Process) {
        match process {
            Process::Client(index) => {
                let client = &mut self.clients[index];
                if client.has_left || std::mem::replace(&mut client.is_up, true) {
                    return;
                }
                self.stats.clones += u64::from(client.shares_id());
                self.record(|| format!("client {index} starts"));
                if self.demands.is_some() {
                    return self.start_scripted_client(index);
                }
                for resource in 0..self.limits.len() {
                    // Some clients use only the first resource.
                    let uses = self.clients[index].wants[resource].is_some();
                    if resource == 0 || uses || index % 2 == 0 {
                        self.change_client_demand(index, resource);
                    }
                }
            }
            Process::Server(index) => {
                let server = &mut self.servers[index];
                if server.is_up {
                    return;
                }
                let node = &self.nodes[server.membership.index];
                let Some(participation) = node.participation_of(index) else {
                    return;
                };
                let random = self.rng.u64(..);
                let document = Arc::clone(&self.document);
                if server.start(participation, random, document, self.time) {
                    self.record(|| format!("server {index} starts"));
                    self.drive(index);
                } else {
                    self.after(1.0, Event::Start(process));
                }
            }
            Process::Etcd(_) => {}
        }
    }

    /// Changes the demand of a client at random.
    pub(super) fn change_client_demand(&mut self, index: usize, resource: usize) {
        let wants = limits::random_demand(&mut self.rng);
        let priority = self.priorities.random(&mut self.rng);
        self.set_client_demand(index, resource, wants, priority);
    }

    pub(super) fn set_client_demand(
        &mut self,
        index: usize,
        resource: usize,
        wants: f64,
        priority: i32,
    ) {
        let client = &mut self.clients[index];
        if client.is_running() {
            client.priorities[resource] = priority;
            let effects = client.set_demand(resource, wants, self.time);
            self.record(|| {
                format!("client {index} wants {wants} of resource {resource} at {priority}")
            });
            self.apply(index, effects);
        }
    }

    /// Changes the document that servers read when they start.
    pub(crate) fn change_limits(&mut self, limits: Vec<Limit>) {
        self.document = limits::document(&limits);
        let until = self.leases_end();
        for (resource, new) in limits.iter().enumerate() {
            let old = self.limits[resource];
            if new.unit.is_gauge() != old.unit.is_gauge() {
                self.extras.kind_changed[resource] = Some(self.time);
            }
            let both_divide = old.algorithm.divides() && new.algorithm.divides();
            if new.algorithm != old.algorithm && !both_divide {
                // Leases of the algorithm before may last.
                self.capacity_check.allow(resource, f64::INFINITY, until);
            }
            if new.capacity < old.capacity {
                self.stats.capacity_cuts += 1;
                // A server counts in the unit of its document.
                let booked = self.booked_at_root(resource);
                match booked.filter(|_| !self.has_several_units()) {
                    Some(booked) => self.capacity_check.allow_booked(resource, booked, until),
                    None => self.capacity_check.allow(resource, old.capacity, until),
                }
            }
        }
        self.remember_capacities();
        self.limits = limits;
        self.record(|| "the document has changed".to_owned());
    }

    /// Activates the newest document on one server.
    pub(super) fn deploy(&mut self, index: usize) {
        if self.servers[index].is_up {
            self.servers[index].reconfigure(&self.document);
            self.answer_polls(index);
            self.record(|| format!("server {index} has the newest document"));
        }
    }

    /// Activates the newest document on every server.
    pub(crate) fn activate_document(&mut self) {
        for server in &mut self.servers {
            server.reconfigure(&self.document);
        }
        for index in 0..self.servers.len() {
            self.answer_polls(index);
        }
        self.record(|| "a new document is active".to_owned());
    }
}
