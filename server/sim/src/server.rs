//! A server process: the product's election and [`Master`], with crashes, pauses and a data
//! directory.

mod driver;
mod node;

use std::{collections::HashMap, sync::Arc};

use doorman_config::Document;
use doorman_core::{
    election::{Election, View},
    ledger::{
        Grant, HolderId, LeaseCall, Ledger, PageQuery, PollTicket, ReleasePosition, Tuning,
        UnmatchedPolicy,
    },
    master::{
        Effect, Granted as MasterGranted, Master, MasterSettings, NotGranted, Progress, RequestId,
    },
    reign::Reign,
};
use doorman_openapi::{
    Capacity, CapacityRequest, CapacityResponse, ClientId, Epoch, FeedbackMode, FeedbackState,
    FeedbackView, HintsResponse, Moment, NodeId, ReleaseRequest, ResourceId, Seconds,
    ServerCapacityRequest, ServerCapacityResponse, ServerReleaseRequest,
};
use fastrand::Rng;
use tower_doorman::lease::Failure;

pub(super) use self::driver::{Action, CallReply};
use self::driver::{Candidacy, Fetching};
use super::{
    ablation::{
        EtcdCalls, NodeAblation, Rule, change_client_request, change_grants, change_node_request,
        release_others_of_its_name,
    },
    clock::Clock,
    data_dir::{DataDir, Snapshot},
    limits::{Limit, resource_index},
    network::{ClientCall, Message, NodeCall, PollCall, PollEnd, Polling, Process},
    tree::Membership,
};

/// Relative tolerance of amounts.
const TOLERANCE: f64 = 1e-6;
/// The number of steps of one sweep.
const SWEEP: usize = 64;

const SETTINGS: MasterSettings = MasterSettings {
    max_leases: 10_000,
    unmatched: UnmatchedPolicy::Refuse,
    logs_usage: false,
    longest: Seconds::ZERO,
    tuning: &Tuning::DEFAULT,
};

/// The effective capacity of a resource, and the terms of its server's document. Amounts are in the
/// unit of the document.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct EffectiveState {
    /// `None` if no holder has reported outcomes, or the document has no `feedback`.
    pub(super) effective: Option<f64>,
    pub(super) capacity: f64,
    /// The least that overloads leave; `None` if something else may hold it back.
    pub(super) floor: Option<f64>,
    pub(super) has_feedback: bool,
    /// Of what can be leased, the part that is not; `None` if not all leases are known.
    pub(super) free: Option<f64>,
    pub(super) booked: f64,
}

/// The sender of each open poll, and its `after`.
type Polls = HashMap<PollTicket, (Process, PollCall, u64)>;

/// A lease request to respond to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Caller {
    Client(Process, ClientCall),
    Node(Process, NodeCall),
}

/// Leases that were granted in one reign.
#[derive(Debug)]
pub(super) struct Granted {
    node: NodeId,
    epoch: Epoch,
    level: u32,
    pub(super) grants: Vec<Grant>,
}

impl EffectiveState {
    /// Whether some of the capacity can be neither leased nor is booked, although the document has
    /// no `feedback`.
    pub(super) fn holds_back_without_feedback(&self) -> bool {
        let leasable = self.free.map(|it| it + self.booked);
        let is_missing = |leasable: f64| leasable < self.capacity * (1.0 - TOLERANCE);
        !self.has_feedback && (self.effective.is_some() || leasable.is_some_and(is_missing))
    }
}

/// The result of a lease request.
pub(super) type Decided = Result<Granted, Failure>;

