//! A server process: the real ledger, with crashes, pauses, elections and a data directory.

use std::{collections::HashMap, sync::Arc};

use doorman_config::Document;
use doorman_openapi::{
    CLOCK_DRIFT, Capacity, CapacityRequest, CapacityResponse, ClientId, Epoch, HeldLease,
    HintsResponse, Moment, NodeId, ReleaseRequest, ServerCapacityRequest,
};
use doorman_server::ledger::{
    Grant, LearningRecord, Ledger, PollHolder, PollTicket, Predecessor, ResourceRecord, Settings,
    UnmatchedPolicy,
};
use tower_doorman::lease::Failure;

use super::{
    Rule,
    ablation::ablate_grant,
    clock::Clock,
    etcd::{ELECTION_LEASE, FENCE},
    limits::{Limit, longest_lease, resource_index},
    network::{Election, Message, Outcome, PollCall, Process},
};

const NODE: &str = "root";
/// Seconds by which the stored lease horizon exceeds the latest grant.
const HORIZON_MARGIN: f64 = 5.0;

/// The state of a server while it is master.
#[derive(Debug)]
struct Mastership {
    ledger: Ledger,
    epoch: u64,
    /// The server rejects requests from then on, by its own clock.
    fence: Moment,
    /// The sender of each open poll, and its `after`.
    polls: HashMap<PollTicket, (Process, PollCall, u64)>,
}

/// Contents of the data directory, which survive a crash.
#[derive(Debug, Default)]
struct DataDir {
    epoch: u64,
    /// No granted lease lasts longer, by the machine's clock.
    horizon: Moment,
    /// The ledger of a server that shut down cleanly.
    snapshot: Option<Snapshot>,
}

#[derive(Debug)]
struct Snapshot {
    resources: Vec<ResourceRecord>,
    learning: Option<LearningRecord>,
    taken: Moment,
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
    /// The simulated time before which the server does not campaign.
    pub(super) campaigns_from: Moment,
    /// The simulated time until which the data directory cannot be written.
    pub(super) disk_full_until: Moment,
    /// The simulated time at which it looks for polls to answer.
    pub(super) answers_at: Option<Moment>,
    mastership: Option<Mastership>,
    /// When the latest campaign with a known result was sent.
    last_campaign: Moment,
    /// The latest epoch in which the server was master.
    last_epoch: u64,
    data_dir: DataDir,
    without: Option<Rule>,
}

