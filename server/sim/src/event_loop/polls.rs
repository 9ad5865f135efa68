//! Polls for hints, and hints that are lost, late, doubled or invented.

use doorman_core::ledger::PollTicket;
use doorman_openapi::{Hint, HintsResponse, Seq};
use fastrand::Rng;
use tower_doorman::lease::Event as HolderEvent;

use super::Simulation;
use crate::{
    event_queue::Event, limits::resource_id, network::Message, network::PollCall, network::Process,
    scenario::PollMode,
};
use doorman_core::ledger::HolderId;

/// Seconds after which a client gives up a poll, at least and at most.
const POLL_TIMEOUT: (f64, f64) = (5.0, 30.0);

/// Seconds after which a server ends a poll.
const WAIT: f64 = 25.0;

/// Seconds between two storms of invented hints.
const STORM_INTERVAL: f64 = 20.0;

/// Invented hints of a storm, in one second.
const STORM_HINTS: usize = 100;

/// Polls of a run. Another source of randomness than that of the faults, so that runs without polls
/// do not depend on this.
pub(super) struct Polls {
    mode: PollMode,
    pub(super) rng: Rng,
}

impl Polls {
    pub(super) fn new(mode: PollMode, seed: u64) -> Self {
        Self {
            mode,
            rng: Rng::with_seed(!seed),
        }
    }

    pub(super) fn of_run(seed: u64) -> Self {
        let mode = match seed % 8 {
            1 => PollMode::On,
            5 => PollMode::Lost,
            3 | 7 => PollMode::Mad,
            _ => PollMode::Off,
        };
        Self::new(mode, seed)
    }

    pub(super) fn are_on(&self) -> bool {
        self.mode != PollMode::Off
    }
}

impl Simulation {
    pub(super) fn begin_polls(&mut self) {
        for client in 0..self.clients.len() {
            self.after(1.0, Event::Poll { client, number: 0 });
            if self.polls.mode == PollMode::Mad {
                self.after(STORM_INTERVAL, Event::InventHints { client, left: 0 });
            }
        }
        self.begin_parent_polls();
    }

    pub(super) fn begin_parent_polls(&mut self) {
        for server in 0..self.servers.len() {
            if self.servers[server].membership.parent.is_some() {
                self.after(1.0, Event::PollParent { server, number: 0 });
            }
        }
    }

    /// Polls the parent for a server, unless a poll after this number is open.
    pub(super) fn poll_parent(&mut self, index: usize, number: u64) {
        let server = &mut self.servers[index];
        if !self.polls.are_on() || server.poll != number {
            return;
        }
        server.poll += 1;
        let number = server.poll;
        let poll = if server.is_running() {
            server.poll_parent()
        } else {
            None
        };
        let seconds = match poll {
            Some((to, message)) => {
                self.send_hints(Process::Server(index), to, &message);
                self.poll_timeout()
            }
            None => 1.0,
        };
        let server = index;
        self.after(seconds, Event::PollParent { server, number });
    }

    fn poll_timeout(&mut self) -> f64 {
        let (shortest, longest) = POLL_TIMEOUT;
        shortest + (longest - shortest) * self.polls.rng.f64()
    }

    /// Delivers hints of the parent to the master of a node.
    pub(super) fn deliver_parent_hints(
        &mut self,
        index: usize,
        from: Process,
        call: PollCall,
        hints: HintsResponse,
    ) {
        let server = &mut self.servers[index];
        if let Process::Server(from) = from
            && server.is_up
            && server.incarnation == call.incarnation
        {
            server.on_parent_hints(from, hints, self.time);
            self.poll_parent(index, call.number);
        }
    }

    /// Polls again, unless a later poll is open.
    pub(super) fn poll(&mut self, client: usize, number: u64) {
        let process = &mut self.clients[client];
        if !self.polls.are_on() || process.poll != number {
            return;
        }
        process.poll += 1;
        let seconds = self.poll_timeout();
        let process = &self.clients[client];
        let number = process.poll;
        if process.is_running() {
            let call = PollCall {
                incarnation: process.incarnation,
                number,
            };
            let message = Message::Poll {
                call,
                poller: HolderId::Client(process.client_id()),
                after: process.heard_batch,
            };
            let to = Process::Server(process.server());
            self.send_hints(Process::Client(client), to, &message);
        }
        self.after(seconds, Event::Poll { client, number });
    }

