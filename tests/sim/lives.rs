//! What the processes do by themselves: they start, wake, stand for election, want something, take new terms.

use std::sync::Arc;

use doorman_openapi::Moment;

use super::{
    etcd::TERM,
    schedule::Event,
    terms::{self, Terms},
    wire::{Message, Party},
    world::World,
};

impl World {
    pub(super) fn wake_later(&mut self, party: Party) {
        let (wake, known) = match party {
            Party::Client(index) => {
                let client = &mut self.clients[index];
                (client.wake_at(), &mut client.wake)
            }
            Party::Node => match &mut self.node {
                Some(node) => (node.wake_at(), &mut node.wake),
                None => return,
            },
            Party::Server(_) | Party::Etcd => return,
        };
        let wake = wake.max(self.now);
        if *known != wake {
            *known = wake;
            if wake < Moment::NEVER {
                self.at(wake, Event::Wake(party));
            }
        }
    }

    pub(super) fn wake(&mut self, party: Party) {
        match party {
            Party::Client(index) => {
                let client = &mut self.clients[index];
                if client.wake == self.now && client.is_up && client.paused.is_none() {
                    client.wake = Moment::NEVER;
                    let effects = client.tick(self.now);
                    self.follow(index, effects);
                }
            }
            Party::Node => {
                let servers = self.servers.len();
                let Some(node) = self.node.as_mut().filter(|node| node.wake == self.now) else {
                    return;
                };
                node.wake = Moment::NEVER;
                if let Some((seq, request)) = node.tick(servers, self.now) {
                    let (epoch, to) = (node.epoch, Party::Server(node.endpoint));
                    self.send(
                        Party::Node,
                        to,
                        Message::NodeAsk {
                            epoch,
                            seq,
                            request,
                        },
                    );
                }
                self.wake_later(Party::Node);
            }
            Party::Server(_) | Party::Etcd => {}
        }
    }

    pub(super) fn start(&mut self, party: Party) {
        match party {
            Party::Client(index) => {
                let client = &mut self.clients[index];
                if !client.is_up {
                    client.is_up = true;
                    self.note(|| format!("client {index} starts"));
                    for position in 0..self.terms.len() {
                        // Not everybody has to do with everything.
                        if position == 0
                            || self.clients[index].wants[position].is_some()
                            || index % 2 == 0
                        {
                            self.want(index, position);
                        }
                    }
                }
            }
            Party::Server(index) => {
                let server = &mut self.servers[index];
                if std::mem::replace(&mut server.is_up, true) {
                    return;
                }
                let life = server.life;
                if self.etcd.is_some() {
                    self.campaign(index, life);
                } else {
                    self.tally.reigns += 1;
                    server.start_alone(Arc::clone(&self.document), &self.terms, self.now);
                }
                self.note(|| format!("server {index} starts"));
            }
            Party::Node | Party::Etcd => {}
        }
    }

    pub(super) fn campaign(&mut self, index: usize, life: u32) {
        let server = &self.servers[index];
        if server.life != life {
            return;
        }
        if server.paused.is_none() && self.now >= server.stands_back {
            let message = Message::Campaign {
                server: index,
                life: server.life,
                sent: server.clock.at(self.now),
                longest: self.longest,
            };
            self.send(Party::Server(index), Party::Etcd, message);
        }
        self.after(
            TERM / 4.0,
            Event::Campaign {
                server: index,
                life,
            },
        );
    }

    /// Somebody at a client wants some of a resource.
    pub(super) fn want(&mut self, index: usize, position: usize) {
        let wants = if self.chance.u8(..4) == 0 { 3.0 } else { 90.0 } * self.chance.f64();
        let client = &mut self.clients[index];
        if client.is_up && client.paused.is_none() {
            let effects = client.demand(position, wants, self.now);
            self.note(|| format!("client {index} wants {wants} of {position}"));
            self.follow(index, effects);
        }
    }

    pub(super) fn want_of_node(&mut self, position: usize) {
        let wants = (self.chance.u64(1..=4), 120.0 * self.chance.f64());
        if let Some(node) = &mut self.node {
            node.wants[position] = Some(wants);
        }
    }

    /// Puts new terms in force everywhere.
    pub(super) fn reload(&mut self, terms: Vec<Terms>) {
        self.document = terms::document(&terms);
        for (position, (old, new)) in self.terms.iter().zip(&terms).enumerate() {
            if new.capacity < old.capacity {
                self.tally.cuts += 1;
                // A server that crashes meanwhile learns as long, and lets holders keep what they have for a lease more.
                let until = self.now.after_seconds(2.5 * self.longest + 2.0 * TERM);
                self.referee.cut(position, old.capacity, until);
            }
        }
        self.terms = terms;
        for server in &mut self.servers {
            server.reconfigure(&self.document);
        }
        self.note(|| "new terms are in force".to_owned());
    }
}
