//! What is to happen, in its order.

use std::{cmp::Reverse, collections::BinaryHeap};

use doorman_openapi::Moment;

use super::wire::{Message, Party};

/// Something that is to happen.
#[derive(Debug)]
pub(super) enum Event {
    /// A copy of a message arrives.
    Arrive {
        from: Party,
        to: Party,
        message: Message,
    },
    /// A party has something to do by itself.
    Wake(Party),
    /// A pause is over.
    Resume(Party),
    /// A process that ended starts again.
    Start(Party),
    /// A server campaigns.
    Campaign { server: usize, life: u32 },
    /// What somebody wants changes.
    Demand,
    /// Something goes wrong.
    Mishap,
    /// Nothing goes wrong any more.
    Calm,
    /// All old leases have ended: everybody wants something new, and then the same.
    Settle,
    /// Everybody must have their share.
    Settled,
}

/// An event at its place in time. Events of the same moment happen in the order they were made up.
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

/// All that is to happen.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    queue: BinaryHeap<Reverse<Scheduled>>,
    serial: u64,
}

impl Schedule {
    pub(super) fn add(&mut self, at: Moment, event: Event) {
        self.serial += 1;
        let serial = self.serial;
        self.queue.push(Reverse(Scheduled { at, serial, event }));
    }

    /// What happens next, and when.
    pub(super) fn next(&mut self) -> Option<(Moment, Event)> {
        self.queue.pop().map(|Reverse(next)| (next.at, next.event))
    }

    /// Loses all messages that are under way.
    pub(super) fn lose_messages(&mut self) {
        self.queue
            .retain(|Reverse(it)| !matches!(it.event, Event::Arrive { .. }));
    }
}
