//! Server of a node below the root. Requests wait until the parent has answered, as in
//! [`SharedLedger::ask_parent`](crate::leasing), and the real [`Upstream`] asks it.

use std::{collections::HashMap, ops::Range};

use doorman_openapi::{
    CLOCK_DRIFT, Capacity, Epoch, HeldLease, HintsResponse, Moment, NodeId, Reason, ResourceId,
    Seconds, Seq, ServerCapacityRequest, ServerCapacityResponse,
};
use tower_doorman::lease::Failure;

use super::{Caller, Decided, LeaseRequest, Mastership, Server, driver::Action};
use crate::{
    ablation::Rule, limits::Limit, network::Message, network::NodeCall, network::NodeOutcome,
    network::PollCall, network::Process,
};
use doorman_core::{
    ledger::HolderId, ledger::Ledger, upstream::Effect, upstream::Event, upstream::Upstream,
    upstream::UpstreamSettings,
};

/// The number of steps of one sweep.
const SWEEP: usize = 64;
/// The shortest time between two sweeps, in seconds.
const SWEEP_PAUSE: f64 = 0.001;

/// A request that waits for the parent.
#[derive(Debug)]
pub(super) struct PendingRequest {
    call: Caller,
    request: LeaseRequest,
    epoch: Option<Epoch>,
    /// When it is decided even if the parent has not answered.
    pub(super) until: Moment,
}

impl PendingRequest {
    pub(super) fn new(
        call: Caller,
        request: LeaseRequest,
        epoch: Option<Epoch>,
        until: Moment,
    ) -> Self {
        Self {
            call,
            request,
            epoch,
            until,
        }
    }

    /// Registers the demand, and returns whether the parent must be asked first.
    fn register(&self, ledger: &mut Ledger, now: Moment) -> bool {
        let call = self.request.call();
        let (mut awaits, mut from) = (false, Some(0));
        while let Some(position) = from {
            let (part_awaits, next) = ledger.register_part(&call, position, now);
            awaits |= part_awaits;
            from = next;
        }
        awaits
    }
}

/// The state of a master below the root, in addition to its reign.
#[derive(Debug)]
pub(super) struct NodeState {
    upstream: Upstream,
    /// The servers of the parent.
    servers: Range<usize>,
    epoch: Epoch,
    /// When the ledger is swept next.
    sweeps_at: Moment,
    /// Whether the parent has answered since waiting requests were last decided.
    is_answered: bool,
    /// For runs without a rule.
    ablated: Ablated,
}

/// State of a node without a safety rule, by resource.
#[derive(Debug, Default)]
struct Ablated {
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

impl NodeState {
    pub(super) fn new(node: NodeId, epoch: Epoch, servers: Range<usize>, seed: u64) -> Self {
        let settings = UpstreamSettings {
            node,
            epoch,
            endpoints: servers.len(),
            seed: seed.wrapping_add(epoch.get()),
        };
        Self {
            upstream: Upstream::new(settings),
            servers,
            epoch,
            sweeps_at: Moment::ORIGIN,
            is_answered: true,
            ablated: Ablated::default(),
        }
    }

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
            Rule::OwnLeasesOnly => self.ablated.claim_for_holders(request),
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
            let told = self.ablated.told.insert(id, capacity);
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
    /// Decides a request; `None` if it waits for the parent.
    pub(super) fn decide(
        &mut self,
        pending: PendingRequest,
        limits: &[Limit],
        now: Moment,
    ) -> Option<Decided> {
        let is_same = self.epoch() == pending.epoch;
        let asks_first = self.without != Some(Rule::AskParentFirst);
        let Some((ledger, _)) = self.serving(now).filter(|_| is_same) else {
            return Some(Err(self.unavailable()));
        };
        if pending.register(ledger, now) && asks_first {
            let may_have_lost = ledger.may_have_lost_leases(now);
            if self.without == Some(Rule::OwnLeasesOnly)
                && let Some((node, _)) = self.node(now)
            {
                node.ablated.note_claims(&pending.request);
            }
            if now < pending.until {
                self.pending.push(pending);
                return None;
            }
            if may_have_lost {
                return Some(Err(Failure::Unavailable { retry_after: None }));
            }
        }
        self.grant(pending.call, &pending.request, limits, now)
    }

    /// Decides the requests that have waited for the parent, and sends it the requests that are
    /// due.
    pub(super) fn drive_lower(&mut self, limits: &[Limit], now: Moment) {
        let node = self.mastership.as_mut().and_then(|it| it.node.as_mut());
        let is_answered = node.is_none_or(|it| std::mem::take(&mut it.is_answered));
        let is_over = |it: &mut PendingRequest| is_answered || it.until <= now;
        let decidable: Vec<_> = self.pending.extract_if(.., is_over).collect();
        for pending in decidable {
            let call = pending.call;
            if let Some(decided) = self.decide(pending, limits, now) {
                let (to, message) = call.respond(decided);
                self.actions.push(Action::Respond(to, message));
            }
        }
        if let Some((node, ledger)) = self.node(now) {
            let next = ledger.sweep(now, SWEEP).unwrap_or(Moment::NEVER);
            node.sweeps_at = next.max(now.after_seconds(SWEEP_PAUSE));
            if node.upstream.wake_at() <= now || ledger.has_parent_updates() {
                self.tell_upstream(Event::Wake, now);
            }
        }
    }