impl Caller {
    pub(super) fn respond(self, decided: Decided) -> (Process, Message) {
        match self {
            Self::Client(from, call) => {
                let outcome = decided.map(|granted| CapacityResponse {
                    warnings: Vec::new(),
                    node: granted.node,
                    epoch: granted.epoch,
                    resources: (granted.grants.into_iter())
                        .map(|it| it.into_response(0))
                        .collect(),
                });
                (from, Message::Response { call, outcome })
            }
            Self::Node(from, call) => {
                let outcome = decided.map(|granted| ServerCapacityResponse {
                    warnings: Vec::new(),
                    node: granted.node,
                    epoch: granted.epoch,
                    level: granted.level,
                    resources: (granted.grants.into_iter())
                        .map(|it| it.into_server_response(0))
                        .collect(),
                });
                (from, Message::NodeResponse { call, outcome })
            }
        }
    }
}

/// A lease request of a client or a node.
#[derive(Debug, Clone)]
pub(super) enum LeaseRequest {
    Client(CapacityRequest),
    Node(ServerCapacityRequest),
}

impl LeaseRequest {
    /// What a client claims of each resource; nothing of a node.
    fn claims_of_client(&self) -> Vec<f64> {
        match self {
            Self::Client(request) => {
                let claims = request.resources.iter().map(|it| it.has);
                claims
                    .map(|has| has.map_or(0.0, |it| it.capacity.get()))
                    .collect()
            }
            Self::Node(_) => Vec::new(),
        }
    }

    /// Lets a node without [`Rule::OwnLeasesOnly`] remember what the sender claims.
    fn note_claims(&self, ablation: &mut NodeAblation) {
        match self {
            Self::Client(request) => {
                for it in &request.resources {
                    ablation.note_claim(&it.resource_id, request.client_id.as_str(), it.has);
                }
            }
            Self::Node(request) => {
                for it in &request.resources {
                    ablation.note_claim(&it.resource_id, request.node_id.as_str(), it.has);
                }
            }
        }
    }

    pub(super) fn call(&self) -> LeaseCall {
        match self {
            Self::Client(request) => request.clone().into(),
            Self::Node(request) => request.clone().into(),
        }
    }
}

#[derive(Debug)]
pub(super) struct Server {
    pub(super) clock: Clock,
    /// Counts restarts.
    pub(super) incarnation: u32,
    pub(super) is_up: bool,
    pub(super) paused_until: Option<Moment>,
    /// Messages that arrived during a pause, with their senders.
    pub(super) inbox: Vec<(Process, Message)>,
    /// The simulated time until which the data directory cannot be written.
    pub(super) disk_full_until: Moment,
    /// The simulated time at which it looks for polls to answer.
    pub(super) answers_at: Option<Moment>,
    /// The simulated time of the next timer.
    pub(super) wake: Moment,
    /// The simulated time at which a server that resigns has shut down.
    pub(super) shuts_down_at: Option<Moment>,
    /// Seconds after which a server that resigns starts again; random where nothing says so.
    pub(super) restarts_after: Option<f64>,
    /// The polls of the parent.
    pub(super) polling: Polling,
    /// Whether it polls its parent.
    pub(super) polls_parent: bool,
    pub(super) membership: Membership,
    index: usize,
    document: Arc<Document>,
    candidacy: Option<Candidacy>,
    master: Master,
    settings: MasterSettings,
    /// The epoch of the reign.
    epoch: Option<Epoch>,
    /// Whether the ledger is that of an earlier reign.
    has_inherited: bool,
    polls: Polls,
    /// What waits for the bound or the parent.
    requests: HashMap<RequestId, (Caller, LeaseRequest)>,
    /// When the ledger of a node is swept next.
    sweeps_at: Moment,
    ablation: NodeAblation,
    actions: Vec<Action>,
    fetching: Option<Fetching>,
    /// The reign that it offers to the next master after a resignation.
    offered: Option<Reign>,
    /// Authorizes the next master.
    secret: String,
    data_dir: DataDir,
    calls: EtcdCalls,
    without: Option<Rule>,
}

