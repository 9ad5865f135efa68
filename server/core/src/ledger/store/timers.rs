//! Slots by the time at which each is due.

use doorman_openapi::Moment;

use super::group_tree::GroupTree;

/// A time per slot, with the earliest in O(log n); [`Moment::NEVER`] if it has none.
#[derive(Debug, Clone, Default)]
pub(in crate::ledger) struct Timers(GroupTree<Moment>);

impl Timers {
    pub(in crate::ledger) fn set(&mut self, slot: usize, at: Moment) {
        self.0.set(slot, at, Moment::NEVER, earliest);
    }

    pub(in crate::ledger) fn get(&self, slot: usize) -> Moment {
        self.0.get(slot).unwrap_or(Moment::NEVER)
    }

    /// The first slot, if it is due.
    pub(in crate::ledger) fn due(&self, now: Moment) -> Option<usize> {
        self.next_at().filter(|at| *at <= now)?;
        self.0.descend(|times| {
            let (at, _) = times.iter().enumerate().min_by_key(|(_, at)| **at)?;
            Some(at)
        })
    }

    /// Takes the first slot, if it is due, and clears its time.
    pub(in crate::ledger) fn pop_due(&mut self, now: Moment) -> Option<usize> {
        let slot = self.due(now)?;
        self.set(slot, Moment::NEVER);
        Some(slot)
    }

    pub(in crate::ledger) fn next_at(&self) -> Option<Moment> {
        Some(earliest(self.0.top())).filter(|at| *at < Moment::NEVER)
    }
}

fn earliest(times: &[Moment]) -> Moment {
    times.iter().copied().fold(Moment::NEVER, Moment::min)
}
