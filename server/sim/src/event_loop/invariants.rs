//! Invariants, checked after every event and at the end of a run.

use doorman_openapi::{CLOCK_DRIFT, Hint, HintsResponse, Moment};

use super::Simulation;
use crate::{
    client::Client, client::LastHint, event_queue::Event, limits::Algorithm, limits::Demand,
    limits::Limit, limits::RESOURCES, limits::resource_id, network::Message, network::PollCall,
    network::Process, report::Invariant,
};

/// Relative tolerance of sums.
const TOLERANCE: f64 = 1e-9;

/// Relative tolerance of shares in a tree.
const TREE_TOLERANCE: f64 = 0.01;

/// The least time between hints of a client, in seconds: 50 ms by a fast clock, less rounding.
const SHORTEST_SPACING: f64 = 0.99 * 0.05 / CLOCK_DRIFT;

#[derive(Debug)]
pub(super) struct BrokenInvariant {
    pub(super) invariant: Invariant,
    pub(super) detail: String,
}

/// The capacity before a cut, which holders may still use for a while.
#[derive(Debug, Clone, Copy)]
struct Allowance {
    capacity: f64,
    until: Moment,
}

#[derive(Debug, Default)]
pub(super) struct CapacityCheck {
    allowances: [Vec<Allowance>; RESOURCES],
    /// Checks above the capacity, but within an allowance.
    pub(super) above_capacity: u64,
}

impl CapacityCheck {
    /// Allows an earlier capacity until the leases under it have expired.
    pub(super) fn allow(&mut self, resource: usize, capacity: f64, until: Moment) {
        self.allowances[resource].push(Allowance { capacity, until });
    }

    /// Whether any amount is allowed.
    fn is_unlimited(&self, resource: usize, time: Moment) -> bool {
        let allowances = self.allowances[resource].iter();
        let mut valid = allowances.filter(|it| time < it.until);
        valid.any(|it| it.capacity == f64::INFINITY)
    }

    /// Allows only what is booked until these leases have expired: the sum of all leases never
    /// grows above the capacity.
    pub(super) fn allow_booked(&mut self, resource: usize, booked: f64, until: Moment) {
        // Leases of an earlier algorithm, and of liars, are not all booked.
        self.allowances[resource].retain(|it| it.capacity == f64::INFINITY);
        self.allow(resource, booked, until);
    }

    fn check(
        &mut self,
        resource: usize,
        capacity: f64,
        usable: f64,
        time: Moment,
        invariant: Invariant,
    ) -> Result<(), BrokenInvariant> {
        if usable <= capacity * (1.0 + TOLERANCE) {
            return Ok(());
        }
        let allowances = &mut self.allowances[resource];
        allowances.retain(|allowance| time < allowance.until);
        let allowed = allowances
            .iter()
            .map(|allowance| allowance.capacity)
            .fold(capacity, f64::max);
        if usable <= allowed * (1.0 + TOLERANCE) {
            self.above_capacity += 1;
            return Ok(());
        }
        let resource = resource_id(resource);
        Err(BrokenInvariant {
            invariant,
            detail: format!("{resource}: holders may use {usable} of {allowed}"),
        })
    }
}

/// Whether an event may change what clients may use, or what is booked for nodes. Leases that end
/// are noticed with the next one.
pub(super) fn moves_leases(event: &Event) -> bool {
    let Event::Deliver { message, .. } = event else {
        return false;
    };
    matches!(
        message,
        Message::Response { .. } | Message::NodeRequest { .. } | Message::NodeRelease(_)
    )
}

/// Whether an event may change the ledger of a server.
pub(super) fn is_of_servers(event: &Event) -> bool {
    !matches!(
        event,
        Event::Deliver {
            to: Process::Client(_) | Process::Etcd(_),
            ..
        } | Event::Wake(Process::Client(_) | Process::Etcd(_))
            | Event::Resume(Process::Client(_) | Process::Etcd(_))
            | Event::InventHints { .. }
    )
}