impl Server {
    pub(super) fn new(
        index: usize,
        clock: Clock,
        document: Arc<Document>,
        membership: Membership,
        without: Option<Rule>,
    ) -> Self {
        Self {
            clock,
            incarnation: 0,
            is_up: false,
            paused_until: None,
            inbox: Vec::new(),
            disk_full_until: Moment::ORIGIN,
            answers_at: None,
            wake: Moment::NEVER,
            shuts_down_at: None,
            restarts_after: None,
            polling: Polling::default(),
            polls_parent: false,
            membership,
            index,
            master: Master::new(settings(without), Arc::clone(&document)),
            settings: settings(without),
            document,
            candidacy: None,
            epoch: None,
            has_inherited: false,
            polls: Polls::new(),
            requests: HashMap::new(),
            sweeps_at: Moment::ORIGIN,
            ablation: NodeAblation::default(),
            actions: Vec::new(),
            fetching: None,
            offered: None,
            secret: String::new(),
            data_dir: DataDir::default(),
            calls: EtcdCalls::new(without),
            without,
        }
    }

    /// With other constants, from its first start on.
    pub(super) fn with_tuning(mut self, tuning: &'static Tuning) -> Self {
        self.settings.tuning = tuning;
        self
    }

    pub(super) fn is_running(&self) -> bool {
        self.is_up && self.paused_until.is_none()
    }

    /// The epoch in which the server is master.
    pub(super) fn epoch(&self) -> Option<Epoch> {
        self.epoch
    }

    /// The simulated times at which its reign, its bound, its learning mode, its leases from the
    /// parent or a hand-over end.
    pub(super) fn ends(&mut self, resources: &[ResourceId], time: Moment) -> Vec<Moment> {
        let (clock, now) = (self.clock, self.clock.local(time));
        let mut ends = Vec::from_iter(self.shuts_down_at);
        let Some(reign) = self.master.reign() else {
            return ends;
        };
        let mut local = vec![reign.deadline(), reign.bound().get()];
        if let Some(ledger) = self.master.ledger(now) {
            local.push(ledger.learning_until());
            let views = resources.iter().filter_map(|id| ledger.resource(id, now));
            let leases = views.filter_map(|it| it.parent);
            local.extend(leases.map(|it| now.after_seconds(it.expires_in.get())));
        }
        ends.extend(local.into_iter().map(|it| clock.time(it)));
        ends
    }

    /// Whether it takes part in an election, which it may have lost.
    pub(super) fn takes_part_in_election(&self) -> bool {
        matches!(self.candidacy, Some(Candidacy::Etcd(_)))
    }

    /// Whether its data directory has the terms and the length of the leases of a master.
    pub(super) fn knows_leases_of(&self, master: &Self) -> bool {
        let (own, others) = (&self.data_dir, &master.data_dir);
        own.longest >= others.longest && others.terms.iter().all(|it| own.terms.contains(it))
    }

    /// Whether its ledger is that of an earlier reign.
    pub(super) fn has_inherited(&self) -> bool {
        self.has_inherited
    }

    /// The false claims that the ledger has counted; `None` if it is not master.
    pub(super) fn excess_claims(&mut self, time: Moment) -> Option<u64> {
        let now = self.clock.local(time);
        let ledger = self.serving(now)?;
        Some(ledger.stats().excess_claims)
    }

    /// Whether it is master, and may not know all leases of a resource.
    pub(super) fn learns(&mut self, resource: &ResourceId, time: Moment) -> bool {
        let now = self.clock.local(time);
        self.serving(now).is_some_and(|ledger| {
            let view = ledger.resource(resource, now);
            view.map_or(now < ledger.learning_until(), |it| it.in_learning_mode)
        })
    }

    /// Whether the ledger has neither leases nor work.
    pub(super) fn is_idle(&mut self, time: Moment) -> bool {
        let now = self.clock.local(time);
        let ledger = self.master.ledger(now);
        ledger.is_some_and(|ledger| {
            let stats = ledger.stats();
            (stats.leases, stats.resources) == (0, 0) && ledger.hints_due().is_none()
        })
    }

