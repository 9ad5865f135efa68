//! The side of a node that leases its capacity from a parent node.
//!
//! [`Upstream`] is a pure state machine, which the simulation runs too. A [`Holder`] decides when
//! to ask which server; the ledger says what to ask for, and takes the responses. There is one per
//! reign.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use doorman_holder::{
    self as lease, Demand, Failure, Holder, HolderSettings, LeaseStatus, Warning,
};
use doorman_openapi::{
    CapacityRequest, CapacityResponse, ClientId, Epoch, HintsResponse, Moment, NodeId, ResourceId,
    Seq, ServerCapacityRequest, ServerCapacityResponse, ServerReleaseRequest,
    ServerResourceResponse,
};

use crate::ledger::{Ledger, ParentUpdate};

/// Requests are forgotten after so long.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// The parent of a node.
#[derive(Debug, Clone)]
pub struct ParentLink {
    /// The node that leases from it.
    pub node: NodeId,
    /// The number of the parent's servers.
    pub endpoints: usize,
    /// The seed of jitter.
    pub seed: u64,
    /// Whether to poll the parent for hints.
    pub polls: bool,
}

/// Input of the state machine.
#[derive(Debug, Clone)]
pub enum Event {
    /// The ledger has updates, or time has passed. Send it again while [`Upstream::wake_at`] is not
    /// after now.
    Wake,
    /// The parent has responded.
    Answered {
        /// The request.
        seq: Seq,
        /// The response.
        response: ServerCapacityResponse,
    },
    /// A request failed.
    Failed {
        /// The request.
        seq: Seq,
        /// The failure.
        failure: Failure,
    },
    /// Another server of the parent tells of changed rules, or none. It is polled while no resource
    /// is wanted.
    RulesSource {
        /// The server.
        endpoint: Option<usize>,
    },
    /// The poll for hints failed.
    PollFailed {
        /// The server of the parent.
        endpoint: usize,
        /// The failure.
        failure: Failure,
    },
    /// The polled server does not support polls.
    PollUnsupported,
    /// The poll for hints was answered: a server of the parent named resources to ask for now.
    Hinted {
        /// The server.
        endpoint: usize,
        /// Its hints.
        hints: HintsResponse,
    },
}

/// Output of the state machine, to be carried out in order.
#[derive(Debug, Clone)]
pub enum Effect {
    /// Send this request.
    Send {
        /// Its sequence number, which names it in [`Event::Answered`] and [`Event::Failed`].
        seq: Seq,
        /// The server of the parent: a position in the list.
        endpoint: usize,
        /// The request.
        request: ServerCapacityRequest,
        /// The timeout. A later response is ignored.
        timeout: Duration,
    },
    /// Send this release, whose outcome does not matter.
    Release {
        /// The server of the parent.
        endpoint: usize,
        /// The release.
        request: ServerReleaseRequest,
    },
    /// Poll a server of the parent for hints. It ends with [`Event::Hinted`],
    /// [`Event::PollFailed`] or [`Event::PollUnsupported`].
    OpenPoll {
        /// The server.
        endpoint: usize,
        /// The `after` of the poll.
        after: u64,
    },
    /// Close the open poll, whose end is no event then.
    ClosePoll,
    /// Log this.
    Warn(Warning),
}

/// Leases the capacity of a node's resources from its parent during one reign.
#[derive(Debug, Clone)]
pub struct Upstream {
    parent: ParentLink,
    epoch: Epoch,
    holder: Holder,
    in_flight: BTreeMap<Seq, Moment>,
    /// Of the event that is handled.
    effects: Vec<Effect>,
}

impl Upstream {
    /// Begins without resources, for a reign in this epoch, which orders the requests of the node's
    /// masters. The ledger has updates for those that it has.
    #[must_use]
    pub fn new(parent: ParentLink, epoch: Epoch) -> Self {
        let holder = Holder::new(HolderSettings {
            // Requests carry the name of the node.
            client_id: ClientId::new(parent.node.as_str()).unwrap_or_else(|_| unreachable!()),
            run: None,
            replaces: Vec::new(),
            endpoints: parent.endpoints,
            seed: parent.seed,
        });
        Self {
            holder: holder.one_of_few().polling(parent.polls),
            parent,
            epoch,
            in_flight: BTreeMap::new(),
            effects: Vec::new(),
        }
    }

    /// Handles an event at `now`, which never goes back, and returns the effects.
    #[must_use = "requests must be sent"]
    pub fn handle(&mut self, event: Event, ledger: &mut Ledger, now: Moment) -> Vec<Effect> {
        self.take_updates(ledger, now);
        match event {
            Event::Wake => {
                for id in self.holder.due(now) {
                    self.set_demand(id, ledger, now);
                }
                self.run(lease::Event::Tick, ledger, now);
            }
            Event::Answered { seq, response } => self.on_answer(seq, response, ledger, now),
            Event::Failed { seq, failure } => {
                self.in_flight.remove(&seq);
                self.run(lease::Event::Failed { seq, failure }, ledger, now);
            }
            Event::RulesSource { endpoint } => self.holder.set_rules_source(endpoint),
            Event::PollFailed { endpoint, failure } => {
                self.run(lease::Event::PollFailed { endpoint, failure }, ledger, now);
            }
            Event::PollUnsupported => self.run(lease::Event::PollUnsupported, ledger, now),
            Event::Hinted { endpoint, hints } => {
                if self.holder.end_poll(&hints, now) {
                    for hint in &hints.refresh {
                        ledger.pass_hint(&hint.resource_id, now);
                    }
                }
                self.run(lease::Event::Hinted { endpoint, hints }, ledger, now);
            }
        }
        std::mem::take(&mut self.effects)
    }

