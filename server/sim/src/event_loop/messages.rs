//! Delivery of messages, and the responses to them.

use doorman_core::{
    election::CallId, election::Event as ElectionEvent, election::Handover, election::LedgerSource,
    etcd::EtcdCall,
};
use doorman_openapi::{CapacityRequest, Epoch, ResourceResponse, ServerCapacityRequest};
use tower_doorman::lease::{Effect, Failure};

use super::Simulation;
use crate::{
    client::Reply, data_dir::Snapshot, event_queue::Event, network::Candidate, network::ClientCall,
    network::Message, network::NodeCall, network::NodeOutcome, network::Outcome, network::Process,
    network::Transfer, server::Action, server::CallReply, server::Caller, server::Decided,
    server::LeaseRequest,
};

/// Seconds for which a server offers its ledger to the next master.
const HANDOVER_TIME: f64 = 3.0;
/// The most seconds that a transfer takes.
const LONGEST_TRANSFER: f64 = 10.0;

impl Simulation {
    pub(super) fn send(&mut self, from: Process, to: Process, message: Message) {
        self.send_after(0.0, from, to, message);
    }

    fn send_after(&mut self, seconds: f64, from: Process, to: Process, message: Message) {
        let [first, second] = self.network.delays(from, to, self.time, &mut self.rng);
        if let Some(delay) = second {
            let message = message.clone();
            self.after(seconds + delay, Event::Deliver { from, to, message });
        }
        if let Some(delay) = first {
            self.after(seconds + delay, Event::Deliver { from, to, message });
        }
    }

    pub(super) fn deliver(&mut self, from: Process, to: Process, message: Message) {
        match (to, message) {
            (Process::Server(index), message) => {
                self.deliver_to_server(index, from, message);
                self.drive(index);
                self.answer_polls(index);
            }
            (Process::Client(index), Message::Response { call, outcome }) => {
                self.deliver_to_client(index, Reply { call, outcome });
            }
            (Process::Client(index), Message::PollEnd { call, end }) => {
                self.end_client_poll(index, from, call, end);
            }
            (
                Process::Etcd(node),
                Message::EtcdCall {
                    candidate,
                    id,
                    call,
                },
            ) => self.execute_etcd_call(node, from, candidate, id, &call),
            (Process::Client(_) | Process::Etcd(_), message) => {
                unreachable!("{message:?} for {to:?}")
            }
        }
    }

    pub(super) fn deliver_to_server(&mut self, index: usize, from: Process, message: Message) {
        let server = &mut self.servers[index];
        if server.is_up && server.paused_until.is_some() {
            server.inbox.push((from, message));
            return;
        }
        match message {
            Message::Request { call, request } => self.handle_client(index, from, call, request),
            Message::NodeRequest { call, request } => {
                let call = Caller::Node(from, call);
                self.handle_request(index, from, call, &LeaseRequest::Node(request));
            }
            Message::NodeResponse { call, outcome } => {
                self.deliver_node_response(index, call, outcome);
            }
            Message::NodeRelease(request) => {
                if server.is_up {
                    server.release_node(&request, self.time);
                }
                self.record(|| format!("{from:?} -> server {index}: {request:?}"));
            }
            Message::PollEnd { call, end } => self.end_server_poll(index, from, call, end),
            Message::ClosePoll { call } => server.close_poll(from, call, self.time),
            Message::Release(request) => {
                if server.is_up {
                    server.release(&request, self.time);
                }
                self.record(|| {
                    let (seq, ids) = (request.seq, &request.resource_ids);
                    format!("{from:?} -> server {index}: releases {seq:?} {ids:?}")
                });
            }
            Message::Poll {
                call,
                poller,
                after,
            } => match server.open_poll(from, call, &poller, after, self.time) {
                Ok(ticket) => self.expect_poll_end(index, ticket, call),
                Err(end) => self.respond_to_poll(index, from, call, end),
            },
            Message::FetchLedger {
                candidate,
                epoch,
                offer,
            } => {
                let ledger = self.hand_over(index, &offer);
                let message = Message::Ledger {
                    candidate,
                    epoch,
                    ledger,
                };
                self.send(Process::Server(index), from, message);
            }
            message => self.deliver_to_driver(index, message),
        }
    }

    fn deliver_node_response(&mut self, index: usize, call: NodeCall, outcome: NodeOutcome) {
        self.stats.responses += u64::from(outcome.is_ok());
        self.record(|| {
            let (seq, outcome) = (call.seq, format_node_outcome(&outcome));
            format!("server {index} receives {seq:?}: {outcome}")
        });
        let server = &mut self.servers[index];
        if server.is_up {
            server.on_parent_answer(call, outcome, self.time);
        }
    }

