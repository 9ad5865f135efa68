//! Messages: how they are sent, and what becomes of them where they arrive.

use std::sync::Arc;

use doorman_openapi::CapacityRequest;
use tower_doorman::lease::{Effect, Failure};

use super::{
    client::Reply,
    schedule::Event,
    wire::{Message, Outcome, Party},
    world::World,
};

impl World {
    pub(super) fn send(&mut self, from: Party, to: Party, message: Message) {
        self.send_after(0.0, from, to, message);
    }

    fn send_after(&mut self, seconds: f64, from: Party, to: Party, message: Message) {
        let [first, second] = self.network.carry(from, to, self.now, &mut self.chance);
        if let Some(delay) = second {
            let message = message.clone();
            self.after(seconds + delay, Event::Arrive { from, to, message });
        }
        if let Some(delay) = first {
            self.after(seconds + delay, Event::Arrive { from, to, message });
        }
    }

    pub(super) fn arrive(&mut self, from: Party, to: Party, message: Message) {
        match to {
            Party::Server(server) => self.arrive_at_server(server, from, message),
            Party::Client(client) => self.arrive_at_client(client, message),
            Party::Node => self.arrive_at_node(message),
            Party::Etcd => self.arrive_at_etcd(from, &message),
        }
    }

    pub(super) fn arrive_at_server(&mut self, index: usize, from: Party, message: Message) {
        let world = self.now;
        let server = &mut self.servers[index];
        if server.is_up && server.paused.is_some() {
            server.inbox.push((from, message));
            return;
        }
        let refused: Outcome = Err(Failure::Unavailable { retry_after: None });
        let answer = match message {
            Message::Ask {
                life,
                seq,
                sent,
                request,
            } => {
                self.tally.requests += 1;
                let outcome = if server.is_up {
                    server.ask(&request, &self.terms, world)
                } else {
                    refused
                };
                self.note(|| {
                    format!(
                        "{from:?} -> server {index}: {}: {}",
                        told(&request),
                        given(&outcome)
                    )
                });
                Message::Answer {
                    life,
                    seq,
                    sent,
                    outcome,
                }
            }
            Message::NodeAsk {
                epoch,
                seq,
                request,
            } => {
                self.tally.requests += 1;
                let outcome = if server.is_up {
                    server.ask_node(&request, &self.terms, world)
                } else {
                    refused
                };
                self.note(|| {
                    let asked: Vec<_> = request
                        .resources
                        .iter()
                        .map(|it| {
                            format!(
                                "{} wants {:?} has {:?} outstanding {}",
                                it.resource_id, it.wants, it.has, it.outstanding
                            )
                        })
                        .collect();
                    format!(
                        "node ({epoch}, {seq}) -> server {index}: {asked:?}: {}",
                        given(&outcome)
                    )
                });
                Message::NodeAnswer {
                    epoch,
                    seq,
                    outcome,
                }
            }
            Message::Release(request) => {
                if server.is_up {
                    server.release(&request, world);
                }
                self.note(|| {
                    format!(
                        "{from:?} -> server {index}: releases {:?} {:?}",
                        request.seq, request.resource_ids
                    )
                });
                return;
            }
            Message::Elected {
                life,
                sent,
                election,
            } => {
                if server.is_up && server.life == life {
                    let before = server.is_master();
                    server.elected(
                        election,
                        sent,
                        Arc::clone(&self.document),
                        &self.terms,
                        world,
                    );
                    let is_new = !before && server.is_master();
                    // Outcomes that overtook each other have made it give up a reign that it has: it cannot take it up again.
                    if election.is_some()
                        && !server.is_master()
                        && let Some(etcd) = &mut self.etcd
                    {
                        etcd.resign((index, life));
                    }
                    self.tally.reigns += u64::from(is_new);
                    self.note(|| format!("server {index} hears of its election: {election:?}"));
                }
                return;
            }
            Message::Answer { .. } | Message::NodeAnswer { .. } | Message::Campaign { .. } => {
                return;
            }
        };
        let stall = self.stall(index);
        self.send_after(stall, Party::Server(index), from, answer);
    }