    fn on_answer(
        &mut self,
        seq: Seq,
        response: ServerCapacityResponse,
        ledger: &mut Ledger,
        now: Moment,
    ) {
        let (late, resources): (Vec<_>, Vec<_>) = response
            .resources
            .into_iter()
            .partition(|it| ledger.is_parent_answer_late(&it.answer.resource_id, now));
        let response = CapacityResponse {
            warnings: Vec::new(),
            node: response.node,
            epoch: response.epoch,
            resources: resources.iter().map(|it| it.answer.clone()).collect(),
        };
        // Safety rule (`parent-lease-from-send-time`): a lease counts from when its request was
        // sent. The holder ignores a response of another node, or of an earlier master.
        let is_accepted = self
            .holder
            .is_from_master(&response.node, response.epoch, now);
        let sent = self.in_flight.remove(&seq).filter(|_| is_accepted);
        let answered = resources.iter().filter_map(|it| {
            let id = it.answer.resource_id.clone();
            Some((id, (it, sent?)))
        });
        let event = lease::Event::Answered { seq, response };
        self.run_answered(event, &answered.collect(), ledger, now);
        for late in late {
            let resource = late.answer.resource_id;
            self.run(lease::Event::Report { resource }, ledger, now);
        }
    }

    /// When to [wake](Event::Wake) it next, unless the ledger has updates before.
    #[must_use]
    pub fn wake_at(&self) -> Moment {
        self.holder.wake_at()
    }

    /// The state machine behind it.
    #[must_use]
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    fn take_updates(&mut self, ledger: &mut Ledger, now: Moment) {
        for update in ledger.take_parent_updates() {
            match update {
                ParentUpdate::Changed(resource) => {
                    self.set_demand(resource.clone(), ledger, now);
                    self.run(lease::Event::Report { resource }, ledger, now);
                }
                ParentUpdate::Gone(resource) => {
                    self.run(lease::Event::Forget { resource }, ledger, now);
                }
            }
        }
    }

    fn set_demand(&mut self, resource: ResourceId, ledger: &Ledger, now: Moment) {
        if let Some((wants, outstanding)) = ledger.demand_of(&resource) {
            let demand = Demand {
                wants: doorman_openapi::Capacity::saturating(wants),
                outstanding: doorman_openapi::Capacity::saturating(outstanding),
                ..Demand::default()
            };
            // The first demand has the effect that nothing is held yet.
            drop(
                self.holder
                    .handle(lease::Event::Demand { resource, demand }, now),
            );
        }
    }

    fn run(&mut self, event: lease::Event, ledger: &mut Ledger, now: Moment) {
        self.run_answered(event, &HashMap::new(), ledger, now);
    }

    /// `answered` has the resources of a response, and when they were asked for.
    fn run_answered(
        &mut self,
        event: lease::Event,
        answered: &HashMap<ResourceId, (&ServerResourceResponse, Moment)>,
        ledger: &mut Ledger,
        now: Moment,
    ) {
        for effect in self.holder.handle(event, now) {
            match effect {
                lease::Effect::Send {
                    seq,
                    endpoint,
                    request,
                    timeout,
                } => {
                    self.in_flight.insert(seq, now);
                    let request = self.request(seq, &request, ledger, now);
                    self.effects.push(Effect::Send {
                        seq,
                        endpoint,
                        request,
                        timeout,
                    });
                }
                lease::Effect::SendRelease {
                    seq,
                    endpoint,
                    request,
                } => self.effects.push(Effect::Release {
                    endpoint,
                    request: ServerReleaseRequest {
                        node_id: self.parent.node.clone(),
                        epoch: Some(self.epoch),
                        seq: Some(seq),
                        heard_epoch: request.heard_epoch,
                        resource_ids: request.resource_ids,
                    },
                }),
                lease::Effect::OpenPoll { endpoint, after } => {
                    self.effects.push(Effect::OpenPoll { endpoint, after });
                }
                lease::Effect::ClosePoll => self.effects.push(Effect::ClosePoll),
                lease::Effect::Changed { resource, status } => {
                    let answer = answered.get(&resource);
                    record(&resource, &status, answer, ledger, now);
                }
                lease::Effect::Warn(warning) => {
                    if let Warning::Rejected { resource } = &warning {
                        ledger.record_parent_rejection(resource);
                    }
                    self.effects.push(Effect::Warn(warning));
                }
            }
        }
        // The holder drops requests that time out without an event.
        self.in_flight.retain(|_, sent| now < sent.after(FORGOTTEN));
    }

    /// The request of the node for the resources of a request of its holder.
    fn request(
        &self,
        seq: Seq,
        of_holder: &CapacityRequest,
        ledger: &mut Ledger,
        now: Moment,
    ) -> ServerCapacityRequest {
        let ids = of_holder.resources.iter().map(|it| &it.resource_id);
        ServerCapacityRequest {
            node_id: self.parent.node.clone(),
            epoch: Some(self.epoch),
            seq: Some(seq),
            heard_epoch: of_holder.heard_epoch,
            // The task adds it.
            address: None,
            resources: ledger.parent_requests(ids, now),
        }
    }
}

/// Records the lease of a resource after a response, or its end.
fn record(
    resource: &ResourceId,
    status: &LeaseStatus,
    answer: Option<&(&ServerResourceResponse, Moment)>,
    ledger: &mut Ledger,
    now: Moment,
) {
    // A lease that has ended meanwhile is none.
    let is_current = |response: &ServerResourceResponse| {
        let has_lease = response.answer.gets.lease_length.get() > 0.0;
        has_lease == status.lease.is_some()
    };
    match answer.filter(|(response, _)| is_current(response)) {
        Some((response, sent)) => ledger.record_parent_response(response, *sent, now),
        None if status.lease.is_none() => ledger.record_parent_end(resource, now),
        None => {}
    }
}
