//! What befalls the processes, the network between them, and the documents.

use super::{
    etcd::TERM,
    schedule::Event,
    terms::{Kind, Terms},
    wire::Party,
    world::World,
};

impl World {
    /// Something goes wrong, or at least changes.
    pub(super) fn mishap(&mut self) {
        let client = self.chance.usize(..self.clients.len());
        let server = self.chance.usize(..self.servers.len());
        match self.chance.u8(..20) {
            0 => self.crash_server(server),
            1 => self.stop_server(server),
            2..4 => self.pause_server(server),
            4..6 => self.part_from_etcd(server),
            6..9 => self.part_client(client),
            9..11 => self.pause_client(client),
            11 => self.crash_client(client),
            12 => self.stop_client(client),
            13..15 => self.forget_and_want(client),
            15 => self.fill_disk(server),
            16 => self.fail_over_node(),
            17..19 => self.change_terms(),
            _ => self.cut_or_raise(),
        }
    }

    pub(super) fn change_a_demand(&mut self) {
        let client = self.chance.usize(..self.clients.len());
        let position = self.chance.usize(..self.terms.len());
        self.want(client, position);
        if self.chance.u8(..4) == 0 {
            self.want_of_node(position);
        }
    }

    fn crash_server(&mut self, index: usize) {
        if self.servers[index].is_up {
            self.note(|| format!("server {index} crashes"));
            self.servers[index].crash();
            let after = 8.0 * self.chance.f64();
            self.after(after, Event::Start(Party::Server(index)));
        }
    }

    fn stop_server(&mut self, index: usize) {
        let server = &mut self.servers[index];
        if !server.is_up || server.paused.is_some() {
            return;
        }
        if let Some(etcd) = &mut self.etcd {
            server.resign();
            etcd.resign((index, server.life));
            server.stands_back = self.now.after_seconds(TERM);
        } else {
            server.stop(self.now);
            let after = 4.0 * self.chance.f64();
            self.after(after, Event::Start(Party::Server(index)));
        }
        self.note(|| format!("server {index} stops in good order"));
    }

    fn pause_server(&mut self, index: usize) {
        let seconds = 20.0 * self.chance.f64();
        let until = self.now.after_seconds(seconds);
        let server = &mut self.servers[index];
        if server.is_up && server.paused.is_none() {
            server.paused = Some(until);
            self.note(|| format!("server {index} is paused for {seconds} s"));
            self.after(seconds, Event::Resume(Party::Server(index)));
        }
    }

    /// Sometimes a server is paused between the sampling of the time of a request and its answer; for so many seconds.
    pub(super) fn stall(&mut self, index: usize) -> f64 {
        if self.network.calm || self.chance.u8(..=u8::MAX) > 0 || !self.servers[index].is_up {
            return 0.0;
        }
        self.pause_server(index);
        let until = self.servers[index].paused;
        until.map_or(0.0, |until| until.seconds_since(self.now))
    }

    /// The server cannot renew its election, and its clients do not notice.
    fn part_from_etcd(&mut self, index: usize) {
        let until = self.now.after_seconds(6.0 + 50.0 * self.chance.f64());
        self.note(|| format!("server {index} is cut off from etcd"));
        self.network
            .cut(Party::Server(index), Some(Party::Etcd), until);
        self.network
            .cut(Party::Etcd, Some(Party::Server(index)), until);
    }

    /// A client cannot reach one server or any, or hears nothing.
    fn part_client(&mut self, index: usize) {
        let until = self.now.after_seconds(2.0 + 60.0 * self.chance.f64());
        let client = Party::Client(index);
        let server = Party::Server(self.chance.usize(..self.servers.len()));
        self.note(|| format!("client {index} is cut off"));
        match self.chance.u8(..4) {
            0 => self.network.cut(client, None, until),
            1 => self.network.cut(server, Some(client), until),
            _ => self.network.cut(client, Some(server), until),
        }
    }

    fn pause_client(&mut self, index: usize) {
        let seconds = 40.0 * self.chance.f64();
        let until = self.now.after_seconds(seconds);
        let client = &mut self.clients[index];
        if client.is_up && client.paused.is_none() {
            client.paused = Some(until);
            self.note(|| format!("client {index} is paused for {seconds} s"));
            self.after(seconds, Event::Resume(Party::Client(index)));
        }
    }

