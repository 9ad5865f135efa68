//! Requests that wait for tokens of one limiter, in order.
//!
//! Those of the highest priority are queued: their tokens are taken ahead of their turn.
//! Others are held back: they take their tokens when they are available, in the order of their
//! priorities.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    ops::{Bound, Deref},
    sync::Arc,
};

use super::{bucket::TokenRange, open_charges::OpenCharges, sync::Notify};

/// Most of very many keys never queue: an unused one allocates nothing.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    queued: BTreeMap<Ticket, Queued>,
    /// Their cost. Exact for whole numbers, and 0 without any.
    cost: f64,
    /// By priority, the highest first.
    held_back: BTreeMap<Reverse<i32>, HeldBackBand>,
    /// Requests that wait, in the queue or outside of it.
    slots: u32,
    /// Requests that wait here or at another limit, and their cost.
    requests: u32,
    pending: f64,
    /// The cost of requests that were canceled while they waited.
    canceled: f64,
    charges: OpenCharges,
    /// `None` before a request subscribes.
    changed: Option<Arc<Notify>>,
}

#[derive(Debug)]
struct Queued {
    range: TokenRange,
    /// Notifies of the turn at a gauge.
    turn: Option<Arc<Notify>>,
}

/// A position in the queue: a larger ticket is further behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

/// The requests of one priority that are held back, in order.
#[derive(Debug, Default)]
struct HeldBackBand {
    requests: BTreeMap<u64, HeldBack>,
    cost: f64,
}

#[derive(Debug)]
struct HeldBack {
    cost: f64,
    turn: Arc<Notify>,
}

/// A position among the requests that are held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HeldBackTicket {
    priority: i32,
    number: u64,
}

impl WaitQueue {
    /// Notifies of a new lease or a better position. Subscribe before looking for changes.
    pub(super) fn changes(&mut self) -> Arc<Notify> {
        Arc::clone(self.changed.get_or_insert_default())
    }

    /// False when `max` requests wait already. Those that are held back behind this priority do not
    /// count.
    pub(super) fn acquire_slot(&mut self, max: u32, priority: i32) -> bool {
        let behind = (Bound::Excluded(Reverse(priority)), Bound::Unbounded);
        let behind = self.held_back.range(behind);
        let behind = behind.fold(0, |sum, (_, band)| band.requests.len().saturating_add(sum));
        let behind = u32::try_from(behind).unwrap_or(u32::MAX);
        let acquired = self.slots.saturating_sub(behind) < max;
        if acquired {
            self.slots = self.slots.saturating_add(1);
        }
        acquired
    }

    pub(super) fn release_slot(&mut self) {
        self.slots = self.slots.saturating_sub(1);
    }

    pub(super) fn slots(&self) -> u32 {
        self.slots
    }

    /// Whether requests wait that are neither queued nor held back.
    pub(super) fn has_others(&self) -> bool {
        let held_back = self.held_back.values().map(|band| band.requests.len());
        self.slots as usize > self.queued.len().saturating_add(held_back.sum())
    }

    pub(super) fn add_pending(&mut self, cost: f64) {
        self.requests = self.requests.saturating_add(1);
        self.pending += cost;
    }

    /// The request waits no longer.
    pub(super) fn remove_pending(&mut self, cost: f64) {
        self.requests = self.requests.saturating_sub(1);
        self.pending = match self.requests {
            // Without the rounding errors so far.
            0 => 0.0,
            _ => self.pending - cost,
        };
    }

    /// The request was canceled: its cost stays part of the demand.
    pub(super) fn cancel_pending(&mut self, cost: f64) {
        self.remove_pending(cost);
        self.canceled += cost;
    }

    /// The cost of requests that wait, and of those that were canceled while they waited.
    pub(super) fn pending(&self) -> f64 {
        self.pending + self.canceled
    }

    /// The cost of requests that wait, here or at another limit.
    pub(super) fn waiting(&self) -> f64 {
        self.pending
    }

    /// Whether a request waits here, or waits at another limit and has tokens of this one.
    pub(super) fn has_requests(&self) -> bool {
        self.slots > 0 || self.requests > 0
    }

    /// Whether requests wait, or a charge may be corrected: the limiter must stay.
    pub(super) fn is_in_use(&self) -> bool {
        self.has_requests() || !self.charges.is_empty()
    }

    /// Whether it is as new: nobody waits, and nothing is to be remembered.
    pub(super) fn is_unused(&self) -> bool {
        let changed = self.changed.as_ref();
        !self.is_in_use()
            && self.canceled == 0.0
            && changed.is_none_or(|changed| Arc::strong_count(changed) == 1)
    }

    pub(super) fn push(&mut self, range: TokenRange) -> Ticket {
        let last = self.queued.last_key_value();
        let ticket = Ticket(last.map_or(0, |(last, _)| last.0.saturating_add(1)));
        let queued = Queued { range, turn: None };
        self.queued.insert(ticket, queued);
        self.cost += range.cost;
        ticket
    }

    /// The current token range of a ticket; `None` after it was removed.
    pub(super) fn range(&self, ticket: Ticket) -> Option<TokenRange> {
        Some(self.queued.get(&ticket)?.range)
    }