impl Server {
    pub(super) fn new(clock: Clock, without: Option<Rule>) -> Self {
        Self {
            clock,
            incarnation: 0,
            is_up: false,
            paused_until: None,
            inbox: Vec::new(),
            campaigns_from: Moment::ORIGIN,
            disk_full_until: Moment::ORIGIN,
            answers_at: None,
            mastership: None,
            last_campaign: Moment::ORIGIN,
            last_epoch: 0,
            data_dir: DataDir::default(),
            without,
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.is_up && self.paused_until.is_none()
    }

    pub(super) fn is_master(&self) -> bool {
        self.mastership.is_some()
    }

    /// The epoch in which the server is master.
    pub(super) fn epoch(&self) -> Option<u64> {
        self.mastership.as_ref().map(|mastership| mastership.epoch)
    }

    /// Whether the ledger has neither leases nor work.
    pub(super) fn is_idle(&self) -> bool {
        self.mastership.as_ref().is_some_and(|mastership| {
            let stats = mastership.ledger.stats();
            (stats.leases, stats.resources) == (0, 0) && mastership.ledger.hints_due().is_none()
        })
    }

    pub(super) fn crash(&mut self) {
        self.mastership = None;
        self.end_incarnation();
    }

    /// Shuts down cleanly. A writable data directory keeps the ledger.
    pub(super) fn shut_down(&mut self, time: Moment) {
        let now = self.clock.local(time);
        self.data_dir.snapshot = self
            .mastership
            .take()
            .filter(|_| time >= self.disk_full_until)
            .map(|mastership| Snapshot {
                resources: mastership.ledger.snapshot(now).collect(),
                learning: mastership.ledger.learning_snapshot(now),
                taken: now,
            });
        self.end_incarnation();
    }

    pub(super) fn resign(&mut self) {
        self.mastership = None;
    }

    fn end_incarnation(&mut self) {
        self.is_up = false;
        self.incarnation += 1;
        self.inbox.clear();
        self.paused_until = None;
    }

    /// Starts without an election, from the data directory.
    pub(super) fn start_without_election(
        &mut self,
        document: Arc<Document>,
        limits: &[Limit],
        time: Moment,
    ) {
        let now = self.clock.local(time);
        self.data_dir.epoch += 1;
        let horizon = match self.without {
            Some(Rule::LearningDuration) => now.after_seconds(CLOCK_DRIFT * longest_lease(limits)),
            _ => self.data_dir.horizon,
        };
        let snapshot = self.data_dir.snapshot.take();
        let must_learn = self.data_dir.epoch > 1 && snapshot.is_none() && horizon > now;
        let learn_until = must_learn.then_some(horizon);
        let mut ledger = self.new_ledger(document, self.data_dir.epoch, learn_until, now);
        if let Some(snapshot) = snapshot {
            if let Some(learning) = snapshot.learning {
                ledger.restore_learning(learning, snapshot.taken);
            }
            for record in &snapshot.resources {
                ledger
                    .restore(record, snapshot.taken)
                    .expect("the names are valid");
            }
        }
        self.mastership = Some(Mastership {
            ledger,
            epoch: self.data_dir.epoch,
            fence: Moment::NEVER,
            polls: HashMap::new(),
        });
    }

    /// Handles the result of a campaign.
    pub(super) fn on_campaign_result(
        &mut self,
        election: Option<Election>,
        sent: Moment,
        document: Arc<Document>,
        limits: &[Limit],
        time: Moment,
    ) {
        if sent < self.last_campaign {
            return;
        }
        self.last_campaign = sent;
        let Some(Election { epoch, learn_for }) = election else {
            self.mastership = None;
            return;
        };
        let now = self.clock.local(time);
        let fence = sent.after_seconds(FENCE * ELECTION_LEASE);
        if let Some(mastership) = self.mastership.as_mut().filter(|it| it.epoch == epoch) {
            mastership.fence = mastership.fence.max(fence);
            return;
        }
        if epoch <= self.last_epoch {
            return;
        }
        self.last_epoch = epoch;
        let learn_for = match self.without {
            Some(Rule::LearningDuration) => learn_for.map(|_| CLOCK_DRIFT * longest_lease(limits)),
            _ => learn_for,
        };
        let learn_until = learn_for.map(|seconds| now.after_seconds(seconds));
        self.mastership = Some(Mastership {
            ledger: self.new_ledger(document, epoch, learn_until, now),
            epoch,
            fence,
            polls: HashMap::new(),
        });
    }

    fn new_ledger(
        &self,
        document: Arc<Document>,
        epoch: u64,
        learn_until: Option<Moment>,
        now: Moment,
    ) -> Ledger {
        let learn_until = learn_until.filter(|_| self.without != Some(Rule::LearningMode));
        let settings = Settings {
            max_leases: 10_000,
            unmatched: UnmatchedPolicy::Refuse,
            predecessor: learn_until.map_or(Predecessor::None, Predecessor::Until),
            epoch: self.sent_epoch(epoch),
        };
        Ledger::new(document, settings, now)
    }

    pub(super) fn reconfigure(&mut self, document: &Arc<Document>) {
        if let Some(mastership) = &mut self.mastership {
            mastership.ledger.reconfigure(Arc::clone(document));
        }
    }

    /// Handles the request of a client. The server reads its clock here, even if it stalls before
    /// it responds.
    pub(super) fn refresh_client(
        &mut self,
        request: &CapacityRequest,
        limits: &[Limit],
        time: Moment,
    ) -> Outcome {
        let mut request = request.clone();
        match self.without {
            Some(Rule::RequestSeq) => request.seq = None,
            Some(Rule::EpochEcho) => request.heard_epoch = self.current_epoch(),
            Some(Rule::CombinedBooking) => {
                for resource in &mut request.resources {
                    resource.has = None;
                }
            }
            _ => {}
        }
        self.grant(request.client_id.as_str(), limits, time, |ledger, now| {
            ledger.refresh_client(&request, now)
        })
    }

    /// Handles the request of a node.
    pub(super) fn refresh_node(
        &mut self,
        request: &ServerCapacityRequest,
        limits: &[Limit],
        time: Moment,
    ) -> Outcome {
        let mut request = request.clone();
        match self.without {
            Some(Rule::RequestSeq) => request.seq = None,
            Some(Rule::Epoch) => request.epoch = None,
            Some(Rule::EpochEcho) => request.heard_epoch = self.current_epoch(),
            Some(Rule::CombinedBooking) => {
                for resource in &mut request.resources {
                    resource.has = Some(HeldLease {
                        capacity: Capacity::ZERO,
                    });
                    resource.outstanding = Capacity::ZERO;
                }
            }
            _ => {}
        }
        self.grant(request.node_id.as_str(), limits, time, |ledger, now| {
            ledger.refresh_node(&request, now)
        })
    }

    pub(super) fn release(&mut self, request: &ReleaseRequest, time: Moment) {
        let mut request = request.clone();
        if self.without == Some(Rule::ReleaseSeq) {
            request.seq = None;
        }
        let now = self.clock.local(time);
        if let Some(mastership) = self.serving(now) {
            mastership.ledger.release_client(&request, now);
        }
    }

    pub(super) fn open_poll(
        &mut self,
        from: Process,
        call: PollCall,
        client: &ClientId,
        after: u64,
        time: Moment,
    ) -> Option<PollTicket> {
        let now = self.clock.local(time);
        let mastership = self.serving(now)?;
        let holder = PollHolder::Client(client);
        let ticket = mastership.ledger.open_poll(holder, after, now);
        mastership.polls.insert(ticket, (from, call, after));
        Some(ticket)
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
        let Mastership { ledger, polls, .. } = self.serving(now)?;
        let is_open = polls.get(&ticket).is_some_and(|(_, open, _)| *open == call);
        let (to, _, after) = polls.remove(&ticket).filter(|_| is_open)?;
        ledger.close_poll(ticket, now);
        let hints = HintsResponse {
            node,
            epoch,
            after,
            refresh: Vec::new(),
            all: false,
            rules: false,
            leaving: false,
        };
        Some((to, hints))
    }

    /// The polls to answer now, and the simulated time of the next ones.
    pub(super) fn take_hints(
        &mut self,
        time: Moment,
    ) -> (Vec<(Process, PollCall, HintsResponse)>, Option<Moment>) {
        let now = self.clock.local(time);
        let Some((node, epoch)) = self.identity() else {
            return (Vec::new(), None);
        };
        let clock = self.clock;
        let Some(Mastership { ledger, polls, .. }) = self.serving(now) else {
            return (Vec::new(), None);
        };
        let swept = ledger.sweep(now, 64);
        let answers = ledger.take_hints(now).into_iter();
        let answers = answers.filter_map(|(ticket, batch)| {
            let (to, call, _) = polls.remove(&ticket)?;
            let hints = HintsResponse {
                node: node.clone(),
                epoch,
                after: batch.after,
                refresh: batch.refresh,
                all: batch.all,
                rules: false,
                leaving: false,
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
        let node = NodeId::new(NODE).expect("the name is valid");
        Some((node, self.current_epoch()?))
    }

    /// The epoch that responses carry.
    fn sent_epoch(&self, epoch: u64) -> Epoch {
        let epoch = match self.without {
            Some(Rule::Epoch) => 1,
            _ => epoch,
        };
        Epoch::new(epoch).expect("the epoch is small")
    }

    fn current_epoch(&self) -> Option<Epoch> {
        let mastership = self.mastership.as_ref()?;
        Some(self.sent_epoch(mastership.epoch))
    }

    /// The mastership, unless the election lease may have expired.
    fn serving(&mut self, now: Moment) -> Option<&mut Mastership> {
        let fences = self.without != Some(Rule::SelfFencing);
        self.mastership
            .as_mut()
            .filter(|mastership| !fences || now < mastership.fence)
    }

    fn grant(
        &mut self,
        holder: &str,
        limits: &[Limit],
        time: Moment,
        refresh: impl FnOnce(&mut Ledger, Moment) -> Vec<Grant>,
    ) -> Outcome {
        let now = self.clock.local(time);
        let Some(Mastership {
            ledger,
            epoch,
            fence,
            ..
        }) = self.serving(now)
        else {
            return Err(Failure::Unavailable { retry_after: None });
        };
        ledger.sweep(now, 64);
        let mut grants = refresh(ledger, now);
        let (epoch, has_election) = (*epoch, *fence < Moment::NEVER);
        // Without an election the horizon is stored before a lease that needs it is sent.
        if !has_election {
            let horizon = &mut self.data_dir.horizon;
            for grant in &mut grants {
                if time >= self.disk_full_until && *horizon < grant.booked_until {
                    *horizon = grant.booked_until.after_seconds(HORIZON_MARGIN);
                }
                *grant = grant.clone().capped_at(*horizon, now);
            }
        }
        if let (Some(rule), Some(mastership)) = (self.without, &self.mastership) {
            for grant in &mut grants {
                let limit = &limits[resource_index(&grant.resource_id)];
                ablate_grant(rule, grant, &mastership.ledger, holder, limit, now);
            }
        }
        Ok(CapacityResponse {
            node: NodeId::new(NODE).expect("the id is valid"),
            epoch: self.sent_epoch(epoch),
            resources: grants.into_iter().map(|it| it.into_response(0)).collect(),
        })
    }
}