    /// A pause is over: what came meanwhile is taken in, before or after the party notices what time it is.
    pub(super) fn resume(&mut self, party: Party) {
        match party {
            Party::Client(index) => {
                let client = &mut self.clients[index];
                if client.paused.take_if(|until| *until <= self.now).is_none() {
                    return;
                }
                self.note(|| format!("client {index} goes on"));
                let notices_first = self.chance.bool();
                if notices_first {
                    self.notice_the_time(index);
                }
                while let Some(reply) = self.clients[index].inbox.pop_front() {
                    self.reply(index, reply);
                }
                self.notice_the_time(index);
            }
            Party::Server(index) => {
                let server = &mut self.servers[index];
                if server.paused.take_if(|until| *until <= self.now).is_none() {
                    return;
                }
                let waiting = std::mem::take(&mut server.inbox);
                self.note(|| format!("server {index} goes on"));
                for (from, message) in waiting {
                    self.arrive_at_server(index, from, message);
                }
            }
            Party::Node | Party::Etcd => {}
        }
    }

    fn notice_the_time(&mut self, index: usize) {
        let effects = self.clients[index].tick(self.now);
        self.follow(index, effects);
    }

    fn crash_client(&mut self, index: usize) {
        if self.clients[index].is_up {
            self.note(|| format!("client {index} crashes"));
            self.clients[index].die();
            let after = 10.0 * self.chance.f64();
            self.after(after, Event::Start(Party::Client(index)));
        }
    }

    fn stop_client(&mut self, index: usize) {
        let client = &mut self.clients[index];
        if client.is_up && client.paused.is_none() {
            let effects = client.stop(self.now);
            self.note(|| format!("client {index} stops"));
            self.follow(index, effects);
            self.clients[index].die();
            let after = 10.0 * self.chance.f64();
            self.after(after, Event::Start(Party::Client(index)));
        }
    }

    /// A resource is given back, and wanted again not much later.
    fn forget_and_want(&mut self, index: usize) {
        let position = self.chance.usize(..self.terms.len());
        let client = &mut self.clients[index];
        if client.is_up && client.paused.is_none() {
            let mut effects = client.forget(position, self.now);
            effects.extend(client.tick(self.now));
            self.note(|| format!("client {index} forgets {position}"));
            self.follow(index, effects);
            if self.chance.bool() {
                self.want(index, position);
            }
        }
    }

    fn fill_disk(&mut self, index: usize) {
        self.note(|| format!("the disk of server {index} is full"));
        let until = self.now.after_seconds(60.0 * self.chance.f64());
        self.servers[index].disk_full = until;
    }

    fn fail_over_node(&mut self) {
        if let Some(node) = &mut self.node {
            node.fail_over(self.now);
            self.note(|| "the node has a new master".to_owned());
            self.wake_later(Party::Node);
        }
    }

    /// Leases become shorter or longer, or are divided otherwise.
    fn change_terms(&mut self) {
        let mut terms = self.terms.clone();
        for terms in &mut terms {
            let part = [0.25, 0.5, 1.0][self.chance.usize(..3)];
            let lease = (self.longest * part).max(5.0);
            *terms = Terms {
                kind: if self.chance.bool() {
                    Kind::Fair
                } else {
                    Kind::Proportional
                },
                lease,
                refresh: (lease / 5.0).max(1.5),
                minimum_refresh: terms.minimum_refresh.min(1.0),
                ..*terms
            };
        }
        self.reload(terms);
    }

    fn cut_or_raise(&mut self) {
        let mut terms = self.terms.clone();
        let position = self.chance.usize(..terms.len());
        let least = if self.has_cuts {
            5.0
        } else {
            terms[position].capacity
        };
        terms[position].capacity = least + (200.0 - least).max(0.0) * self.chance.f64();
        self.reload(terms);
    }

    /// From now on nothing goes wrong, and what has gone wrong is mended.
    pub(super) fn calm_down(&mut self) {
        self.note(|| "from now on nothing goes wrong".to_owned());
        self.network.calm_down();
        self.schedule.lose_messages();
        for index in 0..self.servers.len() {
            self.servers[index].disk_full = self.now;
            if let Some(paused) = &mut self.servers[index].paused {
                *paused = self.now;
            }
            self.resume(Party::Server(index));
            if !self.servers[index].is_up {
                self.after(0.0, Event::Start(Party::Server(index)));
            }
        }
        for index in 0..self.clients.len() {
            if let Some(paused) = &mut self.clients[index].paused {
                *paused = self.now;
            }
            self.resume(Party::Client(index));
            self.after(0.0, Event::Start(Party::Client(index)));
        }
        let rest = 1.8 * self.longest + 2.0 * TERM;
        self.after(rest, Event::Settle);
    }
}
