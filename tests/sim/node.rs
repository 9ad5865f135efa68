//! A node of the server tree, as its root sees it: a script, not the real one. Its masters change; what they have handed out to the
//! clients behind them stays out until its end.

use doorman_openapi::{
    Band, CLOCK_DRIFT, Capacity, ClientCount, Epoch, HeldLease, Moment, NodeId, Reason,
    ResourceResponse, Seconds, Seq, ServerCapacityRequest, ServerResourceRequest,
};
use fastrand::Rng;

use super::{
    clock::Clock,
    terms::{RESOURCES, position, resource},
    wire::Outcome,
};

/// How long a master waits for an answer, in seconds.
const PATIENCE: f64 = 2.0;

/// So much, until then by the node's clock.
#[derive(Debug, Clone, Copy, Default)]
struct Part {
    amount: f64,
    ends: Moment,
}

impl Part {
    fn at(&self, now: Moment) -> f64 {
        if now < self.ends { self.amount } else { 0.0 }
    }
}

/// What the node has of one resource.
#[derive(Debug, Clone, Copy, Default)]
struct Grant {
    /// Whether the present master knows what the node holds.
    told: bool,
    newest: Part,
    /// What the clients behind the node hold.
    outstanding: Part,
    /// Whether the present master knows that, because they have come back to it.
    heard_of: bool,
    /// What it takes for outstanding until then, because it was told that the node holds so much.
    presumed: Part,
    /// When the clients that hold more than the newest grant will have given back.
    shrinks: Option<Moment>,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) clock: Clock,
    /// Counts its masters.
    pub(super) epoch: u64,
    /// (clients, what they want) of each resource.
    pub(super) wants: [Option<(u64, f64)>; RESOURCES],
    /// The moment of the world at which it is to be woken.
    pub(super) wake: Moment,
    /// Which server it asks.
    pub(super) endpoint: usize,
    seq: u64,
    under_way: Option<UnderWay>,
    due: Moment,
    grants: [Grant; RESOURCES],
    /// The epoch of its parent, and until when a lower one is not believed.
    heard: (Epoch, Moment),
}

#[derive(Debug, Clone, Copy)]
struct UnderWay {
    seq: u64,
    sent: Moment,
}