    /// The effective capacity of a resource, if this server is master and holders report outcomes.
    pub(super) fn effective(&mut self, resource: &ResourceId, time: Moment) -> Option<f64> {
        let now = self.clock.local(time);
        let view = self.serving(now)?.resource(resource, now)?;
        view.effective.map(Capacity::get)
    }

    /// The amount that is booked for a node, or for all holders without one. `None` if this server
    /// is not master, or learns, so that it does not know all leases.
    pub(super) fn booked(
        &mut self,
        resource: &ResourceId,
        node: Option<&NodeId>,
        time: Moment,
    ) -> Option<f64> {
        let now = self.clock.local(time);
        let ledger = self.serving(now)?;
        let view = ledger.resource(resource, now);
        if view
            .as_ref()
            .map_or(now < ledger.learning_until(), |it| it.in_learning_mode)
        {
            return None;
        }
        let Some(node) = node else {
            return Some(view.map_or(0.0, |it| it.sum_has));
        };
        let name = ClientId::new(node.as_str()).ok()?;
        let named = ledger.holders_named(resource, &name, now).ok();
        if let Some(named) = named.and_then(|it| it.holders.first().map(|it| it.view.booked)) {
            return Some(named);
        }
        // A node without demand is not listed, but has what the listed holders leave.
        let all = ledger.holders(resource, &PageQuery::unfiltered(100), None, now);
        let listed = all.map_or(0.0, |it| it.holders.iter().map(|it| it.view.booked).sum());
        Some(view.map_or(0.0, |it| it.sum_has) - listed)
    }

    /// Applies what is due in its ledger, as between requests.
    pub(super) fn sweep(&mut self, time: Moment) {
        let now = self.clock.local(time);
        if let Some(ledger) = self.serving(now) {
            ledger.sweep(now, SWEEP);
        }
    }

    /// The effective capacity of a resource; `None` if this server is not master, or does not know
    /// the resource.
    pub(super) fn effective_state(
        &mut self,
        resource: &ResourceId,
        time: Moment,
    ) -> Option<EffectiveState> {
        let now = self.clock.local(time);
        let view = self.serving(now)?.resource(resource, now)?;
        let template = self.document.lookup(resource)?;
        let capacity = template.capacity().get();
        let feedback = template.feedback();
        let is_paused = |it: &FeedbackView| it.state == Some(FeedbackState::Paused);
        let acts = feedback.filter(|it| it.mode == FeedbackMode::Act && !it.headers);
        let floor = acts.filter(|_| !view.feedback.as_ref().is_some_and(is_paused));
        Some(EffectiveState {
            effective: view.effective.map(Capacity::get),
            capacity,
            floor: floor.map(|it| it.floor.get() * capacity),
            has_feedback: feedback.is_some(),
            free: view.free,
            booked: view.sum_has,
        })
    }

    /// The only secret of this incarnation.
    pub(super) fn secret(&self) -> String {
        self.secret.clone()
    }

    pub(super) fn crash(&mut self) {
        self.is_up = false;
        self.incarnation += 1;
        self.inbox.clear();
        self.paused_until = None;
        self.wake = Moment::NEVER;
        self.shuts_down_at = None;
        self.candidacy = None;
        self.master = Master::new(self.settings, Arc::clone(&self.document));
        self.epoch = None;
        self.has_inherited = false;
        self.polling.end();
        self.polls.clear();
        self.requests.clear();
        self.actions.clear();
        self.fetching = None;
        self.offered = None;
        self.calls = EtcdCalls::new(self.without);
    }

    /// Whether it has resigned, and nothing is left to hand over.
    pub(super) fn has_handed_over(&self) -> bool {
        self.shuts_down_at.is_some() && self.offered.is_none()
    }

    /// Crashes with its machine, whose clock begins anew.
    pub(super) fn crash_machine(&mut self, rng: &mut Rng) {
        self.crash();
        self.clock.restart(rng);
        self.data_dir.reboot();
    }

