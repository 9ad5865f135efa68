//! Delivery of messages, and the responses to them.

use std::sync::Arc;

use doorman_openapi::{CapacityRequest, Moment, ServerCapacityRequest};
use tower_doorman::lease::{Effect, Failure};

use super::Simulation;
use crate::sim::{
    client::Reply,
    event_queue::Event,
    network::{Candidate, ClientCall, Election, Message, NodeCall, Outcome, Process},
};

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
                Message::Campaign {
                    candidate,
                    sent,
                    longest_lease,
                },
            ) => {
                if let Some(etcd) = &mut self.etcd {
                    let result = Message::CampaignResult {
                        candidate,
                        sent,
                        election: etcd.campaign(candidate, longest_lease, self.time),
                    };
                    self.send(Process::Etcd, from, result);
                }
            }
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
        let unavailable = Err(Failure::Unavailable { retry_after: None });
        let response = match message {
            Message::Request { call, request } => {
                self.stats.requests += 1;
                let outcome = if server.is_up {
                    server.refresh_client(&request, &self.limits, self.time)
                } else {
                    unavailable
                };
                self.record(|| {
                    let (request, outcome) = (format_request(&request), format_outcome(&outcome));
                    format!("{from:?} -> server {index}: {request}: {outcome}")
                });
                Message::Response { call, outcome }
            }
            Message::NodeRequest { call, request } => {
                self.stats.requests += 1;
                let outcome = if server.is_up {
                    server.refresh_node(&request, &self.limits, self.time)
                } else {
                    unavailable
                };
                self.record(|| {
                    let (request, outcome) =
                        (format_node_request(&request), format_outcome(&outcome));
                    format!("{call:?} -> server {index}: {request}: {outcome}")
                });
                Message::NodeResponse { call, outcome }
            }
            Message::Release(request) => {
                if server.is_up {
                    server.release(&request, self.time);
                }
                self.record(|| {
                    let (seq, ids) = (request.seq, &request.resource_ids);
                    format!("{from:?} -> server {index}: releases {seq:?} {ids:?}")
                });
                return;
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
                return;
            }
            Message::CampaignResult {
                candidate,
                sent,
                election,
            } => {
                self.handle_campaign_result(candidate, sent, election);
                return;
            }
            Message::Response { .. }
            | Message::Hints { .. }
            | Message::NodeResponse { .. }
            | Message::Campaign { .. } => {
                unreachable!("{message:?} for server {index}")
            }
        };
        let stall = self.stall(index);
        self.send_after(stall, Process::Server(index), from, response);
    }

    fn handle_campaign_result(
        &mut self,
        candidate: Candidate,
        sent: Moment,
        election: Option<Election>,
    ) {
        let index = candidate.server;
        let server = &mut self.servers[index];
        if !server.is_up || server.incarnation != candidate.incarnation {
            return;
        }
        let was_master = server.is_master();
        let document = Arc::clone(&self.document);
        server.on_campaign_result(election, sent, document, &self.limits, self.time);
        let is_new = !was_master && server.is_master();
        // Reordered results can make a server give up a mastership that etcd still assigns to it.
        // It cannot resume that epoch, so it resigns.
        if election.is_some()
            && !server.is_master()
            && let Some(etcd) = &mut self.etcd
        {
            etcd.resign(candidate);
        }
        self.stats.masterships += u64::from(is_new);
        self.record(|| format!("server {index} campaigned: {election:?}"));
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
    pub(in crate::sim) fn apply(&mut self, index: usize, effects: Vec<Effect>) {
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
                Effect::Changed { .. } | Effect::Warn(_) => {}
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
