//! A lower node of the server tree, as seen by the root.
//!
//! The node is a model, not the real server. Its masters change. Capacity that they granted to
//! their clients stays in use until it expires.

use doorman_openapi::{
    Band, CLOCK_DRIFT, Capacity, ClientCount, Epoch, HeldLease, Moment, NodeId, Reason,
    ResourceResponse, Seconds, Seq, ServerCapacityRequest, ServerResourceRequest,
};
use fastrand::Rng;

use super::{
    clock::{Clock, ExpiringCapacity},
    limits::{Demand, RESOURCES, resource_id, resource_index},
    network::{NodeCall, Outcome},
};

/// Request timeout in seconds.
const TIMEOUT: f64 = 2.0;

/// The node's state of one resource. Times are the node's.
#[derive(Debug, Clone, Copy, Default)]
struct NodeLease {
    /// Whether the current master knows the node's lease.
    is_known: bool,
    /// The latest grant of the parent.
    granted: ExpiringCapacity,
    /// The capacity that the node's clients hold.
    outstanding: ExpiringCapacity,
    /// Whether the current master knows `outstanding`, because all clients have refreshed.
    is_outstanding_known: bool,
    /// The outstanding capacity that the current master assumes until then.
    assumed_outstanding: ExpiringCapacity,
    /// When all clients will have adopted a smaller grant.
    shrinks_at: Option<Moment>,
}

#[derive(Debug, Clone, Copy)]
struct PendingCall {
    seq: u64,
    sent: Moment,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) clock: Clock,
    /// Counts the masters.
    pub(super) epoch: u64,
    pub(super) demands: [Option<Demand>; RESOURCES],
    /// The simulated time of the next timer.
    pub(super) wake: Moment,
    /// The server to which the node sends requests.
    pub(super) endpoint: usize,
    seq: u64,
    pending: Option<PendingCall>,
    next_refresh: Moment,
    leases: [NodeLease; RESOURCES],
    parent_epoch: Epoch,
    /// The highest epoch in which the parent has answered the current master.
    heard_epoch: Option<Epoch>,
    /// The node rejects responses of lower epochs until then.
    parent_epoch_until: Moment,
}

impl Node {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            epoch: 1,
            demands: [None; RESOURCES],
            wake: Moment::NEVER,
            endpoint: 0,
            seq: 0,
            pending: None,
            next_refresh: Moment::ORIGIN,
            leases: Default::default(),
            parent_epoch: Epoch::ZERO,
            heard_epoch: None,
            parent_epoch_until: Moment::ORIGIN,
        }
    }

    /// The largest amount of a resource that the node and its clients may use.
    pub(super) fn usable(&self, resource: usize, time: Moment) -> f64 {
        let now = self.clock.local(time);
        let lease = &self.leases[resource];
        lease.granted.at(now).max(lease.outstanding.at(now))
    }

    /// Replaces the master by one that knows nothing.
    pub(super) fn fail_over(&mut self, time: Moment) {
        self.epoch += 1;
        self.seq = 0;
        self.pending = None;
        self.next_refresh = self.clock.local(time).after_seconds(0.5);
        for lease in &mut self.leases {
            *lease = NodeLease {
                outstanding: lease.outstanding,
                ..NodeLease::default()
            };
        }
        self.parent_epoch_until = Moment::ORIGIN;
        self.heard_epoch = None;
    }

    /// The simulated time at which the node needs a tick.
    pub(super) fn wake_at(&self) -> Moment {
        let next = self
            .pending
            .map_or(self.next_refresh, |it| it.sent.after_seconds(TIMEOUT));
        self.clock.time(next)
    }

    /// Runs due timers. Returns a request if one is due.
    pub(super) fn tick(
        &mut self,
        endpoints: usize,
        time: Moment,
    ) -> Option<(NodeCall, ServerCapacityRequest)> {
        let now = self.clock.local(time);
        for lease in &mut self.leases {
            if lease.shrinks_at.is_some_and(|at| at <= now) {
                lease.shrinks_at = None;
                lease.is_outstanding_known = true;
                lease.outstanding = ExpiringCapacity {
                    amount: lease.outstanding.at(now).min(lease.granted.at(now)),
                    expires: lease.granted.expires,
                };
            }
        }
        match self.pending {
            Some(PendingCall { sent, .. }) if now < sent.after_seconds(TIMEOUT) => return None,
            Some(_) => self.endpoint = (self.endpoint + 1) % endpoints,
            None if now < self.next_refresh => return None,
            None => {}
        }
        self.seq += 1;
        self.pending = Some(PendingCall {
            seq: self.seq,
            sent: now,
        });
        let call = NodeCall {
            epoch: self.epoch,
            seq: self.seq,
        };
        Some((call, self.request(now)))
    }

    fn request(&self, now: Moment) -> ServerCapacityRequest {
        let demanded = self.demands.iter().zip(&self.leases).enumerate();
        let resources = demanded.filter_map(|(resource, (demand, lease))| {
            let demand = (*demand)?;
            Some(ServerResourceRequest {
                resource_id: resource_id(resource),
                wants: vec![Band {
                    priority: demand.priority,
                    num_clients: ClientCount::new(demand.weight as u64)
                        .expect("the count is valid"),
                    wants: Capacity::saturating(demand.wants),
                }],
                has: lease.is_known.then(|| HeldLease {
                    capacity: Capacity::saturating(lease.granted.at(now)),
                }),
                outstanding: lease.reported_outstanding(now),
                used: None,
            })
        });
        ServerCapacityRequest {
            node_id: NodeId::new("region").expect("the id is valid"),
            epoch: Some(Epoch::new(self.epoch).expect("the epoch is small")),
            seq: Some(Seq::new(self.seq).expect("the seq is small")),
            heard_epoch: self.heard_epoch,
            resources: resources.collect(),
        }
    }

    /// Handles a response. Returns the resources for which it took all capacity although the node
    /// wants some.
    pub(super) fn on_response(
        &mut self,
        call: NodeCall,
        outcome: Outcome,
        endpoints: usize,
        rng: &mut Rng,
        time: Moment,
    ) -> Vec<usize> {
        let now = self.clock.local(time);
        let pending = self
            .pending
            .filter(|it| call.epoch == self.epoch && it.seq == call.seq);
        let Some(PendingCall { sent, .. }) = pending else {
            return Vec::new();
        };
        self.pending = None;
        let response = match outcome {
            Ok(response)
                if response.epoch >= self.parent_epoch || now >= self.parent_epoch_until =>
            {
                response
            }
            Ok(_) | Err(_) => {
                self.endpoint = (self.endpoint + 1) % endpoints;
                self.next_refresh = now.after_seconds(0.1 + 0.9 * rng.f64());
                return Vec::new();
            }
        };
        let mut lost = Vec::new();
        let mut refresh_in = f64::INFINITY;
        for granted in &response.resources {
            let resource = resource_index(&granted.resource_id);
            let wants = self.demands[resource].map_or(0.0, |demand| demand.wants);
            let lease = &mut self.leases[resource];
            let had = lease.granted.at(now) > 0.0;
            let pause = lease.update(granted, wants, sent, rng, now);
            let gets_nothing =
                granted.gets.capacity == Capacity::ZERO && granted.reason != Reason::Blocked;
            if had && wants > 0.0 && gets_nothing {
                lost.push(resource);
            }
            let half_left = lease.granted.expires.seconds_since(now) / 2.0;
            refresh_in = refresh_in
                .min(pause)
                .min(if half_left > 0.0 { half_left } else { 1.0 });
            let until = sent.after_seconds(granted.gets.lease_length.get());
            self.parent_epoch_until = if response.epoch == self.parent_epoch {
                self.parent_epoch_until.max(until)
            } else {
                until
            };
        }
        self.parent_epoch = response.epoch;
        self.heard_epoch = self.heard_epoch.max(Some(response.epoch));
        self.next_refresh = now.after_seconds(refresh_in.max(0.1));
        lost
    }
}