    /// Ends a server that has resigned. A writable data directory keeps the ledger, unless another
    /// server has taken it.
    pub(super) fn shut_down(&mut self, time: Moment) {
        if let Some(reign) = self.offered.take()
            && self.disk_full_until <= time
        {
            self.data_dir.ledger = Some(Snapshot::new(reign, self.clock.local(time)));
        }
        self.crash();
    }

    pub(super) fn reconfigure(&mut self, document: &Arc<Document>) {
        self.document = Arc::clone(document);
        self.master.reconfigure(document);
    }

    /// Handles a lease request. The server reads its clock here, even if it stalls before it
    /// responds. `None`: the response waits for the parent or for the bound.
    pub(super) fn refresh(
        &mut self,
        call: Caller,
        request: &LeaseRequest,
        limits: &[Limit],
        time: Moment,
    ) -> Option<Decided> {
        let mut request = request.clone();
        let now = self.clock.local(time);
        self.ablate_request(&mut request, now);
        if let Some(ledger) = self.serving(now) {
            ledger.sweep(now, SWEEP);
        }
        let progress = match self.without {
            Some(Rule::AskParentFirst) => self.decide_unasked(&request, now),
            _ => self.master.request(request.call(), now),
        };
        self.go_on(call, request, progress, limits, now)
    }

    /// Goes on with a request; `None` if it waits.
    fn go_on(
        &mut self,
        call: Caller,
        request: LeaseRequest,
        mut progress: Progress,
        limits: &[Limit],
        now: Moment,
    ) -> Option<Decided> {
        let outcome = loop {
            match progress {
                Progress::Done(outcome) => break outcome,
                Progress::Again(partial) => progress = self.master.proceed(partial, now),
                Progress::Waits(id) => match self.unbounded(&request, id) {
                    Some(granted) => break Ok(granted),
                    None => {
                        if self.without == Some(Rule::OwnLeasesOnly) {
                            request.note_claims(&mut self.ablation);
                        }
                        self.requests.insert(id, (call, request));
                        return None;
                    }
                },
            }
        };
        Some(match outcome {
            Ok(granted) => self.response(granted, &request, limits, now),
            Err(NotGranted::NotMaster) => Err(self.unavailable()),
            Err(NotGranted::NotDurable | NotGranted::NoParent) => {
                Err(Failure::Unavailable { retry_after: None })
            }
        })
    }

    /// The leases that a response has without waiting for the bound, without the rule.
    fn unbounded(&self, request: &LeaseRequest, id: RequestId) -> Option<MasterGranted> {
        match self.without {
            Some(Rule::Bound) => self.master.granted(id),
            Some(Rule::StatedWithinBound) if is_statement(request) => self.master.granted(id),
            _ => None,
        }
    }

    /// Responds to the requests that have waited.
    fn resume(&mut self, limits: &[Limit], now: Moment) {
        for effect in self.master.take_effects() {
            if let Effect::Resume { id, progress } = effect
                && let Some((call, request)) = self.requests.remove(&id)
                && let Some(decided) = self.go_on(call, request, progress, limits, now)
            {
                let (to, message) = call.respond(decided);
                self.actions.push(Action::Respond(to, message));
            }
        }
    }

    /// Changes a request so that this server handles it as without the rule.
    fn ablate_request(&mut self, request: &mut LeaseRequest, now: Moment) {
        let (without, epoch) = (self.without, self.current_epoch());
        let serving = self.serving(now);
        let learns = serving.is_some_and(|ledger| now < ledger.learning_until());
        match (without, request) {
            (None, _) => {}
            (Some(Rule::DeadPredecessor), LeaseRequest::Client(request)) => {
                if let Some(ledger) = self.serving(now) {
                    release_others_of_its_name(request, ledger, now);
                }
            }
            (Some(rule), LeaseRequest::Client(request)) => {
                change_client_request(rule, request, epoch);
            }
            (Some(rule), LeaseRequest::Node(request)) => {
                change_node_request(rule, request, epoch, learns);
            }
        }
    }