impl Simulation {
    /// Checks that the clients may together use no more than the capacity, and each client by
    /// itself where it is not divided.
    pub(super) fn check_capacity(&mut self) -> Result<(), BrokenInvariant> {
        for resource in 0..self.limits.len() {
            let Limit {
                capacity,
                algorithm,
                ..
            } = self.limits[resource];
            let (usable, invariant) = if algorithm.divides() {
                (self.most_used(resource), Invariant::Capacity)
            } else if algorithm == Algorithm::Unlimited {
                continue;
            } else {
                let clients = self.clients.iter();
                let usable = clients.map(|client| client.counted(resource, self.time));
                (usable.fold(0.0, f64::max), Invariant::HolderCapacity)
            };
            self.capacity_check
                .check(resource, capacity, usable, self.time, invariant)?;
        }
        Ok(())
    }

    /// The sum that the clients may use of a resource. Where its unit changes, the larger of the
    /// sums in both units, which cannot be added.
    fn most_used(&self, resource: usize) -> f64 {
        let mut sums = [0.0; 2];
        for client in &self.clients {
            let unit = usize::from(client.units[resource].is_gauge());
            sums[unit] += client.counted(resource, self.time);
        }
        let [rate, gauge] = sums;
        f64::max(rate, gauge)
    }

    /// Checks that the clients of each node, and of the nodes below it, may use no more than the
    /// node's parent has booked for it. A parent that learns does not know all leases.
    pub(super) fn check_nodes(&mut self) -> Result<(), BrokenInvariant> {
        if self.nodes.len() == 1 || self.node_violation.is_some() || self.has_several_units() {
            return Ok(());
        }
        for resource in 0..self.limits.len() {
            // Leases of another algorithm, and those of liars, may last.
            let is_beside = self.extras.beside == Some(resource);
            if is_beside || self.capacity_check.is_unlimited(resource, self.time) {
                continue;
            }
            let mut sums = vec![0.0; self.nodes.len()];
            for client in &self.clients {
                let usable = client.counted(resource, self.time);
                let mut above = Some(self.servers[client.servers.start].membership.index);
                while let Some(node) = above.filter(|_| usable > 0.0) {
                    sums[node] += usable;
                    above = self.nodes[node].parent;
                }
            }
            let id = resource_id(resource);
            for (node, usable) in sums.into_iter().enumerate() {
                let parent = self.nodes[node].parent.filter(|_| usable > 0.0);
                let Some(master) = parent.and_then(|it| self.newest_master(it)) else {
                    continue;
                };
                let name = &self.nodes[node].name;
                let booked = self.servers[master].booked(&id, Some(name), self.time);
                self.stats.node_checks += u64::from(booked.is_some());
                if let Some(booked) = booked
                    && usable > booked * (1.0 + TOLERANCE)
                {
                    return Err(BrokenInvariant {
                        invariant: Invariant::NodeCapacity,
                        detail: format!(
                            "{id}: clients of {name} may use {usable}, server {master} has booked \
                             {booked}"
                        ),
                    });
                }
            }
        }
        Ok(())
    }

    /// The server of a node with the newest reign. It may be paused.
    pub(super) fn newest_master(&self, node: usize) -> Option<usize> {
        let servers = self.nodes[node].servers.clone();
        let masters = servers.filter(|it| self.servers[*it].epoch().is_some());
        masters.max_by_key(|it| self.servers[*it].epoch())
    }

    /// The amount that is booked at the root, if all leases are known there.
    pub(super) fn booked_at_root(&mut self, resource: usize) -> Option<f64> {
        let master = self.newest_master(0)?;
        self.servers[master].booked(&resource_id(resource), None, self.time)
    }

    /// Checks the hints that a server sends to a client.
    pub(super) fn check_hints(
        &mut self,
        server: usize,
        to: Process,
        call: PollCall,
        hints: &HintsResponse,
    ) {
        let (Process::Client(index), Some(epoch)) = (to, self.servers[server].epoch()) else {
            return;
        };
        let client = &mut self.clients[index];
        if client.incarnation != call.incarnation || hints.refresh.is_empty() {
            return;
        }
        let hint = LastHint {
            server,
            epoch,
            at: self.time,
        };
        let last = client.last_hint.replace(hint);
        let is_soon = last.is_some_and(|last| {
            let since = self.time.seconds_since(last.at);
            (last.server, last.epoch) == (server, epoch) && since < SHORTEST_SPACING
        });
        let newest = client.newest;
        let is_later = |hint: &Hint| hint.seq.is_some_and(|seq| seq > newest);
        if is_soon || hints.refresh.iter().any(is_later) {
            self.broken = Some(BrokenInvariant {
                invariant: Invariant::Hints,
                detail: format!("{to:?} has sent {newest:?}, was hinted {last:?}: {hints:?}"),
            });
        }
    }