    fn handle_client(
        &mut self,
        index: usize,
        from: Process,
        call: ClientCall,
        request: CapacityRequest,
    ) {
        if call.lies {
            self.allow_lie(index, &request);
        }
        let is_lie_proven = self.proves_lie(index, &request, call.seq);
        let call = Caller::Client(from, call);
        self.handle_request(index, from, call, &LeaseRequest::Client(request));
        if is_lie_proven {
            self.check_lie_is_counted(index);
        }
    }

    /// The ledger that a server offers, to the next master. The server shuts down after the
    /// transfer.
    fn hand_over(&mut self, index: usize, offer: &Handover) -> Option<Box<Transfer>> {
        let server = &mut self.servers[index];
        let taken = server.take_offer(offer, self.time);
        let has_handed_over = server.has_handed_over();
        let ledger = taken.map(|it| Box::new(self.transfer(it)));
        let seconds = ledger.as_ref().map_or(0.0, |it| it.seconds);
        if has_handed_over {
            self.shut_down_after(index, seconds + 1.0);
        }
        ledger
    }

    fn handle_request(
        &mut self,
        index: usize,
        from: Process,
        call: Caller,
        request: &LeaseRequest,
    ) {
        self.stats.requests += 1;
        let server = &mut self.servers[index];
        let decided = if server.is_up {
            server.refresh(call, request, &self.limits, self.time)
        } else {
            Some(Err(Failure::Unavailable { retry_after: None }))
        };
        self.record(|| {
            let (request, decided) = (format_lease_request(request), format_decided(&decided));
            format!("{from:?} -> server {index}: {request}: {decided}")
        });
        if let Some(decided) = decided {
            let (to, message) = call.respond(decided);
            self.send_response(index, to, message);
        }
    }

    /// A ledger that is handed over. While there are faults, this takes time, or fails in the end.
    fn transfer(&mut self, ledger: Snapshot) -> Transfer {
        if !self.network.is_hostile() {
            return Transfer {
                ledger: Some(Box::new(ledger)),
                seconds: 0.0,
            };
        }
        let breaks = self.rng.u8(..8) == 0;
        let seconds = LONGEST_TRANSFER * self.rng.f64() * self.rng.f64();
        let ledger = Some(Box::new(ledger)).filter(|_| !breaks);
        Transfer { ledger, seconds }
    }

    /// Delivers what the election waits for.
    fn deliver_to_driver(&mut self, index: usize, message: Message) {
        self.record(|| format!("server {index} receives {message:?}"));
        let server = &mut self.servers[index];
        let (is_up, incarnation) = (server.is_up, server.incarnation);
        let is_current =
            |it: Candidate| is_up && (it.server, it.incarnation) == (index, incarnation);
        match message {
            Message::EtcdReply {
                candidate,
                id,
                reply,
            } if is_current(candidate) => {
                let etcd = self.nodes[server.membership.index].etcd.as_mut();
                if let (Some(etcd), Some(answer)) = (etcd, &reply) {
                    etcd.record_answer(candidate, answer.header);
                }
                let result = reply.map(CallReply::Etcd);
                server.handle(ElectionEvent::Reply { call: id, result }, self.time);
            }
            Message::WriteDisk {
                candidate,
                id,
                call,
            } if is_current(candidate) => {
                server.write_disk(id, call, self.time);
            }
            Message::ReadLedger {
                candidate,
                epoch,
                last,
            } if is_current(candidate) => {
                let ledger = server.stored_ledger(last);
                server.on_ledger(epoch, ledger.as_ref(), self.time);
            }
            Message::Ledger {
                candidate,
                epoch,
                ledger,
            } if is_current(candidate) && server.begin_transfer(epoch, self.time) => match ledger {
                Some(transfer) => {
                    let Transfer { ledger, seconds } = *transfer;
                    let message = Message::LedgerEnd {
                        candidate,
                        epoch,
                        ledger,
                    };
                    let server = index;
                    self.after(seconds, Event::Local { server, message });
                }
                None => server.on_ledger(epoch, None, self.time),
            },
            Message::LedgerEnd {
                candidate,
                epoch,
                ledger,
            } if is_current(candidate) => {
                server.on_ledger(epoch, ledger.as_deref(), self.time);
            }
            _ => {}
        }
    }

