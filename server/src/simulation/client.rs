//! A client process: the real client state machine, with crashes, pauses and restarts.

use std::{collections::VecDeque, ops::Range, sync::Arc};

use doorman_openapi::{Capacity, ClientId, Epoch, Moment, Reason, ResourceId, Seconds, Seq};
use tower_doorman::lease::{Demand, Effect, Event, Holder, HolderSettings};

use super::{
    ablation::Rule,
    clock::{Clock, ExpiringCapacity},
    network::{ClientCall, Outcome},
};

/// A response that arrived.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) call: ClientCall,
    pub(super) outcome: Outcome,
}

/// When which master hinted a client.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LastHint {
    pub(super) server: usize,
    pub(super) epoch: Epoch,
    pub(super) at: Moment,
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) clock: Clock,
    /// Counts restarts. Each incarnation has its own client id.
    pub(super) incarnation: u32,
    pub(super) is_up: bool,
    pub(super) paused_until: Option<Moment>,
    /// Replies that arrived during a pause.
    pub(super) inbox: VecDeque<Reply>,
    /// The capacity that the client may use, expiring in simulated time.
    pub(super) usable: Vec<ExpiringCapacity>,
    /// `None` for resources that the client does not lease.
    pub(super) wants: Vec<Option<f64>>,
    pub(super) priorities: Vec<i32>,
    /// The simulated time of the next timer.
    pub(super) wake: Moment,
    /// Counts polls, and names the open one.
    pub(super) poll: u64,
    /// The last batch of hints.
    pub(super) heard_batch: u64,
    /// The server of the last request, among those of its node.
    pub(super) endpoint: usize,
    /// The newest transmission of this incarnation.
    pub(super) newest: Seq,
    /// Lease requests sent, of all incarnations.
    pub(super) requests: u64,
    /// When a server last hinted this client.
    pub(super) last_hint: Option<LastHint>,
    holder: Holder,
    resources: Arc<[ResourceId]>,
    seed: u64,
    index: usize,
    /// The servers of its node.
    pub(super) servers: Range<usize>,
    /// Whether its node is below another one.
    is_lower: bool,
    without: Option<Rule>,
}

impl Client {
    pub(super) fn new(
        index: usize,
        clock: Clock,
        servers: Range<usize>,
        resources: Arc<[ResourceId]>,
        without: Option<Rule>,
    ) -> Self {
        let count = resources.len();
        Self {
            clock,
            incarnation: 0,
            is_up: false,
            paused_until: None,
            inbox: VecDeque::new(),
            usable: vec![ExpiringCapacity::default(); count],
            wants: vec![None; count],
            priorities: vec![0; count],
            wake: Moment::NEVER,
            poll: 0,
            heard_batch: 0,
            endpoint: 0,
            newest: Seq::ZERO,
            requests: 0,
            last_hint: None,
            holder: new_holder(index, 0, servers.len(), 0),
            resources,
            seed: 0,
            index,
            servers,
            is_lower: false,
            without,
        }
    }

    /// A client that has not started yet, with other random numbers.
    pub(super) fn with_seed(self, seed: u64) -> Self {
        let holder = new_holder(self.index, self.incarnation, self.servers.len(), seed);
        Self {
            seed,
            holder,
            ..self
        }
    }

    /// A client that has not started yet, of a node with these servers.
    pub(super) fn with_servers(self, servers: Range<usize>) -> Self {
        let holder = new_holder(self.index, self.incarnation, servers.len(), self.seed);
        Self {
            is_lower: servers.start > 0,
            servers,
            holder,
            ..self
        }
    }

    /// The server of the last request.
    pub(super) fn server(&self) -> usize {
        self.servers.start + self.endpoint
    }

    /// With a priority for all resources.
    pub(super) fn with_priority(mut self, priority: i32) -> Self {
        self.priorities.fill(priority);
        self
    }

    /// The index of a resource of this client.
    fn resource_index(&self, id: &ResourceId) -> Option<usize> {
        self.resources.iter().position(|it| it == id)
    }

    pub(super) fn is_running(&self) -> bool {
        self.is_up && self.paused_until.is_none()
    }