    pub(super) fn release(&mut self, request: &ReleaseRequest, time: Moment) {
        let mut request = request.clone();
        match self.without {
            Some(Rule::ReleaseSeq) => request.seq = None,
            Some(Rule::ClientRun) => request.run = None,
            _ => {}
        }
        let now = self.clock.local(time);
        if let Some(ledger) = self.serving(now) {
            ledger.release(&request.clone().into(), now);
        }
    }

    pub(super) fn release_node(&mut self, request: &ServerReleaseRequest, time: Moment) {
        let mut request = request.clone();
        if self.without == Some(Rule::ReleaseSeq) {
            request.seq = None;
        }
        let now = self.clock.local(time);
        if let Some(ledger) = self.serving(now) {
            ledger.release_part(
                &request.clone().into(),
                &|_| true,
                ReleasePosition::default(),
                now,
            );
        }
    }

    /// Opens a poll. A server that is not the master responds at once.
    pub(super) fn open_poll(
        &mut self,
        from: Process,
        call: PollCall,
        poller: &HolderId,
        after: u64,
        time: Moment,
    ) -> Result<PollTicket, PollEnd> {
        if !self.is_up {
            return Err(PollEnd::Failed);
        }
        let (now, without) = (self.clock.local(time), self.without);
        let Some(ledger) = self.serving(now) else {
            let epoch = self.view().epoch.unwrap_or(Epoch::ZERO);
            return Err(PollEnd::Hints(self.leaving(epoch, after)));
        };
        let poller = match poller {
            HolderId::Client(id, _) if without == Some(Rule::ClientRun) => {
                &HolderId::Client(id.clone(), None)
            }
            poller => poller,
        };
        let ticket = ledger.open_poll(poller, after, now);
        self.polls.insert(ticket, (from, call, after));
        Ok(ticket)
    }

    /// Closes the poll of a process that has closed the connection.
    pub(super) fn close_poll(&mut self, from: Process, call: PollCall, time: Moment) {
        // The network may have doubled it.
        let is_same = |(by, open, _): &(Process, PollCall, u64)| (*by, *open) == (from, call);
        let polls = self.polls.iter().filter(|(_, poll)| is_same(poll));
        let mut tickets: Vec<_> = polls.map(|(ticket, _)| *ticket).collect();
        tickets.sort_unstable();
        let now = self.clock.local(time);
        for ticket in tickets {
            self.polls.remove(&ticket);
            if let Some(ledger) = self.serving(now) {
                ledger.close_poll(ticket, now);
            }
        }
    }

    /// Ends the open polls of a reign, in order. Each gets the response of a server that leaves.
    pub(super) fn end_polls(&mut self) -> Vec<(Process, PollCall, PollEnd)> {
        let epoch = self.epoch.unwrap_or(Epoch::ZERO);
        let mut polls: Vec<_> = self.polls.drain().collect();
        polls.sort_unstable_by_key(|(ticket, _)| *ticket);
        let ends = polls.into_iter().map(|(_, (to, call, after))| {
            let end = PollEnd::Hints(self.leaving(epoch, after));
            (to, call, end)
        });
        ends.collect()
    }

    /// The response to a poll of a server that is not, or no longer, master.
    fn leaving(&self, epoch: Epoch, after: u64) -> HintsResponse {
        HintsResponse {
            leaving: true,
            ..HintsResponse::none(self.membership.name.clone(), self.sent_epoch(epoch), after)
        }
    }

    /// Ends a poll whose wait is over. Returns the response, which has no hints.
    pub(super) fn end_poll(
        &mut self,
        ticket: PollTicket,
        call: PollCall,
        time: Moment,
    ) -> Option<(Process, HintsResponse)> {
        let now = self.clock.local(time);
        let (node, epoch) = self.identity()?;
        self.serving(now)?;
        let open = self.polls.get(&ticket);
        open.filter(|(_, open, _)| *open == call)?;
        let (to, _, after) = self.polls.remove(&ticket)?;
        self.serving(now)?.close_poll(ticket, now);
        Some((to, HintsResponse::none(node, epoch, after)))
    }