    /// When [`drive_lower`](Self::drive_lower) is due next.
    pub(super) fn lower_wakes_at(&self, now: Moment) -> Moment {
        let pending = self.pending.iter().map(|it| it.until);
        let mastership = self.mastership.as_ref();
        let mastership = mastership.filter(|it| now < it.reign.deadline());
        let node = mastership.and_then(|it| it.node.as_ref());
        let node = node.map(|it| it.upstream.wake_at().min(it.sweeps_at));
        pending.chain(node).min().unwrap_or(Moment::NEVER)
    }

    /// Handles a response of the parent.
    pub(crate) fn on_parent_answer(&mut self, call: NodeCall, outcome: NodeOutcome, time: Moment) {
        let now = self.clock.local(time);
        let without = self.without;
        let incarnation = self.incarnation;
        let Some((node, ledger)) = self.node(now) else {
            return;
        };
        if (call.incarnation, call.epoch) != (incarnation, node.epoch) {
            return;
        }
        node.is_answered = true;
        let seq = call.seq;
        let mut response = match outcome {
            Ok(response) => response,
            Err(failure) => return self.tell_upstream(Event::Failed { seq, failure }, now),
        };
        if let Some(rule) = without {
            node.ablate_response(rule, &mut response, call.sent, ledger, now);
        }
        if without == Some(Rule::LateClaim) {
            node.ablated
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
        if let (Some(response), Some((node, ledger))) = (answered, self.node(now)) {
            let ablated = &mut node.ablated;
            ablated.keep_booked_leases(&response, call.sent, ledger, now);
        }
    }

    /// The next poll of the parent and the server to poll, if this server is master.
    pub(crate) fn poll_parent(&mut self) -> Option<(Process, Message)> {
        let node = self.mastership.as_ref()?.node.as_ref()?;
        let source = node.upstream.holder().hint_source(None)?;
        let message = Message::Poll {
            call: PollCall {
                incarnation: self.incarnation,
                number: self.poll,
            },
            poller: HolderId::Node(self.membership.name.clone()),
            after: self.heard_batch,
        };
        Some((Process::Server(node.servers.start + source), message))
    }

    /// Handles hints of a server of the parent.
    pub(crate) fn on_parent_hints(&mut self, from: usize, hints: HintsResponse, time: Moment) {
        self.heard_batch = hints.after;
        let first = self.membership.parent.as_ref().map_or(0, |it| it.start);
        let endpoint = from - first;
        self.tell_upstream(Event::Hinted { endpoint, hints }, self.clock.local(time));
    }

    /// The state and the ledger of the current reign; `None` after its deadline.
    fn node(&mut self, now: Moment) -> Option<(&mut NodeState, &mut Ledger)> {
        let Mastership { reign, node, .. } = self.mastership.as_mut()?;
        Some((node.as_mut()?, reign.ledger(now)?))
    }

    fn tell_upstream(&mut self, event: Event, now: Moment) {
        let (without, incarnation) = (self.without, self.incarnation);
        let Some((node, ledger)) = self.node(now) else {
            return;
        };
        let mut effects = node.upstream.handle(event, ledger, now);
        while node.upstream.wake_at() <= now {
            effects.append(&mut node.upstream.handle(Event::Wake, ledger, now));
        }
        let mut messages = Vec::new();
        for effect in effects {
            match effect {
                Effect::Send {
                    seq,
                    endpoint,
                    mut request,
                    timeout: _,
                } => {
                    if let Some(rule) = without {
                        node.ablate_request(rule, &mut request, ledger);
                        let ids = request.resources.iter().map(|it| it.resource_id.clone());
                        node.ablated.asked.extend(ids.map(|id| (id, seq)));
                    }
                    let call = NodeCall {
                        incarnation,
                        epoch: node.epoch,
                        seq,
                        sent: now,
                    };
                    let to = Process::Server(node.servers.start + endpoint);
                    messages.push((to, Message::NodeRequest { call, request }));
                }
                Effect::Release { endpoint, request } => {
                    let to = Process::Server(node.servers.start + endpoint);
                    messages.push((to, Message::NodeRelease(request)));
                }
                Effect::Warn(_) => {}
            }
        }
        let messages = messages.into_iter();
        self.actions
            .extend(messages.map(|(to, message)| Action::Ask(to, message)));
    }
}
