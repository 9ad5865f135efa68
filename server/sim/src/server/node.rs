//! A server of a node below the root: its messages to the parent, and what a node does without a
//! safety rule.

use std::collections::HashMap;

use doorman_core::{
    ledger::{HolderId, Ledger},
    master::{Granted, NotGranted, Progress},
    reign::Reign,
    upstream::{Effect, Event, Upstream},
};
use doorman_openapi::{
    CLOCK_DRIFT, Capacity, Epoch, HeldLease, HintsResponse, Moment, Reason, ResourceId, Seconds,
    Seq, ServerCapacityRequest, ServerCapacityResponse,
};

use super::{LeaseRequest, SWEEP, Server, driver::Action};
use crate::{
    ablation::Rule,
    network::{Message, NodeCall, NodeOutcome, PollCall, Process},
};

/// The shortest time between two sweeps, in seconds.
const SWEEP_PAUSE: f64 = 0.001;

/// State of a node without a safety rule, by resource.
#[derive(Debug, Default)]
pub(super) struct Ablated {
    /// The capacity in the parent's last response.
    told: HashMap<ResourceId, Capacity>,
    /// The last request to the parent.
    asked: HashMap<ResourceId, Seq>,
    /// The claim of each holder before the parent had answered.
    claims: HashMap<ResourceId, HashMap<String, Capacity>>,
    /// The newest lease from the parent, and the older one that the node without the rule keeps.
    leases: HashMap<ResourceId, [ToldLease; 2]>,
}

/// A lease from the parent.
#[derive(Debug, Clone, Copy)]
struct ToldLease {
    amount: f64,
    end: Moment,
}

impl ToldLease {
    const NONE: Self = Self {
        amount: 0.0,
        end: Moment::ORIGIN,
    };
}

impl Ablated {
    /// Remembers what the holder of a request claims.
    fn note_claims(&mut self, request: &LeaseRequest) {
        let mut note = |id: &ResourceId, holder: &str, has: Option<HeldLease>| {
            let claim = has.map_or(Capacity::ZERO, |it| it.capacity);
            let claims = self.claims.entry(id.clone()).or_default();
            // Also after the holder has said that it has nothing.
            let largest = claims.entry(holder.to_owned()).or_default();
            *largest = claim.max(*largest);
        };
        match request {
            LeaseRequest::Client(request) => {
                for it in &request.resources {
                    note(&it.resource_id, request.client_id.as_str(), it.has);
                }
            }
            LeaseRequest::Node(request) => {
                for it in &request.resources {
                    note(&it.resource_id, request.node_id.as_str(), it.has);
                }
            }
        }
    }

    /// Claims for the holders what they claim.
    fn claim_for_holders(&self, request: &mut ServerCapacityRequest) {
        for resource in &mut request.resources {
            let claims = self.claims.get(&resource.resource_id);
            let claims = claims.into_iter().flat_map(HashMap::values);
            let claim: f64 = claims.map(|it| it.get()).sum();
            if resource.has.is_none() && claim > 0.0 {
                let capacity = Capacity::saturating(claim);
                resource.has = Some(HeldLease { capacity });
                resource.outstanding = capacity;
            }
        }
    }

    /// Records the answers that come too late, which the node ignores.
    fn take_late_answers(
        &self,
        call: &NodeCall,
        response: &ServerCapacityResponse,
        ledger: &mut Ledger,
        now: Moment,
    ) {
        for resource in &response.resources {
            let id = &resource.answer.resource_id;
            if self.asked.get(id) == Some(&call.seq) && ledger.is_parent_answer_late(id, now) {
                ledger.record_parent_response(resource, call.sent, now);
            }
        }
    }

    /// Keeps the older leases from the parent that cover what is booked, without the holders that
    /// are not heard yet.
    fn keep_booked_leases(
        &mut self,
        response: &ServerCapacityResponse,
        sent: Moment,
        ledger: &mut Ledger,
        now: Moment,
    ) {
        for resource in &response.resources {
            let id = &resource.answer.resource_id;
            let Some((_, booked)) = ledger.demand_of(id) else {
                continue;
            };
            let lease = resource.answer.gets;
            let newest = ToldLease {
                amount: lease.capacity.get(),
                end: sent.after_seconds(lease.lease_length.get()),
            };
            let before = self.leases.get(id).copied();
            let before = before.unwrap_or([ToldLease::NONE; 2]).into_iter();
            let older = before
                .filter(|it| now < it.end && (newest.amount < it.amount || newest.end < it.end))
                .filter(|it| newest.amount < booked || newest.end < it.end)
                .max_by_key(|it| (booked <= it.amount, it.end));
            let older = older.unwrap_or(ToldLease::NONE);
            ledger.set_older_parent_lease(id, older.amount, older.end);
            self.leases.insert(id.clone(), [newest, older]);
        }
    }
}

