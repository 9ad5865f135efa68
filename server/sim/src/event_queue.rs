//! Pending events, ordered by simulated time.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, binary_heap::PeekMut},
};

use doorman_core::ledger::PollTicket;
use doorman_openapi::Moment;
use tower_doorman::Permit;

use super::{
    network::{Message, PollCall, Process},
    scenario::steps::Step,
    target::TargetResponse,
};

#[derive(Debug)]
pub(super) enum Event {
    /// A copy of a message arrives.
    Deliver {
        from: Process,
        to: Process,
        message: Message,
    },
    /// A timer of a process fires.
    Wake(Process),
    /// A pause ends.
    Resume(Process),
    /// A process starts again.
    Start(Process),
    /// A server that has resigned shuts down.
    ShutDown(usize),
    /// The etcd of a node answers again after a restart.
    RestartEtcd(usize),
    /// Something ends within a server.
    Local { server: usize, message: Message },
    /// A process gives up its poll of a server, if it is open.
    PollTimeout {
        process: Process,
        server: usize,
        call: PollCall,
    },
    /// A server may have polls to answer.
    AnswerPolls(usize),
    /// The wait of a poll is over.
    EndPoll {
        server: usize,
        ticket: PollTicket,
        call: PollCall,
    },
    /// A client receives an invented hint. So many follow soon.
    InventHints { client: usize, left: usize },
    /// A demand changes, by the scenario.
    ScriptedDemand(usize),
    /// A client sends a request for one of its uses, unless the plan has changed since.
    Request { user: u32, plan: u32 },
    /// A client has the response of a target.
    TargetResponse(ResponseToClient),
    /// A client stops for good.
    Leave(usize),
    /// A client stops, and another takes its place.
    Replace(usize),
    /// A step of the script.
    Step(Step),
    /// The other servers of a node start, once the first one is master.
    StartPeers(usize),
    /// Operations of a client end, which use so many units of a gauge.
    EndOperations {
        client: usize,
        incarnation: u32,
        resource: usize,
        units: f64,
    },
    /// Clients send the requests of half a second to the targets of their resources.
    Traffic,
    /// Faults end.
    StopFaults,
    /// All leases from the time of faults have expired: every demand changes once more.
    FinalDemand,
    /// Every holder must have its exact share.
    CheckShares,
}

/// The response of a target to a request of a client.
#[derive(Debug)]
pub(super) struct ResponseToClient {
    pub(super) client: u32,
    /// Counts the restarts of the client.
    pub(super) incarnation: u32,
    pub(super) limit: u32,
    /// The units that it uses until then.
    pub(super) permit: Option<Permit>,
    pub(super) response: TargetResponse,
}

/// Events of the same time run in the order in which they were added.
#[derive(Debug)]
struct Scheduled<E> {
    at: Moment,
    serial: u64,
    event: E,
}

impl<E> PartialEq for Scheduled<E> {
    fn eq(&self, other: &Self) -> bool {
        self.serial == other.serial
    }
}

impl<E> Eq for Scheduled<E> {}

impl<E> PartialOrd for Scheduled<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Scheduled<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.serial).cmp(&(other.at, other.serial))
    }
}

#[derive(Debug, Default)]
pub(super) struct EventQueue {
    heap: BinaryHeap<Reverse<Scheduled<Event>>>,
    serial: u64,
    /// Requests apart, because they are many: time, user and plan.
    requests: BinaryHeap<Reverse<(Moment, u32, u32)>>,
    /// So are the responses of targets.
    responses: BinaryHeap<Reverse<Scheduled<ResponseToClient>>>,
}

impl EventQueue {
    pub(super) fn push(&mut self, at: Moment, event: Event) {
        self.serial += 1;
        let serial = self.serial;
        self.heap.push(Reverse(Scheduled { at, serial, event }));
    }

    pub(super) fn push_request(&mut self, at: Moment, user: u32, plan: u32) {
        self.requests.push(Reverse((at, user, plan)));
    }

    pub(super) fn push_response(&mut self, at: Moment, event: ResponseToClient) {
        self.serial += 1;
        let serial = self.serial;
        self.responses
            .push(Reverse(Scheduled { at, serial, event }));
    }

    /// The next event, unless it is later than `until`.
    pub(super) fn pop_until(&mut self, until: Moment) -> Option<(Moment, Event)> {
        let request = self.requests.peek().map(|it| it.0.0);
        let other = self.heap.peek().map(|it| it.0.at);
        if let Some(response) = self.responses.peek_mut()
            && response.0.at <= until
            && [request, other]
                .into_iter()
                .flatten()
                .all(|at| response.0.at < at)
        {
            let Reverse(next) = PeekMut::pop(response);
            return Some((next.at, Event::TargetResponse(next.event)));
        }
        if let Some(Reverse((at, user, plan))) = self.requests.peek().copied()
            && at <= until
            && self.heap.peek().is_none_or(|Reverse(it)| at < it.at)
        {
            self.requests.pop();
            return Some((at, Event::Request { user, plan }));
        }
        let Reverse(next) = self
            .heap
            .peek_mut()
            .filter(|it| it.0.at <= until)
            .map(PeekMut::pop)?;
        Some((next.at, next.event))
    }

    /// Loses all messages in transit, and the steps that were aimed at a later end.
    pub(super) fn drop_messages_and_steps(&mut self) {
        self.heap
            .retain(|Reverse(it)| !matches!(it.event, Event::Deliver { .. } | Event::Step(_)));
    }
}