    /// Checks that a response did not take all capacity from a client that could keep a part.
    pub(super) fn check_partial_grants(&mut self, lost: &[usize], client: usize) {
        let Client {
            states_no_units,
            is_liar,
            ..
        } = self.clients[client];
        // A client that states no unit may claim in another one; a liar claims what others have.
        if states_no_units || is_liar {
            return;
        }
        for resource in lost {
            // A scenario has no list of limits. Its gauges may be too scarce for a part each.
            let limit = self.limits.get(*resource);
            // Others may have it by an earlier algorithm, or by a lie.
            let is_excused = self.extras.beside == Some(*resource)
                || self.capacity_check.is_unlimited(*resource, self.time)
                || self.may_be_of_another_kind(*resource)
                || self.was_paused(*resource);
            let limit = limit.filter(|_| !is_excused);
            if limit.is_some_and(|it| it.capacity > 0.0) && !self.priorities.allow_nothing() {
                let resource = resource_id(*resource);
                self.broken = Some(BrokenInvariant {
                    invariant: Invariant::PartialGrant,
                    detail: format!("{resource}: client {client} lost all of its capacity"),
                });
            }
        }
    }

    /// Changes every demand for the last time.
    pub(super) fn set_final_demand(&mut self) {
        for index in 0..self.clients.len() {
            for resource in 0..self.limits.len() {
                if self.clients[index].wants[resource].is_some() {
                    self.change_client_demand(index, resource);
                }
            }
        }
        let longest = |of: fn(&Limit) -> f64| self.limits.iter().map(of).fold(0.0, f64::max);
        // A node returns capacity only after its clients have.
        let refreshes = 3.0 + 4.0 * (self.levels() - 1.0);
        let seconds = refreshes * longest(|limit| limit.refresh_interval)
            + longest(|limit| limit.minimum_refresh_interval);
        self.after(seconds + 1.0, Event::CheckShares);
    }

    /// Checks that every holder has its exact share.
    pub(super) fn check_shares(&self) -> Result<(), BrokenInvariant> {
        let limits = self.limits.iter().enumerate();
        for (resource, limit) in limits.filter(|(_, it)| it.algorithm.divides()) {
            let clients = self.clients.iter().filter_map(|client| {
                let wants = client.wants[resource]?;
                let demand = Demand {
                    weight: 1.0,
                    wants,
                    priority: client.priorities[resource],
                };
                Some((demand, client.usable[resource].at(self.time)))
            });
            let (demands, has): (Vec<_>, Vec<_>) = clients.unzip();
            let shares = limit.shares(&demands);
            // Holders that poll have more than they want while the demands fit.
            let fits = demands.iter().map(|it| it.wants).sum::<f64>() <= limit.capacity;
            let tolerance = match self.nodes.len() {
                1 => TOLERANCE.sqrt(),
                _ => TREE_TOLERANCE,
            };
            let is_close = |(has, share): (&f64, &f64)| {
                let tolerance = tolerance * (1.0 + share);
                self.polls.are_on() && fits && has >= share || (has - share).abs() <= tolerance
            };
            // Each node applies the floor, so the shares of a tree differ from those of one server.
            let is_exact = self.nodes.len() == 1 || !self.priorities.have_floor();
            if is_exact && !has.iter().zip(&shares).all(is_close) {
                let resource = resource_id(resource);
                return Err(BrokenInvariant {
                    invariant: Invariant::Shares,
                    detail: format!(
                        "{resource}, {limit:?}: holders have {has:?}; their shares are {shares:?}"
                    ),
                });
            }
        }
        Ok(())
    }
}
