//! Incremental survey of all live resources, for metrics.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

use doorman_openapi::{Moment, ResourceView};

use super::{Ledger, keys::ResourceKey};

/// Totals over all live resources, and those with the largest demand.
#[derive(Debug)]
pub struct Survey {
    /// Resources in learning mode.
    pub learning: usize,
    /// Resources with more booked than their capacity, after an operator lowered it.
    pub over_capacity: usize,
    /// The largest demands, the least of them on top.
    top: BinaryHeap<Reverse<(Amount, ResourceKey)>>,
    top_len: usize,
    next: usize,
}

/// An amount with a total order. The ledger has no NaN.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Amount(f64);

impl Eq for Amount {}

impl PartialOrd for Amount {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Amount {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Survey {
    /// A survey that has examined nothing. It will name `top_len` resources.
    #[must_use]
    pub fn new(top_len: usize) -> Self {
        Self {
            learning: 0,
            over_capacity: 0,
            top: BinaryHeap::with_capacity(top_len),
            top_len,
            next: 0,
        }
    }

    fn consider(&mut self, resource: Reverse<(Amount, ResourceKey)>) {
        if self.top.len() < self.top_len {
            self.top.push(resource);
        } else if let Some(mut least) = self.top.peek_mut()
            && resource < *least
        {
            *least = resource;
        }
    }
}

impl Ledger {
    /// Examines `budget` slots; `false` at the end. May miss resources that appear between calls.
    pub fn survey(&self, survey: &mut Survey, budget: usize, now: Moment) -> bool {
        for _ in 0..budget {
            let slot = survey.next;
            if slot >= self.live.capacity() {
                return false;
            }
            survey.next = slot.saturating_add(1);
            let Some(live) = self.live.get(slot) else {
                continue;
            };
            let resource = &live.resource;
            let learning = resource.is_learning(now);
            survey.learning += usize::from(learning);
            survey.over_capacity += usize::from(!learning && resource.is_over_capacity());
            let wants = Amount(resource.sum_wants());
            survey.consider(Reverse((wants, ResourceKey::new(slot))));
        }
        true
    }

    /// The resources of a survey with the largest demand, by identifier.
    #[must_use]
    pub fn most_wanted(&self, survey: &Survey, now: Moment) -> Vec<ResourceView> {
        let keys = survey.top.iter().map(|Reverse((_, key))| *key);
        let mut views: Vec<_> = keys.filter_map(|key| self.view(key, now)).collect();
        views.sort_by(|a, b| a.resource_id.cmp(&b.resource_id));
        views
    }
}