    fn execute_etcd_call(
        &mut self,
        node: usize,
        from: Process,
        candidate: Candidate,
        id: CallId,
        call: &EtcdCall,
    ) {
        let Some(etcd) = &mut self.nodes[node].etcd else {
            return;
        };
        let reply = if self.time < etcd.down_until {
            None
        } else {
            etcd.execute(candidate, call, self.time)
        };
        let message = Message::EtcdReply {
            candidate,
            id,
            reply,
        };
        self.send(Process::Etcd(node), from, message);
    }

    fn send_response(&mut self, index: usize, to: Process, message: Message) {
        let stall = self.stall(index);
        self.send_after(stall, Process::Server(index), to, message);
    }

    fn fetch_ledger(&mut self, candidate: Candidate, source: LedgerSource, epoch: Epoch) {
        let index = candidate.server;
        match source {
            LedgerSource::DataDir { epoch: last } => {
                let message = Message::ReadLedger {
                    candidate,
                    epoch,
                    last,
                };
                self.use_disk(index, message);
            }
            LedgerSource::Peer(offer) => {
                if let Ok(peer) = offer.address.parse() {
                    let message = Message::FetchLedger {
                        candidate,
                        epoch,
                        offer,
                    };
                    self.send(Process::Server(index), Process::Server(peer), message);
                }
            }
        }
    }

    /// Lets a server handle what is due, and executes the effects.
    pub(super) fn drive(&mut self, index: usize) {
        let server = &mut self.servers[index];
        if !server.is_running() {
            return;
        }
        let candidate = Candidate {
            server: index,
            incarnation: server.incarnation,
        };
        let (from, etcd) = (Process::Server(index), self.etcd_of(index));
        let server = &mut self.servers[index];
        for action in server.drive(&self.limits, self.time) {
            match action {
                Action::Call(id, call) => {
                    self.record(|| format!("server {index} calls {id:?} {call:?}"));
                    let message = Message::EtcdCall {
                        candidate,
                        id,
                        call,
                    };
                    self.send(from, etcd, message);
                }
                Action::WriteDisk(id, call) => {
                    let message = Message::WriteDisk {
                        candidate,
                        id,
                        call,
                    };
                    self.use_disk(index, message);
                }
                Action::FetchLedger { source, epoch } => {
                    self.fetch_ledger(candidate, source, epoch);
                }
                Action::Respond(to, message) => {
                    self.record(|| format!("server {index} responds to {to:?}: {message:?}"));
                    self.send_response(index, to, message);
                }
                Action::Ask(to, message) => {
                    self.record(|| format!("server {index} asks {to:?}: {message:?}"));
                    self.send(from, to, message);
                }
                Action::Poll(to, message) => self.send_poll(from, to, &message),
                Action::Began { inherits } => {
                    self.record(|| format!("server {index} is master, inherits: {inherits}"));
                    self.stats.masterships += 1;
                    let level = self.servers[index].membership.level;
                    self.stats.node_masterships += u64::from(level > 0);
                    self.stats.handovers += u64::from(inherits);
                }
                Action::Ended(reason) => {
                    self.record(|| format!("the reign of server {index} ends: {reason:?}"));
                }
                Action::Resigned { offered } => {
                    self.record(|| format!("server {index} has resigned, offers: {offered}"));
                    self.shut_down_after(index, if offered { HANDOVER_TIME } else { 0.0 });
                }
            }
        }
        self.schedule_wake(from);
    }

    /// Calls the disk of a server, which is slow while there are faults.
    fn use_disk(&mut self, server: usize, message: Message) {
        let delay = if self.network.is_hostile() {
            0.5 * self.rng.f64() * self.rng.f64()
        } else {
            0.0
        };
        self.after(delay, Event::Local { server, message });
    }

    fn deliver_to_client(&mut self, index: usize, reply: Reply) {
        let client = &mut self.clients[index];
        if !client.is_up || client.incarnation != reply.call.incarnation {
            return;
        }
        if client.paused_until.is_some() {
            client.inbox.push_back(reply);
        } else {
            self.handle_reply(index, reply);
        }
    }

    pub(super) fn handle_reply(&mut self, index: usize, reply: Reply) {
        self.record(|| {
            let (seq, outcome) = (reply.call.seq, format_outcome(&reply.outcome));
            format!("client {index} receives {seq:?}: {outcome}")
        });
        if let Ok(response) = &reply.outcome {
            self.stats.responses += 1;
            self.heard_epochs.insert(index, response.epoch);
        }
        let (effects, lost) = self.clients[index].on_reply(reply, self.time);
        self.check_partial_grants(&lost, index);
        self.apply(index, effects);
        self.begin_operations(index);
    }

