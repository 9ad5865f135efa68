//! Slots by the time at which each is due.

use doorman_openapi::Moment;

use super::max_tree::MaxTree;

/// A time per slot, with the earliest in O(log n); [`Moment::NEVER`] if it has none.
#[derive(Debug, Clone, Default)]
pub(in crate::ledger) struct Timers(MaxTree);

impl Timers {
    pub(in crate::ledger) fn set(&mut self, slot: usize, at: Moment) {
        self.0.set(slot, !at.as_nanos());
    }

    pub(in crate::ledger) fn get(&self, slot: usize) -> Moment {
        Moment::from_nanos(!self.0.get(slot))
    }

    /// The first slot, if it is due.
    pub(in crate::ledger) fn due(&self, now: Moment) -> Option<usize> {
        self.next_at().filter(|at| *at <= now)?;
        self.0.first()
    }

    /// Takes the first slot, if it is due, and clears its time.
    pub(in crate::ledger) fn pop_due(&mut self, now: Moment) -> Option<usize> {
        let slot = self.due(now)?;
        self.set(slot, Moment::NEVER);
        Some(slot)
    }

    pub(in crate::ledger) fn next_at(&self) -> Option<Moment> {
        let at = Moment::from_nanos(!self.0.max());
        (at < Moment::NEVER).then_some(at)
    }
}
