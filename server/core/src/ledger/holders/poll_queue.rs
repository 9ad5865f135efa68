//! The polls of all holders, by what is due when.

use doorman_openapi::Moment;

use crate::ledger::{
    holders::Holders,
    holders::poll::{OverdueHint, Poll, PollTicket},
    keys::{HolderKey, ResourceKey},
    store::timers::Timers,
};

/// See the module.
#[derive(Debug, Clone, Default)]
pub(in crate::ledger) struct PollQueue {
    /// When the next batch of a holder is due.
    pub(in crate::ledger) ready: Timers,
    /// When the poll of a holder ends, or a hint is overdue.
    pub(in crate::ledger) timers: Timers,
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

    /// Changes the poll of a holder, if it polls.
    pub(in crate::ledger) fn change<R>(
        &mut self,
        holders: &mut Holders,
        holder: HolderKey,
        change: impl FnOnce(&mut Poll) -> R,
    ) -> Option<R> {
        let poll = holders.poll_mut(holder)?;
        let result = change(poll);
        self.ready.set(holder.index(), poll.ready_at());
        self.timers.set(holder.index(), poll.timer_at());
        Some(result)
    }

    /// Hints a holder, if it polls.
    pub(in crate::ledger) fn hint(
        &mut self,
        holders: &mut Holders,
        holder: HolderKey,
        resource: ResourceKey,
    ) {
        self.change(holders, holder, |poll| poll.hint(resource));
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
        self.change(holders, holder, |poll| {
            poll.withdraw(resource);
            if !has_leases {
                poll.end_unless_open(now);
            }
        });
    }

    /// Handles one timer that is due. Returns the holder with the hints that were of no effect.
    pub(in crate::ledger) fn pop_timer(
        &mut self,
        holders: &mut Holders,
        now: Moment,
    ) -> Option<(HolderKey, Vec<OverdueHint>)> {
        let holder = HolderKey::new(self.timers.pop_due(now)?);
        let repeat = |poll: &mut Poll| {
            let lasts = !poll.has_ended(now);
            lasts.then(|| poll.repeat_overdue(now))
        };
        if let Some(overdue) = self.change(holders, holder, repeat).flatten() {
            return Some((holder, overdue));
        }
        self.ready.set(holder.index(), Moment::NEVER);
        self.timers.set(holder.index(), Moment::NEVER);
        let Some(poll) = holders.poll_mut(holder) else {
            return Some((holder, Vec::new()));
        };
        let overdue = poll.hinted().map(|resource| OverdueHint {
            resource,
            is_given_up: true,
        });
        let overdue = overdue.collect();
        holders.set_poll(holder, None);
        Some((holder, overdue))
    }
}
