//! Delivery of messages, and the responses to them.

use crate::{
    election::{CallId, Event as ElectionEvent, LedgerSource},
    etcd::EtcdCall,
};
use doorman_openapi::{CapacityRequest, ServerCapacityRequest};
use tower_doorman::lease::{Effect, Failure};

use super::Simulation;
use crate::simulation::{
    client::Reply,
    event_queue::Event,
    network::{Candidate, ClientCall, Message, NodeCall, Outcome, Process},
    server::{Action, Call, CallReply},
};

/// Seconds for which a server offers its ledger to the next master.
const HANDOVER_TIME: f64 = 3.0;

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
            (Process::Client(index), Message::Hints { call, hints }) => {
                self.deliver_hints(index, from, call, hints);
            }
            (Process::Node, Message::NodeResponse { call, outcome }) => {
                self.deliver_to_node(call, outcome);
            }
            (
                Process::Etcd,
                Message::EtcdCall {
                    candidate,
                    id,
                    call,
                },
            ) => self.execute_etcd_call(from, candidate, id, &call),
            (Process::Client(_) | Process::Node | Process::Etcd, message) => {
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
        let unavailable = Some(Err(Failure::Unavailable { retry_after: None }));
        match message {
            Message::Request { call, request } => {
                self.stats.requests += 1;
                let reply_to = Call::Client(from, call);
                let outcome = if server.is_up {
                    server.refresh_client(reply_to, &request, &self.limits, self.time)
                } else {
                    unavailable
                };
                self.record(|| {
                    let (request, outcome) =
                        (format_request(&request), format_response(outcome.as_ref()));
                    format!("{from:?} -> server {index}: {request}: {outcome}")
                });
                self.respond(index, reply_to, outcome);
            }
            Message::NodeRequest { call, request } => {
                self.stats.requests += 1;
                let reply_to = Call::Node(call);
                let outcome = if server.is_up {
                    server.refresh_node(reply_to, &request, &self.limits, self.time)
                } else {
                    unavailable
                };
                self.record(|| {
                    let (request, outcome) = (
                        format_node_request(&request),
                        format_response(outcome.as_ref()),
                    );
                    format!("{call:?} -> server {index}: {request}: {outcome}")
                });
                self.respond(index, reply_to, outcome);
            }
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
                client_id,
                after,
            } => {
                if server.is_up
                    && let Some(ticket) = server.open_poll(from, call, &client_id, after, self.time)
                {
                    self.expect_poll_end(index, ticket, call);
                }
            }
            Message::FetchLedger {
                candidate,
                epoch,
                offer,
            } => {
                let ledger = server.take_offer(&offer, self.time).map(Box::new);
                let message = Message::Ledger {
                    candidate,
                    epoch,
                    ledger,
                };
                if server.has_handed_over() {
                    self.shut_down_after(index, 1.0);
                }
                self.send(Process::Server(index), from, message);
            }
            message => self.deliver_to_driver(index, message),
        }
    }

    /// Delivers what the election waits for.
    fn deliver_to_driver(&mut self, index: usize, message: Message) {
        self.record(|| format!("server {index} receives {message:?}"));
        let server = &mut self.servers[index];
        let is_current = |it: Candidate| {
            server.is_up && (it.server, it.incarnation) == (index, server.incarnation)
        };
        match message {
            Message::EtcdReply {
                candidate,
                id,
                reply,
            } if is_current(candidate) => {
                let result = reply.map(CallReply::Etcd);
                server.handle(ElectionEvent::Reply { call: id, result }, self.time);
            }
            Message::WriteBound { candidate, id, due } if is_current(candidate) => {
                server.write_bound(id, due, self.time);
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
            } if is_current(candidate) => {
                server.on_ledger(epoch, ledger.as_deref(), self.time);
            }
            _ => {}
        }
    }

    fn execute_etcd_call(
        &mut self,
        from: Process,
        candidate: Candidate,
        id: CallId,
        call: &EtcdCall,
    ) {
        let Some(etcd) = &mut self.etcd else { return };
        let reply = if self.time < etcd.down_until {
            None
        } else {
            etcd.execute(call, self.time)
        };
        let message = Message::EtcdReply {
            candidate,
            id,
            reply,
        };
        self.send(Process::Etcd, from, message);
    }

    fn respond(&mut self, index: usize, call: Call, outcome: Option<Outcome>) {
        if let Some(outcome) = outcome {
            let (to, message) = call.respond(outcome);
            self.send_response(index, to, message);
        }
    }

    fn send_response(&mut self, index: usize, to: Process, message: Message) {
        let stall = self.stall(index);
        self.send_after(stall, Process::Server(index), to, message);
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
        let from = Process::Server(index);
        for action in server.drive(self.time) {
            match action {
                Action::Call(id, call) => {
                    self.record(|| format!("server {index} calls {id:?} {call:?}"));
                    let message = Message::EtcdCall {
                        candidate,
                        id,
                        call,
                    };
                    self.send(from, Process::Etcd, message);
                }
                Action::WriteBound(id, due) => {
                    let message = Message::WriteBound { candidate, id, due };
                    self.use_disk(index, message);
                }
                Action::FetchLedger { source, epoch } => match source {
                    LedgerSource::DataDir { epoch: last } => {
                        let message = Message::ReadLedger {
                            candidate,
                            epoch,
                            last,
                        };
                        self.use_disk(index, message);
                    }
                    LedgerSource::Peer(offer) => {
                        let Ok(peer) = offer.address.parse() else {
                            continue;
                        };
                        let message = Message::FetchLedger {
                            candidate,
                            epoch,
                            offer,
                        };
                        self.send(from, Process::Server(peer), message);
                    }
                },
                Action::Respond(to, message) => {
                    self.record(|| format!("server {index} responds to {to:?}: {message:?}"));
                    self.send_response(index, to, message);
                }
                Action::Began { inherits } => {
                    self.record(|| format!("server {index} is master, inherits: {inherits}"));
                    self.stats.masterships += 1;
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
        self.stats.responses += u64::from(reply.outcome.is_ok());
        let (effects, lost) = self.clients[index].on_reply(reply, self.time);
        self.check_partial_grants(&lost, Process::Client(index));
        self.apply(index, effects);
    }

    fn deliver_to_node(&mut self, call: NodeCall, outcome: Outcome) {
        self.record(|| format!("node receives {call:?}: {}", format_outcome(&outcome)));
        self.stats.responses += u64::from(outcome.is_ok());
        let Some(node) = &mut self.node else { return };
        let servers = self.servers.len();
        let lost = node.on_response(call, outcome, servers, &mut self.rng, self.time);
        self.check_partial_grants(&lost, Process::Node);
        self.schedule_wake(Process::Node);
    }

    /// Applies the effects of a client's state machine.
    pub(in crate::simulation) fn apply(&mut self, index: usize, effects: Vec<Effect>) {
        let from = Process::Client(index);
        let client = &self.clients[index];
        let (incarnation, sent) = (client.incarnation, client.clock.local(self.time));
        for effect in effects {
            match effect {
                Effect::Send {
                    seq,
                    endpoint,
                    request,
                    ..
                } => {
                    let call = ClientCall {
                        incarnation,
                        seq,
                        sent,
                    };
                    let client = &mut self.clients[index];
                    (client.endpoint, client.newest) = (endpoint, seq);
                    client.requests += 1;
                    let message = Message::Request { call, request };
                    self.send(from, Process::Server(endpoint), message);
                }
                Effect::SendRelease {
                    seq,
                    endpoint,
                    request,
                } => {
                    self.clients[index].newest = seq;
                    self.send(from, Process::Server(endpoint), Message::Release(request));
                }
                Effect::Changed { .. } => self.has_lease_changed = true,
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

fn format_response(outcome: Option<&Outcome>) -> String {
    outcome.map_or_else(|| "waits for the bound".to_owned(), format_outcome)
}

fn format_outcome(outcome: &Outcome) -> String {
    let response = match outcome {
        Ok(response) => response,
        Err(failure) => return format!("{failure:?}"),
    };
    let format = |it: &doorman_openapi::ResourceResponse| {
        let (capacity, length) = (it.gets.capacity, it.gets.lease_length.get());
        format!(
            "{} {capacity} for {length:.3} s ({:?})",
            it.resource_id, it.reason
        )
    };
    let resources: Vec<_> = response.resources.iter().map(format).collect();
    format!("epoch {}: {}", response.epoch, resources.join(", "))
}