    /// Applies the effects of a client's state machine.
    pub(crate) fn apply(&mut self, index: usize, effects: Vec<Effect>) {
        let from = Process::Client(index);
        let client = &self.clients[index];
        let (incarnation, sent) = (client.incarnation, client.clock.local(self.time));
        for effect in effects {
            match effect {
                Effect::Send {
                    seq,
                    endpoint,
                    mut request,
                    ..
                } => {
                    let client = &mut self.clients[index];
                    (client.endpoint, client.newest) = (endpoint, seq);
                    client.requests += 1;
                    client.on_send(seq, &request, self.time);
                    let server = client.server();
                    if client.states_no_units {
                        Self::omit_units(&mut request);
                    }
                    let lies = client.is_liar && self.lie(index, &mut request);
                    self.invent_effective(index, &mut request);
                    let call = ClientCall {
                        incarnation,
                        seq,
                        sent,
                        lies,
                    };
                    let to = Process::Server(server);
                    let message = Message::Request { call, request };
                    self.send(from, to, message);
                }
                Effect::SendRelease {
                    seq,
                    endpoint,
                    request,
                } => {
                    let client = &mut self.clients[index];
                    (client.newest, client.released) = (seq, seq);
                    let to = Process::Server(client.servers.start + endpoint);
                    self.send(from, to, Message::Release(request));
                }
                Effect::OpenPoll { endpoint, after } => {
                    let (to, message) = self.clients[index].poll_message(endpoint, after);
                    self.send_poll(from, to, &message);
                }
                Effect::ClosePoll => self.close_client_poll(index),
                Effect::Changed { status, .. } => {
                    self.has_lease_changed = true;
                    self.lapses += u64::from(status.lease.is_none());
                }
                Effect::Warn(_) => {}
            }
        }
        self.schedule_wake(from);
    }
}

fn format_request(request: &CapacityRequest) -> String {
    let format = |it: &doorman_openapi::ResourceRequest| {
        let has = it.has.map(|held| held.capacity);
        format!("{} wants {} has {has:?}", it.resource_id, it.wants)
    };
    let resources: Vec<_> = request.resources.iter().map(format).collect();
    let echo = request.heard_epoch;
    format!("{:?} heard {echo:?} {}", request.seq, resources.join(", "))
}

fn format_node_request(request: &ServerCapacityRequest) -> String {
    let format = |it: &doorman_openapi::ServerResourceRequest| {
        format!(
            "{} wants {:?} has {:?} outstanding {}",
            it.resource_id, it.wants, it.has, it.outstanding
        )
    };
    let resources: Vec<_> = request.resources.iter().map(format).collect();
    format!("heard {:?} {}", request.heard_epoch, resources.join(", "))
}

fn format_lease_request(request: &LeaseRequest) -> String {
    match request {
        LeaseRequest::Client(request) => format_request(request),
        LeaseRequest::Node(request) => format_node_request(request),
    }
}

fn format_decided(decided: &Option<Decided>) -> String {
    let grants = match decided {
        None => return "waits".to_owned(),
        Some(Err(failure)) => return format!("{failure:?}"),
        Some(Ok(granted)) => &granted.grants,
    };
    let grants = grants.iter().map(|it| {
        let (capacity, length) = (it.capacity, it.lease_length.get());
        format!(
            "{} {capacity} for {length:.3} s ({:?})",
            it.resource_id, it.reason
        )
    });
    let grants: Vec<_> = grants.collect();
    grants.join(", ")
}

fn format_outcome(outcome: &Outcome) -> String {
    match outcome {
        Ok(response) => format_resources(response.epoch, response.resources.iter()),
        Err(failure) => format!("{failure:?}"),
    }
}

fn format_node_outcome(outcome: &NodeOutcome) -> String {
    match outcome {
        Ok(response) => {
            let resources = response.resources.iter().map(|it| &it.answer);
            format_resources(response.epoch, resources)
        }
        Err(failure) => format!("{failure:?}"),
    }
}

fn format_resources<'a>(
    epoch: Epoch,
    resources: impl Iterator<Item = &'a ResourceResponse>,
) -> String {
    let format = |it: &ResourceResponse| {
        let (capacity, length) = (it.gets.capacity, it.gets.lease_length.get());
        format!(
            "{} {capacity} for {length:.3} s ({:?})",
            it.resource_id, it.reason
        )
    };
    let resources: Vec<_> = resources.map(format).collect();
    format!("epoch {epoch}: {}", resources.join(", "))
}