impl NodeLease {
    fn reported_outstanding(&self, now: Moment) -> Capacity {
        if !self.is_known {
            return Capacity::ZERO;
        }
        let outstanding = if self.is_outstanding_known {
            self.outstanding
        } else {
            self.assumed_outstanding
        };
        Capacity::saturating(outstanding.at(now))
    }

    /// Adopts a grant. Returns the seconds until the next refresh.
    fn update(
        &mut self,
        granted: &ResourceResponse,
        wants: f64,
        sent: Moment,
        rng: &mut Rng,
        now: Moment,
    ) -> f64 {
        let lease = granted.gets;
        if !self.is_known && lease.lease_length == Seconds::ZERO {
            // The parent does not know the lease either.
            return 1.0;
        }
        let is_pending = granted.reason == Reason::Pending && lease.capacity == Capacity::ZERO;
        self.granted = if is_pending || lease.lease_length == Seconds::ZERO {
            ExpiringCapacity::default()
        } else {
            ExpiringCapacity {
                amount: lease.capacity.get(),
                expires: sent.after_seconds(lease.lease_length.get()),
            }
        };
        if !std::mem::replace(&mut self.is_known, true) {
            // The clients may hold their capacity for as long as the parent books it, which is
            // longer than the lease by the clock drift.
            let booked = lease.lease_length.get() * CLOCK_DRIFT * CLOCK_DRIFT;
            self.assumed_outstanding = ExpiringCapacity {
                amount: self.granted.amount,
                expires: now.after_seconds(booked),
            };
        }
        let has = self.granted.at(now);
        let outstanding = self.outstanding.at(now);
        let refresh = lease.refresh_interval.get() * (1.0 - 0.05 * rng.f64());
        if has < outstanding {
            // The clients adopt the smaller grant one by one.
            let seconds = refresh * rng.f64();
            let at = now.after_seconds(seconds);
            self.shrinks_at = Some(self.shrinks_at.map_or(at, |earlier| earlier.min(at)));
            seconds + 0.001
        } else {
            self.outstanding = ExpiringCapacity {
                amount: has.min(wants).max(outstanding),
                expires: self.granted.expires,
            };
            self.is_outstanding_known = true;
            self.shrinks_at = None;
            (refresh - now.seconds_since(sent)).max(0.0)
        }
    }
}