impl Ablated {
    /// Changes a request to that of a node without the rule.
    fn ablate_request(&self, without: Rule, request: &mut ServerCapacityRequest, ledger: &Ledger) {
        match without {
            Rule::AskParentFirst => {
                for resource in &mut request.resources {
                    resource.has.get_or_insert(HeldLease {
                        capacity: Capacity::ZERO,
                    });
                }
            }
            Rule::OwnLeasesOnly => self.claim_for_holders(request),
            Rule::StatedOutstanding => {
                for resource in &mut request.resources {
                    let booked = ledger.demand_of(&resource.resource_id);
                    resource.outstanding = Capacity::saturating(booked.map_or(0.0, |it| it.1));
                }
            }
            _ => {}
        }
    }

    /// Changes a response so that the node behaves as if the rule were missing.
    fn ablate_response(
        &mut self,
        without: Rule,
        response: &mut ServerCapacityResponse,
        sent: Moment,
        ledger: &mut Ledger,
        now: Moment,
    ) {
        for resource in &mut response.resources {
            let id = resource.answer.resource_id.clone();
            let capacity = resource.answer.gets.capacity;
            let told = self.told.insert(id, capacity);
            let length = resource.answer.gets.lease_length.get();
            if length == 0.0 {
                continue;
            }
            let mut set_length = |length| {
                resource.answer.gets.lease_length = Seconds::saturating(length);
            };
            match without {
                Rule::ParentLeaseFromSendTime => {
                    set_length(length + now.seconds_since(sent));
                }
                Rule::ParentLeaseEnd => set_length(4.0 * length),
                Rule::StatedDuration
                    if told.is_none() && resource.answer.reason == Reason::Pending =>
                {
                    set_length(length / (CLOCK_DRIFT * CLOCK_DRIFT));
                }
                // Records the earlier capacity first, with the end of the new lease.
                Rule::OlderParentLease => {
                    if let Some(told) = told.filter(|told| *told > capacity) {
                        let mut earlier = resource.clone();
                        earlier.answer.gets.capacity = told;
                        ledger.record_parent_response(&earlier, sent, now);
                    }
                }
                _ => {}
            }
        }
    }
}

impl Server {
    /// Decides a request of a node that begins with nothing, without asking its parent.
    pub(super) fn decide_unasked(&mut self, request: &LeaseRequest, now: Moment) -> Progress {
        let Some(reign) = self.master.current(now) else {
            return Progress::Done(Err(NotGranted::NotMaster));
        };
        let (epoch, call) = (reign.epoch(), request.call());
        let Some(ledger) = reign.ledger(now) else {
            return Progress::Done(Err(NotGranted::NotMaster));
        };
        ledger.register_part(&call, 0, now);
        let grants = ledger.refresh(&call, now);
        reign.bound_mut().require(&grants);
        Progress::Done(Ok(Granted { epoch, grants }))
    }

    /// Remembers what the holder of a request claims, for a node without the rule.
    pub(super) fn note_claims(&mut self, request: &LeaseRequest) {
        if self.without == Some(Rule::OwnLeasesOnly) {
            self.ablated.note_claims(request);
        }
    }

    /// Sweeps the ledger of a node, and sends the parent the requests that are due.
    pub(super) fn drive_upstream(&mut self, now: Moment) {
        let Some(wake) = self.master.upstream().map(Upstream::wake_at) else {
            return;
        };
        let Some(ledger) = self.master.ledger(now) else {
            return;
        };
        let next = ledger.sweep(now, SWEEP).unwrap_or(Moment::NEVER);
        let is_due = wake <= now || ledger.has_parent_updates();
        self.sweeps_at = next.max(now.after_seconds(SWEEP_PAUSE));
        if is_due {
            self.tell_upstream(Event::Wake, now);
        }
    }