impl Node {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            epoch: 1,
            wants: [None; RESOURCES],
            wake: Moment::NEVER,
            endpoint: 0,
            seq: 0,
            under_way: None,
            due: Moment::ORIGIN,
            grants: [Grant::default(); RESOURCES],
            heard: (Epoch::new(0).expect("it is small"), Moment::ORIGIN),
        }
    }

    /// The most that the node may be using of a resource.
    pub(super) fn believes(&self, position: usize, world: Moment) -> f64 {
        let now = self.clock.at(world);
        let grant = &self.grants[position];
        grant.newest.at(now).max(grant.outstanding.at(now))
    }

    /// Another of its servers becomes master, and knows nothing.
    pub(super) fn fail_over(&mut self, world: Moment) {
        self.epoch += 1;
        self.seq = 0;
        self.under_way = None;
        self.due = self.clock.at(world).after_seconds(0.5);
        for grant in &mut self.grants {
            grant.told = false;
            grant.heard_of = false;
            grant.newest = Part::default();
            grant.presumed = Part::default();
            grant.shrinks = None;
        }
        self.heard.1 = Moment::ORIGIN;
    }

    /// When it has something to do next, by the world's clock.
    pub(super) fn wake_at(&self) -> Moment {
        let next = self
            .under_way
            .map_or(self.due, |it| it.sent.after_seconds(PATIENCE));
        self.clock.world(next)
    }

    /// Lets what is due happen; a request to send, and its number.
    pub(super) fn tick(
        &mut self,
        endpoints: usize,
        world: Moment,
    ) -> Option<(u64, ServerCapacityRequest)> {
        let now = self.clock.at(world);
        for grant in &mut self.grants {
            if grant.shrinks.is_some_and(|at| at <= now) {
                grant.shrinks = None;
                grant.heard_of = true;
                grant.outstanding = Part {
                    amount: grant.outstanding.at(now).min(grant.newest.at(now)),
                    ends: grant.newest.ends,
                };
            }
        }
        match self.under_way {
            Some(UnderWay { sent, .. }) if now < sent.after_seconds(PATIENCE) => return None,
            Some(_) => self.endpoint = (self.endpoint + 1) % endpoints,
            None if now < self.due => return None,
            None => {}
        }
        self.seq += 1;
        self.under_way = Some(UnderWay {
            seq: self.seq,
            sent: now,
        });
        Some((self.seq, self.request(now)))
    }

    fn request(&self, now: Moment) -> ServerCapacityRequest {
        let demanded = self
            .wants
            .iter()
            .enumerate()
            .filter_map(|(at, wants)| Some((at, (*wants)?)));
        let resources = demanded.map(|(position, (clients, wants))| {
            let grant = &self.grants[position];
            let outstanding = if grant.heard_of {
                grant.outstanding
            } else {
                grant.presumed
            }
            .at(now);
            let known = |amount: f64| {
                if grant.told {
                    Capacity::saturating(amount)
                } else {
                    Capacity::ZERO
                }
            };
            ServerResourceRequest {
                resource_id: resource(position),
                wants: vec![Band {
                    priority: 0,
                    num_clients: ClientCount::new(clients).expect("it is small"),
                    wants: Capacity::saturating(wants),
                }],
                has: grant.told.then(|| HeldLease {
                    capacity: known(grant.newest.at(now)),
                }),
                outstanding: known(outstanding),
                used: None,
            }
        });
        ServerCapacityRequest {
            node_id: NodeId::new("region").expect("the name is good"),
            epoch: Some(Epoch::new(self.epoch).expect("it is small")),
            seq: Some(Seq::new(self.seq).expect("it is small")),
            resources: resources.collect(),
        }
    }

    /// Takes an answer in. The resources of which it was left nothing, although it held a part and wants one.
    pub(super) fn answered(
        &mut self,
        (epoch, seq): (u64, u64),
        outcome: Outcome,
        endpoints: usize,
        chance: &mut Rng,
        world: Moment,
    ) -> Vec<usize> {
        let now = self.clock.at(world);
        let newest = self
            .under_way
            .filter(|it| epoch == self.epoch && it.seq == seq);
        let Some(UnderWay { sent, .. }) = newest else {
            return Vec::new();
        };
        self.under_way = None;
        let response = match outcome {
            Ok(response) if response.epoch >= self.heard.0 || now >= self.heard.1 => response,
            Ok(_) | Err(_) => {
                self.endpoint = (self.endpoint + 1) % endpoints;
                self.due = now.after_seconds(0.1 + 0.9 * chance.f64());
                return Vec::new();
            }
        };
        let mut starved = Vec::new();
        let mut come_back = f64::INFINITY;
        for answer in &response.resources {
            let position = position(&answer.resource_id);
            let wants = self.wants[position].map_or(0.0, |(_, wants)| wants);
            let grant = &mut self.grants[position];
            let held = grant.newest.at(now) > 0.0;
            let pause = grant.take(answer, wants, sent, chance, now);
            if held
                && wants > 0.0
                && answer.gets.capacity == Capacity::ZERO
                && answer.reason != Reason::Blocked
            {
                starved.push(position);
            }
            let end = grant.newest.ends.seconds_since(now) / 2.0;
            come_back = come_back.min(pause).min(if end > 0.0 { end } else { 1.0 });
            let until = sent.after_seconds(answer.gets.lease_length.get());
            self.heard.1 = if response.epoch == self.heard.0 {
                self.heard.1.max(until)
            } else {
                until
            };
        }
        self.heard.0 = response.epoch;
        self.due = now.after_seconds(come_back.max(0.1));
        starved
    }
}

impl Grant {
    /// Takes what it is told; when to come back, in seconds.
    fn take(
        &mut self,
        answer: &ResourceResponse,
        wants: f64,
        sent: Moment,
        chance: &mut Rng,
        now: Moment,
    ) -> f64 {
        let lease = answer.gets;
        if !self.told && lease.lease_length == Seconds::ZERO {
            // The parent does not know either.
            return 1.0;
        }
        let waiting = answer.reason == Reason::Pending && lease.capacity == Capacity::ZERO;
        let ends = sent.after_seconds(lease.lease_length.get());
        self.newest = if waiting || lease.lease_length == Seconds::ZERO {
            Part::default()
        } else {
            Part {
                amount: lease.capacity.get(),
                ends,
            }
        };
        if !std::mem::replace(&mut self.told, true) {
            // The clients behind the node may hold it for as long as the parent's books do, and those are told less a drift.
            self.presumed = Part {
                amount: self.newest.amount,
                ends: now.after_seconds(lease.lease_length.get() * CLOCK_DRIFT * CLOCK_DRIFT),
            };
        }
        let has = self.newest.at(now);
        let outstanding = self.outstanding.at(now);
        let refresh = lease.refresh_interval.get() * (1.0 - 0.05 * chance.f64());
        if has < outstanding {
            // The clients behind it come back one by one; until then they keep what they have.
            let back = refresh * chance.f64();
            let at = now.after_seconds(back);
            self.shrinks = Some(self.shrinks.map_or(at, |sooner| sooner.min(at)));
            back + 0.001
        } else {
            self.outstanding = Part {
                amount: has.min(wants).max(outstanding),
                ends: self.newest.ends,
            };
            self.heard_of = true;
            self.shrinks = None;
            (refresh - now.seconds_since(sent)).max(0.0)
        }
    }
}