    /// The polls to answer now, and the simulated time of the next ones.
    pub(super) fn take_hints(
        &mut self,
        time: Moment,
    ) -> (Vec<(Process, PollCall, HintsResponse)>, Option<Moment>) {
        let now = self.clock.local(time);
        let clock = self.clock;
        let identity = self.identity();
        let (Some((node, epoch)), Some(ledger)) = (identity, self.master.ledger(now)) else {
            return (Vec::new(), None);
        };
        let swept = ledger.sweep(now, 64);
        let answers = ledger.take_hints(now).into_iter();
        let answers = answers.filter_map(|(ticket, batch)| {
            let (to, call, _) = self.polls.remove(&ticket)?;
            let hints = HintsResponse {
                refresh: batch.refresh,
                all: batch.all,
                ..HintsResponse::none(node.clone(), epoch, batch.after)
            };
            Some((to, call, hints))
        });
        let answers = answers.collect();
        let next = [swept, ledger.hints_due()].into_iter().flatten().min();
        let next = next.map(|at| clock.time(at.max(now)));
        (answers, next)
    }

    /// The node and epoch that responses carry.
    pub(super) fn identity(&self) -> Option<(NodeId, Epoch)> {
        Some((self.membership.name.clone(), self.current_epoch()?))
    }

    /// The epoch that responses carry.
    fn sent_epoch(&self, epoch: Epoch) -> Epoch {
        match self.without {
            Some(Rule::Epoch) => Epoch::new(1).expect("the epoch is small"),
            _ => epoch,
        }
    }

    fn current_epoch(&self) -> Option<Epoch> {
        Some(self.sent_epoch(self.epoch()?))
    }

    /// The ledger before the deadline of the reign.
    fn serving(&mut self, now: Moment) -> Option<&mut Ledger> {
        self.master.ledger(now)
    }

    /// The view of its election; empty without one.
    fn view(&self) -> View {
        match &self.candidacy {
            None => View::default(),
            Some(Candidacy::Alone(election)) => election.view(),
            Some(Candidacy::Etcd(election)) => election.view(),
        }
    }

    /// The response of a server without a ledger: a redirect to the master, if it knows it.
    pub(super) fn unavailable(&self) -> Failure {
        let address = self.view().address;
        let master = address.and_then(|address| address.parse::<usize>().ok());
        match master.filter(|master| *master != self.index) {
            Some(master) => Failure::Redirected {
                to: Some(master - self.membership.servers.start),
            },
            None => Failure::Unavailable { retry_after: None },
        }
    }

    /// The response with these leases, changed to those of a server without the rule.
    fn response(
        &mut self,
        granted: MasterGranted,
        request: &LeaseRequest,
        limits: &[Limit],
        now: Moment,
    ) -> Decided {
        let mut grants = granted.grants;
        if let Some(rule) = self.without
            && let Some(ledger) = self.master.ledger(now)
        {
            let call = request.call();
            let holder = call.holder().as_str();
            let claims = request.claims_of_client();
            let limit = |id: &ResourceId| &limits[resource_index(id)];
            change_grants(rule, &mut grants, &claims, ledger, holder, limit, now);
        }
        Ok(Granted {
            node: self.membership.name.clone(),
            epoch: self.sent_epoch(granted.epoch),
            level: self.membership.level,
            grants,
        })
    }
}

fn settings(without: Option<Rule>) -> MasterSettings {
    MasterSettings {
        tuning: without.map_or(&Tuning::DEFAULT, Rule::tuning),
        ..SETTINGS
    }
}

/// Whether the response states what a node has, to its new master.
fn is_statement(request: &LeaseRequest) -> bool {
    match request {
        LeaseRequest::Client(_) => false,
        LeaseRequest::Node(request) => request.resources.iter().any(|it| it.has.is_none()),
    }
}