    /// When [`drive_upstream`](Self::drive_upstream) is due next.
    pub(super) fn upstream_wakes_at(&self, now: Moment) -> Moment {
        let is_over = |it: &Reign| it.deadline() <= now;
        match self.master.upstream() {
            Some(upstream) if !self.master.reign().is_none_or(is_over) => {
                upstream.wake_at().min(self.sweeps_at)
            }
            _ => Moment::NEVER,
        }
    }

    /// Handles a response of the parent.
    pub(crate) fn on_parent_answer(&mut self, call: NodeCall, outcome: NodeOutcome, time: Moment) {
        let now = self.clock.local(time);
        let without = self.without;
        let epoch = self.reign_epoch();
        let Some(ledger) = self.master.ledger(now) else {
            return;
        };
        if (call.incarnation, Some(call.epoch)) != (self.incarnation, epoch) {
            return;
        }
        let seq = call.seq;
        let mut response = match outcome {
            Ok(response) => response,
            Err(failure) => return self.tell_upstream(Event::Failed { seq, failure }, now),
        };
        if let Some(rule) = without {
            self.ablated
                .ablate_response(rule, &mut response, call.sent, ledger, now);
        }
        if without == Some(Rule::LateClaim) {
            self.ablated
                .take_late_answers(&call, &response, ledger, now);
        }
        let keeps_booked = without == Some(Rule::UnheardCover);
        let answered = keeps_booked.then(|| {
            let mut taken = response.clone();
            let is_late = |id: &ResourceId| ledger.is_parent_answer_late(id, now);
            taken
                .resources
                .retain(|it| !is_late(&it.answer.resource_id));
            taken
        });
        self.tell_upstream(Event::Answered { seq, response }, now);
        if let (Some(response), Some(ledger)) = (answered, self.master.ledger(now)) {
            self.ablated
                .keep_booked_leases(&response, call.sent, ledger, now);
        }
    }

    /// The next poll of the parent and the server to poll, if this server is master.
    pub(crate) fn poll_parent(&mut self) -> Option<(Process, Message)> {
        let source = self.master.upstream()?.holder().hint_source(None)?;
        let message = Message::Poll {
            call: PollCall {
                incarnation: self.incarnation,
                number: self.poll,
            },
            poller: HolderId::Node(self.membership.name.clone()),
            after: self.heard_batch,
        };
        Some((self.parent_server(source), message))
    }

    /// Handles hints of a server of the parent.
    pub(crate) fn on_parent_hints(&mut self, from: usize, hints: HintsResponse, time: Moment) {
        self.heard_batch = hints.after;
        let first = self.membership.parent.as_ref().map_or(0, |it| it.start);
        let endpoint = from - first;
        self.tell_upstream(Event::Hinted { endpoint, hints }, self.clock.local(time));
    }

    fn parent_server(&self, endpoint: usize) -> Process {
        let servers = self.membership.parent.as_ref();
        Process::Server(servers.map_or(0, |it| it.start) + endpoint)
    }

    /// The epoch of the reign, as the machine has it.
    fn reign_epoch(&self) -> Option<Epoch> {
        self.master.reign().map(Reign::epoch)
    }

    fn tell_upstream(&mut self, event: Event, now: Moment) {
        let Some(epoch) = self.reign_epoch() else {
            return;
        };
        let Some(mut effects) = self.master.tell_upstream(epoch, event, now) else {
            return;
        };
        while let Some(upstream) = self.master.upstream()
            && upstream.wake_at() <= now
            && let Some(mut more) = self.master.tell_upstream(epoch, Event::Wake, now)
        {
            effects.append(&mut more);
        }
        for effect in effects {
            match effect {
                Effect::Send {
                    seq,
                    endpoint,
                    mut request,
                    timeout: _,
                } => {
                    if let (Some(rule), Some(ledger)) = (self.without, self.master.ledger(now)) {
                        self.ablated.ablate_request(rule, &mut request, ledger);
                        let ids = request.resources.iter().map(|it| it.resource_id.clone());
                        self.ablated.asked.extend(ids.map(|id| (id, seq)));
                    }
                    let call = NodeCall {
                        incarnation: self.incarnation,
                        epoch,
                        seq,
                        sent: now,
                    };
                    let message = Message::NodeRequest { call, request };
                    let action = Action::Ask(self.parent_server(endpoint), message);
                    self.actions.push(action);
                }
                Effect::Release { endpoint, request } => {
                    let message = Message::NodeRelease(request);
                    let action = Action::Ask(self.parent_server(endpoint), message);
                    self.actions.push(action);
                }
                Effect::Warn(_) => {}
            }
        }
    }
}