    /// Ends this incarnation without a release.
    pub(super) fn crash(&mut self) {
        self.is_up = false;
        self.incarnation += 1;
        self.paused_until = None;
        self.inbox.clear();
        self.usable.fill(ExpiringCapacity::default());
        self.wake = Moment::NEVER;
        self.newest = Seq::ZERO;
        self.last_hint = None;
        let servers = self.servers.len();
        self.holder = new_holder(self.index, self.incarnation, servers, self.seed);
    }

    /// The simulated time at which the state machine needs a tick.
    pub(super) fn wake_at(&self) -> Moment {
        self.clock.time(self.holder.wake_at())
    }

    /// With the priority that was set.
    pub(super) fn set_demand(&mut self, resource: usize, wants: f64, time: Moment) -> Vec<Effect> {
        self.wants[resource] = Some(wants);
        let demand = Demand {
            wants: Capacity::saturating(wants),
            priority: self.priorities[resource],
            ..Demand::default()
        };
        let resource = self.resources[resource].clone();
        self.handle(Event::Demand { resource, demand }, time)
    }

    /// Releases a resource.
    pub(super) fn forget(&mut self, resource: usize, time: Moment) -> Vec<Effect> {
        self.wants[resource] = None;
        self.usable[resource] = ExpiringCapacity::default();
        let resource = self.resources[resource].clone();
        self.handle(Event::Forget { resource }, time)
    }

    /// Releases all resources.
    pub(super) fn stop(&mut self, time: Moment) -> Vec<Effect> {
        self.handle(Event::Stop, time)
    }

    pub(super) fn tick(&mut self, time: Moment) -> Vec<Effect> {
        self.handle(Event::Tick, time)
    }

    /// Handles a reply. Also returns the resources for which it took all capacity although the
    /// client wants some.
    pub(super) fn on_reply(&mut self, reply: Reply, time: Moment) -> (Vec<Effect>, Vec<usize>) {
        let ClientCall { seq, sent, .. } = reply.call;
        let mut response = match reply.outcome {
            Ok(response) => response,
            Err(failure) => {
                return (
                    self.handle(Event::Failed { seq, failure }, time),
                    Vec::new(),
                );
            }
        };
        if self.without == Some(Rule::LeaseFromSendTime) {
            let latency = self.clock.local(time).seconds_since(sent);
            for granted in &mut response.resources {
                let length = &mut granted.gets.lease_length;
                if *length > Seconds::ZERO {
                    *length = Seconds::saturating(length.get() + latency);
                }
            }
        }
        let zero_grants: Vec<usize> = response
            .resources
            .iter()
            .filter(|it| it.gets.capacity == Capacity::ZERO && it.reason != Reason::Blocked)
            // A node whose own lease has ended has none to give.
            .filter(|it| !self.is_lower || it.gets.lease_length > Seconds::ZERO)
            .filter_map(|it| self.resource_index(&it.resource_id))
            .filter(|resource| self.usable[*resource].at(time) > 0.0)
            .filter(|resource| self.wants[*resource].is_some_and(|wants| wants > 0.0))
            .collect();
        let effects = self.handle(Event::Answered { seq, response }, time);
        let is_lost = |resource: &usize| self.usable[*resource].at(time) == 0.0;
        let lost = zero_grants.into_iter().filter(is_lost).collect();
        (effects, lost)
    }

    pub(super) fn client_id(&self) -> ClientId {
        client_id(self.index, self.incarnation)
    }

    pub(super) fn handle(&mut self, event: Event, time: Moment) -> Vec<Effect> {
        let effects = self.holder.handle(event, self.clock.local(time));
        for effect in &effects {
            if let Effect::Changed { resource, holding } = effect
                && let Some(index) = self.resource_index(resource)
            {
                self.usable[index] = holding
                    .lease
                    .map(|lease| ExpiringCapacity {
                        amount: lease.capacity.get(),
                        expires: self.clock.time(lease.ends),
                    })
                    .unwrap_or_default();
            }
        }
        effects
    }
}

fn new_holder(index: usize, incarnation: u32, endpoints: usize, seed: u64) -> Holder {
    Holder::new(HolderSettings {
        client_id: client_id(index, incarnation),
        endpoints,
        seed: seed.wrapping_add(u64::from(incarnation) * 100 + index as u64),
    })
}

fn client_id(index: usize, incarnation: u32) -> ClientId {
    let id = format!("client-{index}-{incarnation}");
    ClientId::new(id).expect("the id is valid")
}
