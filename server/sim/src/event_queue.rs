//! Pending events, ordered by simulated time.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, binary_heap::PeekMut},
};

use doorman_core::ledger::PollTicket;
use doorman_openapi::Moment;

use super::{
    network::{Message, PollCall, Process},
    scenario::steps::Step,
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
    /// Faults end.
    StopFaults,
    /// All leases from the time of faults have expired: every demand changes once more.
    FinalDemand,
    /// Every holder must have its exact share.
    CheckShares,
}

/// Events of the same time run in the order in which they were added.
#[derive(Debug)]
struct Scheduled {
    at: Moment,
    serial: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.serial == other.serial
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.serial).cmp(&(other.at, other.serial))
    }
}

#[derive(Debug, Default)]
pub(super) struct EventQueue {
    heap: BinaryHeap<Reverse<Scheduled>>,
    serial: u64,
    /// Requests apart, because they are many: time, user and plan.
    requests: BinaryHeap<Reverse<(Moment, u32, u32)>>,
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

    /// The next event, unless it is later than `until`.
    pub(super) fn pop_until(&mut self, until: Moment) -> Option<(Moment, Event)> {
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