    fn arrive_at_client(&mut self, index: usize, message: Message) {
        let Message::Answer {
            life,
            seq,
            sent,
            outcome,
        } = message
        else {
            return;
        };
        let client = &mut self.clients[index];
        if !client.is_up || client.life != life {
            return;
        }
        let reply = Reply { seq, sent, outcome };
        if client.paused.is_some() {
            client.inbox.push_back(reply);
        } else {
            self.reply(index, reply);
        }
    }

    pub(super) fn reply(&mut self, index: usize, reply: Reply) {
        self.note(|| {
            format!(
                "client {index} hears {:?}: {}",
                reply.seq,
                given(&reply.outcome)
            )
        });
        self.tally.answers += u64::from(reply.outcome.is_ok());
        let (effects, starved) = self.clients[index].reply(reply, self.now);
        self.starve(starved, &Party::Client(index));
        self.follow(index, effects);
    }

    fn arrive_at_node(&mut self, message: Message) {
        let Message::NodeAnswer {
            epoch,
            seq,
            outcome,
        } = message
        else {
            return;
        };
        self.note(|| format!("node hears ({epoch}, {seq}): {}", given(&outcome)));
        self.tally.answers += u64::from(outcome.is_ok());
        let Some(node) = &mut self.node else { return };
        let servers = self.servers.len();
        let starved = node.answered((epoch, seq), outcome, servers, &mut self.chance, self.now);
        self.starve(starved, &Party::Node);
        self.wake_later(Party::Node);
    }

    fn arrive_at_etcd(&mut self, from: Party, message: &Message) {
        let (
            Message::Campaign {
                server,
                life,
                sent,
                longest,
            },
            Some(etcd),
        ) = (message, &mut self.etcd)
        else {
            return;
        };
        let election = etcd.campaign((*server, *life), *longest, self.now);
        let (life, sent) = (*life, *sent);
        self.send(
            Party::Etcd,
            from,
            Message::Elected {
                life,
                sent,
                election,
            },
        );
    }

    /// Does what a state machine asks for.
    pub(super) fn follow(&mut self, index: usize, effects: Vec<Effect>) {
        let from = Party::Client(index);
        let client = &self.clients[index];
        let (life, sent) = (client.life, client.clock.at(self.now));
        for effect in effects {
            match effect {
                Effect::Send {
                    seq,
                    endpoint,
                    request,
                    ..
                } => {
                    let message = Message::Ask {
                        life,
                        seq,
                        sent,
                        request,
                    };
                    self.send(from, Party::Server(endpoint), message);
                }
                Effect::SendRelease {
                    endpoint, request, ..
                } => {
                    self.send(from, Party::Server(endpoint), Message::Release(request));
                }
                Effect::Changed { .. } | Effect::Warn(_) => {}
            }
        }
        self.wake_later(from);
    }
}

fn told(request: &CapacityRequest) -> String {
    let asked: Vec<_> = request
        .resources
        .iter()
        .map(|it| {
            format!(
                "{} wants {} has {:?}",
                it.resource_id,
                it.wants,
                it.has.map(|held| held.capacity)
            )
        })
        .collect();
    format!("{:?} {}", request.seq, asked.join(", "))
}

fn given(outcome: &Outcome) -> String {
    match outcome {
        Ok(response) => {
            let given: Vec<_> = response
                .resources
                .iter()
                .map(|it| {
                    format!(
                        "{} {} for {:.3} s ({:?})",
                        it.resource_id,
                        it.gets.capacity,
                        it.gets.lease_length.get(),
                        it.reason
                    )
                })
                .collect();
            format!("epoch {}: {}", response.epoch, given.join(", "))
        }
        Err(failure) => format!("{failure:?}"),
    }
}
