//! The long poll of one holder, and its hints that are not yet acted on.

use std::collections::{BTreeMap, BTreeSet};

use doorman_openapi::Moment;

use crate::ledger::keys::ResourceKey;

/// After so many seconds without a hint the spacing is the first one again.
const QUIET: f64 = 1.0;

/// A holder that does not refresh within so many seconds after a hint is hinted again, because the
/// response to its poll may have been lost.
pub(in crate::ledger) const PATIENCE: f64 = 1.0;

/// How often a hint is repeated.
const MAX_REPEATS: u8 = 3;

/// The largest `after` of a poll: larger integers are not exact in JSON.
pub const MAX_AFTER: u64 = (1 << 53) - 1;

/// An open poll. It is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PollTicket(pub(in crate::ledger) u64);

/// A holder's poll, from its first one until its leases end or it has not polled for a while.
#[derive(Debug, Clone)]
pub(in crate::ledger) struct Poll {
    open: Option<PollTicket>,
    /// Until when the holder counts as polling while no poll is open.
    ends: Moment,
    /// The number of the last batch.
    last_batch: u64,
    /// The last batch that the holder has confirmed.
    confirmed: u64,
    hints: BTreeMap<ResourceKey, PendingHint>,
    /// Those of the hints that are to be sent.
    queued: BTreeSet<ResourceKey>,
    /// The earliest time at which a sent hint may be overdue.
    overdue_from: Moment,
    next_batch_at: Moment,
    spacing: f64,
}

#[derive(Debug, Clone, Copy)]
struct PendingHint {
    /// The batch that it was last sent in, and when.
    sent: Option<(u64, Moment)>,
    repeats: u8,
}

/// A batch to send.
#[derive(Debug, Clone)]
pub(in crate::ledger) struct Batch {
    pub(in crate::ledger) ticket: PollTicket,
    pub(in crate::ledger) number: u64,
    pub(in crate::ledger) resources: BTreeSet<ResourceKey>,
}

/// A hint that its holder did not act on in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ledger) struct OverdueHint {
    pub(in crate::ledger) resource: ResourceKey,
    /// Whether it is not repeated any more.
    pub(in crate::ledger) is_given_up: bool,
}

impl Poll {
    pub(in crate::ledger) fn new() -> Self {
        Self {
            open: None,
            ends: Moment::NEVER,
            last_batch: 0,
            confirmed: 0,
            hints: BTreeMap::new(),
            queued: BTreeSet::new(),
            overdue_from: Moment::NEVER,
            next_batch_at: Moment::ORIGIN,
            spacing: 0.0,
        }
    }

    /// A poll that is not open yet, and is given up at `ends`.
    pub(in crate::ledger) fn awaited(ends: Moment) -> Self {
        Self {
            ends,
            ..Self::new()
        }
    }

    /// Returns the earlier poll, which ends.
    pub(in crate::ledger) fn open(&mut self, ticket: PollTicket, after: u64) -> Option<PollTicket> {
        self.ends = Moment::NEVER;
        self.confirmed = after.min(MAX_AFTER);
        // The number may stem from an earlier server.
        self.last_batch = self.last_batch.max(self.confirmed);
        for (resource, hint) in &mut self.hints {
            if hint.sent.is_some_and(|(batch, _)| batch > self.confirmed) {
                hint.sent = None;
                self.queued.insert(*resource);
            }
        }
        self.open.replace(ticket)
    }

    pub(in crate::ledger) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Closes a poll. Returns whether it was open.
    pub(in crate::ledger) fn close(&mut self, ticket: PollTicket, ends: Moment) -> bool {
        let was_open = self.open == Some(ticket);
        if was_open {
            self.open = None;
            self.ends = ends.max(self.next_batch_at);
        }
        was_open
    }

