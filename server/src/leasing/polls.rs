//! Open polls for hints, and the tasks that wait for their end.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use doorman_openapi::Epoch;
use tokio::sync::oneshot;

use super::{LedgerUnavailable, SharedLedger};
use doorman_core::{ledger::HintBatch, ledger::HolderId, ledger::PollTicket};

/// Why a poll ends before its wait is over.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PollEnd {
    Hints(HintBatch),
    /// The rules have changed.
    Rules,
    /// The server is no longer master, or shuts down.
    Leaving,
    /// Its connection is needed.
    GiveWay,
}

/// All open polls, oldest first.
#[derive(Debug)]
pub(crate) struct Polls {
    limit: usize,
    state: Mutex<OpenPolls>,
}

#[derive(Debug, Default)]
struct OpenPolls {
    by_age: BTreeMap<u64, Waiting>,
    ages: HashMap<PollTicket, u64>,
    opened: u64,
    leaving: bool,
}

#[derive(Debug)]
struct Waiting {
    ticket: PollTicket,
    owns_connection: bool,
    end: oneshot::Sender<PollEnd>,
}

impl Polls {
    pub(super) fn new(limit: usize) -> Self {
        let state = Mutex::default();
        Self { limit, state }
    }

    pub(crate) fn len(&self) -> usize {
        self.state().by_age.len()
    }

    /// Ends the oldest polls that have a connection of their own, and returns how many.
    pub(crate) fn free_connections(&self, count: usize) -> usize {
        self.end(&PollEnd::GiveWay, |state| {
            let owners = state.by_age.values().filter(|it| it.owns_connection);
            let tickets: Vec<_> = owners.take(count).map(|it| it.ticket).collect();
            let oldest = tickets.into_iter().filter_map(|it| state.remove(it));
            oldest.collect()
        })
    }

    /// Tells all polls that the rules have changed.
    pub(crate) fn announce_rules(&self) {
        self.end(&PollEnd::Rules, OpenPolls::remove_all);
    }

    /// Ends all polls and every later one at once, or stops doing so.
    pub(crate) fn set_leaving(&self, leaving: bool) {
        self.end(&PollEnd::Leaving, |state| {
            state.leaving = leaving;
            if leaving {
                state.remove_all()
            } else {
                Vec::new()
            }
        });
    }

    /// Ends the polls that `remove` removes, and returns how many.
    fn end(&self, end: &PollEnd, remove: impl FnOnce(&mut OpenPolls) -> Vec<Waiting>) -> usize {
        let removed = remove(&mut self.state());
        let count = removed.len();
        for waiting in removed {
            // The waiting task may be gone.
            waiting.end.send(end.clone()).ok();
        }
        count
    }

    pub(super) fn answer(&self, batches: Vec<(PollTicket, HintBatch)>) {
        if batches.is_empty() {
            return;
        }
        let mut state = self.state();
        let ends = batches.into_iter().filter_map(|(ticket, batch)| {
            let waiting = state.remove(ticket)?;
            Some((waiting.end, PollEnd::Hints(batch)))
        });
        let ends: Vec<_> = ends.collect();
        drop(state);
        for (waiting, end) in ends {
            waiting.send(end).ok();
        }
    }

    /// Returns the age of the poll, and its end.
    fn add(&self, ticket: PollTicket, owns_connection: bool) -> (u64, oneshot::Receiver<PollEnd>) {
        let (end, ended) = oneshot::channel();
        let mut state = self.state();
        let age = state.opened;
        if state.leaving {
            drop(state);
            end.send(PollEnd::Leaving).ok();
            return (age, ended);
        }
        state.opened = age.saturating_add(1);
        let waiting = Waiting {
            ticket,
            owns_connection,
            end,
        };
        state.by_age.insert(age, waiting);
        state.ages.insert(ticket, age);
        drop(state);
        self.end(&PollEnd::GiveWay, |state| {
            let excess = state.by_age.len().saturating_sub(self.limit);
            (0..excess).map_while(|_| state.remove_oldest()).collect()
        });
        (age, ended)
    }

    fn state(&self) -> MutexGuard<'_, OpenPolls> {
        // Every statement leaves a poll either in both maps or waiting for its timeout.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenPolls {
    fn remove(&mut self, ticket: PollTicket) -> Option<Waiting> {
        let age = self.ages.remove(&ticket)?;
        self.by_age.remove(&age)
    }

    /// Removes a poll, but not one of a later reign with the same ticket.
    fn remove_aged(&mut self, ticket: PollTicket, age: u64) {
        if self.ages.get(&ticket) == Some(&age) {
            self.remove(ticket);
        }
    }

    fn remove_oldest(&mut self) -> Option<Waiting> {
        let (_, waiting) = self.by_age.pop_first()?;
        self.ages.remove(&waiting.ticket);
        Some(waiting)
    }

    fn remove_all(&mut self) -> Vec<Waiting> {
        self.ages.clear();
        std::mem::take(&mut self.by_age).into_values().collect()
    }
}

/// A poll that is open until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenPoll {
    ledger: Arc<SharedLedger>,
    epoch: Epoch,
    ticket: PollTicket,
    age: u64,
    ended: oneshot::Receiver<PollEnd>,
    has_hints: bool,
}

impl OpenPoll {
    /// The epoch of the reign that it was opened in.
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Waits for the end of the poll.
    ///
    /// # Cancel safety
    /// Nothing is lost when it is dropped.
    pub(crate) async fn ended(&mut self) -> PollEnd {
        let end = (&mut self.ended).await;
        // The sender is only dropped with the server.
        let end = end.unwrap_or(PollEnd::Leaving);
        self.has_hints = matches!(end, PollEnd::Hints(_));
        end
    }
}

impl Drop for OpenPoll {
    fn drop(&mut self) {
        let ticket = self.ticket;
        self.ledger.polls.state().remove_aged(ticket, self.age);
        if !self.has_hints {
            // Without a ledger there are no hints any more, and a later one has other tickets.
            self.ledger
                .locked(|master, now| {
                    let reign = master.current(now);
                    let reign = reign.filter(|it| it.epoch() == self.epoch);
                    if let Some(ledger) = reign.and_then(|it| it.ledger(now)) {
                        ledger.close_poll(ticket, now);
                    }
                })
                .ok();
        }
    }
}

impl SharedLedger {
    pub(crate) fn polls(&self) -> &Polls {
        &self.polls
    }

    /// Opens a poll of a holder, which ends its earlier one, and confirms hints up to `after`.
    /// `owns_connection` says whether its connection can be closed with it.
    pub(crate) fn open_poll(
        self: &Arc<Self>,
        holder: &HolderId,
        after: u64,
        owns_connection: bool,
    ) -> Result<OpenPoll, LedgerUnavailable> {
        let opened = self.locked(|master, now| {
            let reign = master.current(now)?;
            let epoch = reign.epoch();
            let ticket = reign.ledger(now)?.open_poll(holder, after, now);
            // Under the lock, so that no hint comes before.
            Some((epoch, ticket, self.polls.add(ticket, owns_connection)))
        })?;
        let (epoch, ticket, (age, ended)) = opened.ok_or(LedgerUnavailable::NotMaster)?;
        Ok(OpenPoll {
            ledger: Arc::clone(self),
            epoch,
            ticket,
            age,
            ended,
            has_hints: false,
        })
    }
}