    /// Notifies of the turn of a ticket at a gauge.
    pub(super) fn turn(&mut self, ticket: Ticket) -> Option<Arc<Notify>> {
        let queued = self.queued.get_mut(&ticket)?;
        Some(Arc::clone(queued.turn.get_or_insert_default()))
    }

    /// The cost of a queued request, if it is the first one.
    pub(super) fn first(&self, ticket: Ticket) -> Option<f64> {
        let (first, queued) = self.queued.first_key_value()?;
        (*first == ticket).then_some(queued.range.cost)
    }

    /// Holds a request back, behind those of its priority and of higher ones.
    pub(super) fn hold_back(&mut self, priority: i32, cost: f64) -> HeldBackTicket {
        let band = self.held_back.entry(Reverse(priority)).or_default();
        let last = band.requests.last_key_value();
        let number = last.map_or(0, |(last, _)| last.saturating_add(1));
        let turn = Arc::default();
        band.requests.insert(number, HeldBack { cost, turn });
        band.cost += cost;
        HeldBackTicket { priority, number }
    }

    /// The cost of the requests that a newcomer of this priority is held back behind.
    pub(super) fn held_back_before(&self, priority: i32) -> f64 {
        let ahead = self.held_back.range(..=Reverse(priority));
        ahead.map(|(_, band)| band.cost).sum()
    }

    /// The turn of a request that is held back, and whether it is the first one; `None` after it
    /// was removed.
    pub(super) fn held_back_turn(&self, ticket: HeldBackTicket) -> Option<(Arc<Notify>, bool)> {
        let band = self.held_back.get(&Reverse(ticket.priority))?;
        let request = band.requests.get(&ticket.number)?;
        let is_first = self.held_back.first_key_value()?.0.0 == ticket.priority
            && *band.requests.first_key_value()?.0 == ticket.number;
        Some((Arc::clone(&request.turn), is_first))
    }

    /// The request is no longer held back. The next one may have its turn.
    pub(super) fn end_held_back(&mut self, ticket: HeldBackTicket) {
        if let Some(band) = self.held_back.get_mut(&Reverse(ticket.priority))
            && let Some(ended) = band.requests.remove(&ticket.number)
        {
            band.cost -= ended.cost;
            if band.requests.is_empty() {
                self.held_back.remove(&Reverse(ticket.priority));
            }
        }
        self.wake_first_held_back();
    }

    /// Wakes the first request that is held back. One that does not wait yet is not missed.
    pub(super) fn wake_first_held_back(&self) {
        if let Some((_, band)) = self.held_back.first_key_value()
            && let Some((_, first)) = band.requests.first_key_value()
        {
            first.turn.notify_one();
        }
    }

    /// Wakes the first queued request at a gauge, and the first request that is held back. One that
    /// does not wait yet is not missed.
    pub(super) fn wake_first(&self) {
        self.wake_first_held_back();
        if let Some((_, first)) = self.queued.first_key_value()
            && let Some(turn) = &first.turn
        {
            turn.notify_one();
        }
    }

    pub(super) fn charges(&mut self) -> &mut OpenCharges {
        &mut self.charges
    }

    /// The charges that may be corrected, if there are any.
    pub(super) fn open_charges(&mut self) -> Option<&mut OpenCharges> {
        (!self.charges.is_empty()).then_some(&mut self.charges)
    }

    /// The cost of all queued requests.
    pub(super) fn cost(&self) -> f64 {
        self.cost
    }

    /// Removes a queued request. Those behind it keep their ranges.
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<TokenRange> {
        let Queued { range, .. } = self.queued.remove(&ticket)?;
        self.cost = if self.queued.is_empty() {
            // Without the rounding errors so far.
            0.0
        } else {
            self.cost - range.cost
        };
        Some(range)
    }

    /// Moves all queued requests back by tokens that are charged late, and behind everything
    /// `taken` by admitted requests: when several have their turn, a later one may have been
    /// admitted first.
    pub(super) fn postpone(&mut self, tokens: f64, taken: f64) {
        let mut ahead = taken;
        for queued in self.queued.values_mut() {
            queued.range.start = (queued.range.start + tokens).max(ahead);
            ahead += queued.range.cost;
        }
    }

    /// Moves the ranges behind released tokens forward, as a newcomer would otherwise get them.
    pub(super) fn advance(&mut self, tokens: f64, is_behind: impl Fn(TokenRange) -> bool) {
        for queued in self.queued.values_mut() {
            if is_behind(queued.range) {
                queued.range.start -= tokens;
            }
        }
    }

    /// Forgives debt beyond `max_spent` that lies before the first queued request. Returns the
    /// limit for *spent* that keeps newcomers behind the last one.
    pub(super) fn forgive(&mut self, max_spent: f64) -> f64 {
        if let Some((_, first)) = self.queued.first_key_value() {
            let beyond = first.range.start - max_spent;
            if beyond > 0.0 {
                self.advance(beyond, |_| true);
            }
        }
        let last = self.queued.last_key_value();
        last.map_or(max_spent, |(_, last)| last.range.end().max(max_spent))
    }
}

/// Wakes all waiting requests after it unlocks the queue: a request that subscribes later sees the
/// change.
pub(super) fn unlock_and_wake(queue: impl Deref<Target = WaitQueue>) {
    let changed = queue.changed.clone();
    drop(queue);
    if let Some(changed) = changed {
        changed.notify_waiters();
    }
}