    /// Ends the poll of a holder that has no leases any more, unless it is open. The holder may
    /// come back at once, so the spacing is kept.
    pub(in crate::ledger) fn end_unless_open(&mut self, now: Moment) {
        if self.open.is_none() {
            self.ends = self.ends.min(now.max(self.next_batch_at));
        }
    }

    pub(in crate::ledger) fn confirmed(&self) -> u64 {
        self.confirmed
    }

    pub(in crate::ledger) fn has_ended(&self, now: Moment) -> bool {
        self.ends <= now
    }

    /// Hints a resource, unless it is hinted already.
    pub(in crate::ledger) fn hint(&mut self, resource: ResourceKey) {
        self.hints.entry(resource).or_insert_with(|| {
            self.queued.insert(resource);
            PendingHint {
                sent: None,
                repeats: 0,
            }
        });
    }

    /// Drops the hint for a resource: the holder has refreshed or released it.
    pub(in crate::ledger) fn withdraw(&mut self, resource: ResourceKey) {
        if self.hints.remove(&resource).is_some() {
            self.queued.remove(&resource);
        }
    }

    /// The resources with a hint.
    pub(in crate::ledger) fn hinted(&self) -> impl Iterator<Item = ResourceKey> {
        self.hints.keys().copied()
    }

    /// Ends the poll with its next batch. Without a further poll the holder counts as polling until
    /// `ends`. `spacing` is the time until the following one: the first, and the most.
    pub(in crate::ledger) fn take_batch(
        &mut self,
        spacing: (f64, f64),
        now: Moment,
        ends: Moment,
    ) -> Option<Batch> {
        if self.queued.is_empty() || now < self.next_batch_at {
            return None;
        }
        let ticket = self.open.take()?;
        let resources = std::mem::take(&mut self.queued);
        self.last_batch = self.last_batch.saturating_add(1).min(MAX_AFTER);
        for resource in &resources {
            if let Some(hint) = self.hints.get_mut(resource) {
                hint.sent = Some((self.last_batch, now));
            }
        }
        self.overdue_from = self.overdue_from.min(now.after_seconds(PATIENCE));
        self.spacing = if now >= self.next_batch_at.after_seconds(QUIET) {
            spacing.0
        } else {
            (2.0 * self.spacing).max(spacing.0).min(spacing.1)
        };
        self.next_batch_at = now.after_seconds(self.spacing);
        self.ends = ends.max(self.next_batch_at);
        Some(Batch {
            ticket,
            number: self.last_batch,
            resources,
        })
    }

    /// Queues the overdue hints again. Those that were repeated often enough are dropped.
    pub(in crate::ledger) fn repeat_overdue(&mut self, now: Moment) -> Vec<OverdueHint> {
        let mut overdue = Vec::new();
        if now < self.overdue_from {
            return overdue;
        }
        self.overdue_from = Moment::NEVER;
        let queued = &mut self.queued;
        let overdue_from = &mut self.overdue_from;
        self.hints.retain(|resource, hint| {
            let Some((_, sent)) = hint.sent else {
                return true;
            };
            let at = sent.after_seconds(PATIENCE);
            if now < at {
                *overdue_from = at.min(*overdue_from);
                return true;
            }
            let is_given_up = hint.repeats >= MAX_REPEATS;
            overdue.push(OverdueHint {
                resource: *resource,
                is_given_up,
            });
            hint.sent = None;
            hint.repeats = hint.repeats.saturating_add(1);
            if !is_given_up {
                queued.insert(*resource);
            }
            !is_given_up
        });
        overdue
    }

    /// When its next batch is due.
    pub(in crate::ledger) fn ready_at(&self) -> Moment {
        if self.open.is_some() && !self.queued.is_empty() {
            self.next_batch_at
        } else {
            Moment::NEVER
        }
    }

    /// When it ends, or a hint is overdue.
    pub(in crate::ledger) fn timer_at(&self) -> Moment {
        if self.hints.is_empty() {
            self.ends
        } else {
            self.ends.min(self.overdue_from)
        }
    }
}
