//! Number of live resources in learning mode.

use std::{collections::BTreeMap, ops::Bound};

use doorman_openapi::Moment;

/// Counts live resources by the end of their learning mode. There are as many ends as learning
/// durations in the document, so the count needs no scan of the resources.
#[derive(Debug, Clone, Default)]
pub(in crate::ledger) struct LearningCount(BTreeMap<Moment, usize>);

impl LearningCount {
    pub(in crate::ledger) fn add(&mut self, end: Moment) {
        let count = self.0.entry(end).or_default();
        *count = count.saturating_add(1);
    }

    pub(in crate::ledger) fn change(&mut self, old: Moment, new: Moment) {
        self.remove(old);
        self.add(new);
    }

    pub(in crate::ledger) fn remove(&mut self, end: Moment) {
        if let Some(count) = self.0.get_mut(&end) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.0.remove(&end);
            }
        }
    }

    /// The last end, which may be in the past.
    pub(in crate::ledger) fn last_end(&self) -> Moment {
        let last = self.0.last_key_value();
        last.map_or(Moment::ORIGIN, |(end, _)| *end)
    }

    pub(in crate::ledger) fn at(&self, now: Moment) -> usize {
        let learning = self.0.range((Bound::Excluded(now), Bound::Unbounded));
        learning.map(|(_, count)| count).sum()
    }
}