    /// Answers the polls of a server that are due, and schedules the next ones.
    pub(super) fn answer_polls(&mut self, index: usize) {
        let server = &mut self.servers[index];
        if !self.polls.are_on() || !server.is_running() {
            return;
        }
        let (answers, next) = server.take_hints(self.time);
        for (to, call, hints) in answers {
            self.stats.hints += hints.refresh.len() as u64;
            self.check_hints(index, to, call, &hints);
            self.send_hints(Process::Server(index), to, &Message::Hints { call, hints });
        }
        let server = &mut self.servers[index];
        if let Some(next) = next.map(|next| next.max(self.time))
            && server
                .answers_at
                .is_none_or(|at| at <= self.time || next < at)
        {
            server.answers_at = Some(next);
            // The ledger's clock may still be a moment before it.
            self.events
                .push(next.after_seconds(1e-6), Event::AnswerPolls(index));
        }
    }

    pub(super) fn expect_poll_end(&mut self, server: usize, ticket: PollTicket, call: PollCall) {
        self.after(
            WAIT,
            Event::EndPoll {
                server,
                ticket,
                call,
            },
        );
    }

    /// Ends a poll whose wait is over, if it is still open.
    pub(super) fn end_poll(&mut self, index: usize, ticket: PollTicket, call: PollCall) {
        let server = &mut self.servers[index];
        if server.is_running()
            && let Some((to, hints)) = server.end_poll(ticket, call, self.time)
        {
            self.send_hints(Process::Server(index), to, &Message::Hints { call, hints });
        }
        self.answer_polls(index);
    }

    pub(super) fn deliver_hints(
        &mut self,
        client: usize,
        from: Process,
        call: PollCall,
        hints: HintsResponse,
    ) {
        let process = &mut self.clients[client];
        if !process.is_running() || process.incarnation != call.incarnation {
            return;
        }
        let Process::Server(from) = from else {
            return;
        };
        let endpoint = from - process.servers.start;
        process.heard_batch = hints.after;
        self.handle_hints(client, endpoint, hints);
        self.poll(client, call.number);
    }

    fn handle_hints(&mut self, client: usize, endpoint: usize, hints: HintsResponse) {
        let event = HolderEvent::Hinted { endpoint, hints };
        let effects = self.clients[client].handle(event, self.time);
        self.apply(client, effects);
    }

    /// One hint of a storm.
    pub(crate) fn invent_hints(&mut self, client: usize, left: usize) {
        let left = if left == 0 { STORM_HINTS } else { left - 1 };
        let process = &self.clients[client];
        let endpoint = process.endpoint;
        if process.is_running()
            && let Some((node, epoch)) = self.servers[process.server()].identity()
        {
            let rng = &mut self.polls.rng;
            let hints = HintsResponse {
                node,
                epoch,
                after: rng.u64(..1000),
                refresh: vec![Hint {
                    resource_id: resource_id(rng.usize(..2)),
                    seq: rng
                        .bool()
                        .then(|| Seq::new(rng.u64(..1000)).expect("small")),
                }],
                all: rng.u8(..10) == 0,
                rules: rng.bool(),
                leaving: rng.u8(..10) == 0,
            };
            self.handle_hints(client, endpoint, hints);
        }
        let seconds = if left == 0 {
            STORM_INTERVAL
        } else {
            1.0 / STORM_HINTS as f64
        };
        self.after(seconds, Event::InventHints { client, left });
    }

    fn send_hints(&mut self, from: Process, to: Process, message: &Message) {
        if self.polls.mode == PollMode::Lost && matches!(message, Message::Hints { .. }) {
            return;
        }
        let copies = self
            .network
            .delays(from, to, self.time, &mut self.polls.rng);
        for delay in copies.into_iter().flatten() {
            let message = message.clone();
            self.after(delay, Event::Deliver { from, to, message });
        }
    }
}
