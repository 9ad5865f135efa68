//! Polls for hints, and hints that are lost, late, doubled or invented.

use doorman_core::ledger::PollTicket;
use doorman_openapi::{Hint, HintsResponse, Seq};
use fastrand::Rng;
use tower_doorman::lease::{Event as HolderEvent, Failure, GRACE, WAIT};

use super::Simulation;
use crate::{
    client::Client,
    event_queue::Event,
    limits::resource_id,
    network::{Message, PollCall, PollEnd, Process},
    scenario::PollMode,
};

/// Seconds after which a process that pauses is looked at again.
const PAUSE: f64 = 1.0;

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
    /// Lets clients and servers poll. None has started yet.
    pub(super) fn begin_polls(&mut self) {
        if !self.polls.are_on() {
            return;
        }
        self.clients.iter_mut().for_each(Client::enable_polls);
        for server in &mut self.servers {
            server.polls_parent = true;
        }
        if self.polls.mode == PollMode::Mad {
            for client in 0..self.clients.len() {
                self.after(STORM_INTERVAL, Event::InventHints { client, left: 0 });
            }
        }
    }

    /// Closes the poll of a client.
    pub(super) fn close_client_poll(&mut self, index: usize) {
        if let Some((server, call)) = self.clients[index].close_poll() {
            let (from, to) = (Process::Client(index), Process::Server(server));
            self.send_hints(from, to, &Message::ClosePoll { call });
        }
    }

    /// Sends a message about a poll. One that opens it is given up some time later.
    pub(super) fn send_poll(&mut self, from: Process, to: Process, message: &Message) {
        self.send_hints(from, to, message);
        if let (Message::Poll { call, .. }, Process::Server(server)) = (message, to) {
            let timeout = Event::PollTimeout {
                process: from,
                server,
                call: *call,
            };
            self.after((WAIT + GRACE).as_secs_f64(), timeout);
        }
    }

    /// Gives up a poll, unless it has ended. A process that pauses does so afterwards.
    pub(super) fn time_out_poll(&mut self, process: Process, server: usize, call: PollCall) {
        let (polling, is_paused) = match process {
            Process::Client(index) => {
                let client = &self.clients[index];
                (client.polling, client.paused_until.is_some())
            }
            Process::Server(index) => {
                let server = &self.servers[index];
                (server.polling, server.paused_until.is_some())
            }
            Process::Etcd(_) => return,
        };
        if !polling.is_open(call.number) {
            return;
        }
        if is_paused {
            let timeout = Event::PollTimeout {
                process,
                server,
                call,
            };
            return self.after(PAUSE, timeout);
        }
        let (from, end) = (Process::Server(server), PollEnd::Failed);
        match process {
            Process::Client(index) => self.end_client_poll(index, from, call, end),
            Process::Server(index) => {
                self.end_server_poll(index, from, call, end);
                self.drive(index);
            }
            Process::Etcd(_) => {}
        }
    }

    /// Ends the poll of a server at its parent.
    pub(super) fn end_server_poll(
        &mut self,
        index: usize,
        from: Process,
        call: PollCall,
        end: PollEnd,
    ) {
        let server = &mut self.servers[index];
        if let Process::Server(from) = from
            && server.is_up
            && server.incarnation == call.incarnation
            && server.polling.is_open(call.number)
        {
            server.polling.end();
            server.on_poll_end(from, end, self.time);
        }
    }

    /// Ends the poll of a client. Hints after the end of a poll are dropped, unless servers are mad.
    pub(super) fn end_client_poll(
        &mut self,
        index: usize,
        from: Process,
        call: PollCall,
        end: PollEnd,
    ) {
        let client = &mut self.clients[index];
        let Process::Server(from) = from else {
            return;
        };
        if !client.is_up || client.incarnation != call.incarnation {
            return;
        }
        if client.paused_until.is_some() {
            // The response waits in the socket.
            let (from, to) = (Process::Server(from), Process::Client(index));
            let message = Message::PollEnd { call, end };
            return self.after(PAUSE, Event::Deliver { from, to, message });
        }
        let endpoint = from - client.servers.start;
        let is_open = client.polling.is_open(call.number);
        let is_mad = self.polls.mode == PollMode::Mad;
        let effects = match end {
            PollEnd::Hints(hints) if is_open => {
                client.polling.end();
                client.on_hints(endpoint, hints, self.time)
            }
            PollEnd::Failed if is_open => {
                client.polling.end();
                let failure = Failure::Unavailable { retry_after: None };
                client.handle(HolderEvent::PollFailed { endpoint, failure }, self.time)
            }
            PollEnd::Hints(hints) if is_mad => {
                client.handle(HolderEvent::Hinted { endpoint, hints }, self.time)
            }
            PollEnd::Hints(_) | PollEnd::Failed => return,
        };
        self.apply(index, effects);
    }

    pub(super) fn respond_to_poll(
        &mut self,
        server: usize,
        to: Process,
        call: PollCall,
        end: PollEnd,
    ) {
        let message = Message::PollEnd { call, end };
        self.send_hints(Process::Server(server), to, &message);
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
            self.respond_to_poll(index, to, call, PollEnd::Hints(hints));
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
            WAIT.as_secs_f64(),
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
        if server.paused_until.is_some() {
            let server = index;
            let end = Event::EndPoll {
                server,
                ticket,
                call,
            };
            return self.after(PAUSE, end);
        }
        if server.is_running()
            && let Some((to, hints)) = server.end_poll(ticket, call, self.time)
        {
            self.respond_to_poll(index, to, call, PollEnd::Hints(hints));
        }
        self.answer_polls(index);
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
            let event = HolderEvent::Hinted { endpoint, hints };
            let effects = self.clients[client].handle(event, self.time);
            self.apply(client, effects);
        }
        let seconds = if left == 0 {
            STORM_INTERVAL
        } else {
            1.0 / STORM_HINTS as f64
        };
        self.after(seconds, Event::InventHints { client, left });
    }

    pub(super) fn send_hints(&mut self, from: Process, to: Process, message: &Message) {
        let is_hints = matches!(
            message,
            Message::PollEnd {
                end: PollEnd::Hints(_),
                ..
            }
        );
        if self.polls.mode == PollMode::Lost && is_hints {
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
