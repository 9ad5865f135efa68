//! A server of a node below the root: its messages to the parent, and what a node does without a
//! safety rule.

use doorman_core::{
    ledger::HolderId,
    master::{Granted, NotGranted, Progress},
    reign::Reign,
    upstream::{Effect, Event, Upstream},
};
use doorman_openapi::{Epoch, Moment, ResourceId};
use tower_doorman::lease::Failure;

use super::{LeaseRequest, SWEEP, Server, driver::Action};
use crate::{
    ablation::Rule,
    network::{Message, NodeCall, NodeOutcome, PollCall, PollEnd, Process},
};

/// The shortest time between two sweeps, in seconds.
const SWEEP_PAUSE: f64 = 0.001;

impl Server {
    /// Decides a request of a node that begins with nothing, without asking its parent.
    pub(super) fn decide_unasked(&mut self, request: &LeaseRequest, now: Moment) -> Progress {
        let Some(reign) = self.master.current(now) else {
            return Progress::Done(Err(NotGranted::NotMaster));
        };
        let (epoch, call) = (reign.epoch(), request.call());
        let Some(ledger) = reign.ledger(now) else {
            return Progress::Done(Err(NotGranted::NotMaster));
        };
        ledger.register_part(&call, 0, now);
        let grants = ledger.refresh(&call, now);
        reign.bound_mut().require(&grants);
        Progress::Done(Ok(Granted { epoch, grants }))
    }

    /// Sweeps the ledger of a node, and sends the parent the requests that are due.
    pub(super) fn drive_upstream(&mut self, now: Moment) {
        let Some(wake) = self.master.upstream().map(Upstream::wake_at) else {
            return;
        };
        let Some(ledger) = self.master.ledger(now) else {
            return;
        };
        let next = ledger.sweep(now, SWEEP).unwrap_or(Moment::NEVER);
        let is_due = wake <= now || ledger.has_parent_updates();
        self.sweeps_at = next.max(now.after_seconds(SWEEP_PAUSE));
        if is_due {
            self.tell_upstream(Event::Wake, now);
        }
    }

    /// When [`drive_upstream`](Self::drive_upstream) is due next.
    pub(super) fn upstream_wakes_at(&self, now: Moment) -> Moment {
        let is_over = |it: &Reign| it.deadline() <= now;
        match self.master.upstream() {
            Some(upstream) if !self.master.reign().is_none_or(is_over) => {
                upstream.wake_at().min(self.sweeps_at)
            }
            _ => Moment::NEVER,
        }
    }

    /// Handles a response of the parent.
    pub(crate) fn on_parent_answer(&mut self, call: NodeCall, outcome: NodeOutcome, time: Moment) {
        let now = self.clock.local(time);
        let without = self.without;
        let epoch = self.reign_epoch();
        let Some(ledger) = self.master.ledger(now) else {
            return;
        };
        if (call.incarnation, Some(call.epoch)) != (self.incarnation, epoch) {
            return;
        }
        let seq = call.seq;
        let mut response = match outcome {
            Ok(response) => response,
            Err(failure) => return self.tell_upstream(Event::Failed { seq, failure }, now),
        };
        if let Some(rule) = without {
            self.ablation
                .change_response(rule, &mut response, call.sent, ledger, now);
        }
        if without == Some(Rule::LateClaim) {
            self.ablation
                .take_late_answers(seq, call.sent, &response, ledger, now);
        }
        let keeps_booked = without == Some(Rule::UnheardCover);
        let answered = keeps_booked.then(|| {
            let mut taken = response.clone();
            let is_late = |id: &ResourceId| ledger.is_parent_answer_late(id, now);
            taken
                .resources
                .retain(|it| !is_late(&it.answer.resource_id));
            taken
        });
        self.tell_upstream(Event::Answered { seq, response }, now);
        if let (Some(response), Some(ledger)) = (answered, self.master.ledger(now)) {
            self.ablation
                .keep_booked_leases(&response, call.sent, ledger, now);
        }
    }

    /// Handles the end of the open poll of the parent.
    pub(crate) fn on_poll_end(&mut self, from: usize, end: PollEnd, time: Moment) {
        let endpoint = from - self.first_of_parent();
        let event = match end {
            PollEnd::Hints(hints) => Event::Hinted { endpoint, hints },
            PollEnd::Failed => Event::PollFailed {
                endpoint,
                failure: Failure::Unavailable { retry_after: None },
            },
        };
        self.tell_upstream(event, self.clock.local(time));
    }

    fn open_parent_poll(&mut self, endpoint: usize, after: u64) -> Action {
        let server = self.first_of_parent() + endpoint;
        let number = self.polling.open(server);
        let message = Message::Poll {
            call: self.poll_call(number),
            poller: HolderId::Node(self.membership.name.clone()),
            after,
        };
        Action::Poll(Process::Server(server), message)
    }

    /// Closes the open poll of the parent.
    pub(crate) fn close_parent_poll(&mut self) -> Option<(Process, PollCall)> {
        let (server, number) = self.polling.end()?;
        Some((Process::Server(server), self.poll_call(number)))
    }

    fn poll_call(&self, number: u64) -> PollCall {
        PollCall {
            incarnation: self.incarnation,
            number,
        }
    }

    fn first_of_parent(&self) -> usize {
        self.membership.parent.as_ref().map_or(0, |it| it.start)
    }

    fn parent_server(&self, endpoint: usize) -> Process {
        Process::Server(self.first_of_parent() + endpoint)
    }

    /// The epoch of the reign, as the machine has it.
    fn reign_epoch(&self) -> Option<Epoch> {
        self.master.reign().map(Reign::epoch)
    }

    fn tell_upstream(&mut self, event: Event, now: Moment) {
        let Some(epoch) = self.reign_epoch() else {
            return;
        };
        let Some(mut effects) = self.master.tell_upstream(epoch, event, now) else {
            return;
        };
        while let Some(upstream) = self.master.upstream()
            && upstream.wake_at() <= now
            && let Some(mut more) = self.master.tell_upstream(epoch, Event::Wake, now)
        {
            effects.append(&mut more);
        }
        for effect in effects {
            match effect {
                Effect::Send {
                    seq,
                    endpoint,
                    mut request,
                    timeout: _,
                } => {
                    if let (Some(rule), Some(ledger)) = (self.without, self.master.ledger(now)) {
                        self.ablation
                            .change_request(rule, seq, &mut request, ledger);
                    }
                    let call = NodeCall {
                        incarnation: self.incarnation,
                        epoch,
                        seq,
                        sent: now,
                    };
                    let message = Message::NodeRequest { call, request };
                    let action = Action::Ask(self.parent_server(endpoint), message);
                    self.actions.push(action);
                }
                Effect::Release { endpoint, request } => {
                    let message = Message::NodeRelease(request);
                    let action = Action::Ask(self.parent_server(endpoint), message);
                    self.actions.push(action);
                }
                Effect::OpenPoll { endpoint, after } => {
                    let action = self.open_parent_poll(endpoint, after);
                    self.actions.push(action);
                }
                Effect::ClosePoll => {
                    let closed = self.close_parent_poll();
                    let actions =
                        closed.map(|(to, call)| Action::Poll(to, Message::ClosePoll { call }));
                    self.actions.extend(actions);
                }
                Effect::Warn(_) => {}
            }
        }
    }
}
