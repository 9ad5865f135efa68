//! The polls of all holders, by what is due when.

use std::{collections::BTreeSet, ops::Bound};

use doorman_openapi::Moment;

use crate::ledger::{
    holders::Holders,
    holders::poll::{OverdueHint, Poll, PollTicket, Position},
    keys::{HolderKey, ResourceKey},
};

/// See the module.
#[derive(Debug, Clone, Default)]
pub(in crate::ledger) struct PollQueue {
    /// When the next batch of a holder is due.
    pub(in crate::ledger) ready: BTreeSet<(Moment, HolderKey)>,
    /// When the poll of a holder ends, or a hint is overdue.
    timers: BTreeSet<(Moment, HolderKey)>,
    /// Polls that a later one has replaced, with the batch that this one confirms.
    pub(in crate::ledger) replaced: Vec<(PollTicket, u64)>,
    tickets: u32,
}

impl PollQueue {
    pub(in crate::ledger) fn next_ticket(&mut self, holder: HolderKey) -> PollTicket {
        self.tickets = self.tickets.wrapping_add(1);
        // The key finds the holder of a ticket, the count tells its polls apart.
        PollTicket(u64::from(self.tickets) << 32 | holder.index() as u64)
    }

    /// Moves a poll to its new position.
    pub(in crate::ledger) fn update(&mut self, holder: HolderKey, poll: &mut Poll) {
        let new = poll.next_position();
        let old = std::mem::replace(&mut poll.position, new);
        move_in(&mut self.ready, holder, old.ready, new.ready);
        move_in(&mut self.timers, holder, old.timer, new.timer);
    }

    fn remove(&mut self, holder: HolderKey, position: Position) {
        move_in(&mut self.ready, holder, position.ready, None);
        move_in(&mut self.timers, holder, position.timer, None);
    }

    /// Hints a holder, if it polls and is not hinted already.
    pub(in crate::ledger) fn hint(
        &mut self,
        holders: &mut Holders,
        holder: HolderKey,
        resource: ResourceKey,
    ) -> bool {
        let Some(poll) = holders.poll_mut(holder) else {
            return false;
        };
        let is_new = poll.hint(resource);
        if is_new {
            self.update(holder, poll);
        }
        is_new
    }

    /// Drops a hint that the holder has acted on.
    pub(in crate::ledger) fn withdraw(
        &mut self,
        holders: &mut Holders,
        holder: HolderKey,
        resource: ResourceKey,
    ) {
        if let Some(poll) = holders.poll_mut(holder) {
            poll.withdraw(resource);
            self.update(holder, poll);
        }
    }

    /// A lease was removed. Its key may be another resource's soon, so its hint is dropped. With
    /// the last lease the poll ends.
    pub(in crate::ledger) fn remove_lease(
        &mut self,
        holders: &mut Holders,
        holder: HolderKey,
        resource: ResourceKey,
        now: Moment,
    ) {
        let has_leases = holders.has_leases(holder);
        if let Some(poll) = holders.poll_mut(holder) {
            poll.withdraw(resource);
            if !has_leases {
                poll.end_unless_open(now);
            }
            self.update(holder, poll);
        }
    }

    /// Handles one timer that is due. Returns the holder with the hints that were of no effect.
    pub(in crate::ledger) fn pop_timer(
        &mut self,
        holders: &mut Holders,
        now: Moment,
    ) -> Option<(HolderKey, Vec<OverdueHint>)> {
        let (_, holder) = *self.timers.first().filter(|(at, _)| *at <= now)?;
        let Some(poll) = holders.poll_mut(holder) else {
            self.timers.pop_first();
            return Some((holder, Vec::new()));
        };
        if !poll.has_ended(now) {
            let overdue = poll.repeat_overdue(now);
            self.update(holder, poll);
            return Some((holder, overdue));
        }
        let overdue = poll.hinted().map(|resource| OverdueHint {
            resource,
            is_given_up: true,
        });
        let overdue = overdue.collect();
        self.remove(holder, poll.position);
        holders.set_poll(holder, None);
        Some((holder, overdue))
    }

    pub(in crate::ledger) fn has_due(&self, now: Moment) -> bool {
        !self.replaced.is_empty() || self.ready.first().is_some_and(|(at, _)| *at <= now)
    }

    pub(in crate::ledger) fn next_after(&self, now: Moment) -> Option<Moment> {
        let later = (Bound::Excluded((now, HolderKey::LAST)), Bound::Unbounded);
        let ready = self.ready.range(later).next().map(|(at, _)| *at);
        let timer = self.timers.first().map(|(at, _)| *at);
        [ready, timer].into_iter().flatten().min()
    }

    pub(in crate::ledger) fn next_at(&self) -> Option<Moment> {
        let first = |queue: &BTreeSet<(Moment, HolderKey)>| queue.first().map(|(at, _)| *at);
        [first(&self.ready), first(&self.timers)]
            .into_iter()
            .flatten()
            .min()
    }
}

/// Moves a key in a queue by time.
pub(in crate::ledger) fn move_in<K: Ord + Copy>(
    queue: &mut BTreeSet<(Moment, K)>,
    key: K,
    old: Option<Moment>,
    new: Option<Moment>,
) {
    if old == new {
        return;
    }
    if let Some(old) = old {
        queue.remove(&(old, key));
    }
    if let Some(new) = new {
        queue.insert((new, key));
    }
}
