//! Looking at all live resources, a few at a time, for those who watch the server.

use std::{cmp::Reverse, collections::BinaryHeap};

use doorman_openapi::{Moment, ResourceView};

use super::Ledger;

/// What was seen of the live resources: sums of all, and the few that want the most.
#[derive(Debug)]
pub struct Survey {
    /// Resources that are being learned.
    pub learning: usize,
    /// Resources of which more is in the holders' hands than there is, after an operator's cut.
    pub over_capacity: usize,
    /// What wants the most, by how much, and where it stands; the least of them on top.
    top: BinaryHeap<Reverse<(Amount, u32)>>,
    most: usize,
    next: usize,
}

/// An amount of the books, which is never NaN, in its order.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Amount(f64);

impl Eq for Amount {}

impl PartialOrd for Amount {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Amount {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Survey {
    /// Nothing seen yet; `most` resources will be named.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            learning: 0,
            over_capacity: 0,
            top: BinaryHeap::with_capacity(most),
            most,
            next: 0,
        }
    }

    /// Keeps it if it is among those that want the most so far: few are, of many.
    fn consider(&mut self, resource: Reverse<(Amount, u32)>) {
        if self.top.len() < self.most {
            self.top.push(resource);
        } else if let Some(mut least) = self.top.peek_mut()
            && resource < *least
        {
            *least = resource;
        }
    }
}

impl Ledger {
    /// Looks at `budget` places of the books; `false` when all have been seen. Between two calls the books may change: who comes or
    /// goes meanwhile is seen, or not.
    pub fn survey(&self, survey: &mut Survey, budget: usize, now: Moment) -> bool {
        for _ in 0..budget {
            if survey.next >= self.live.capacity() {
                return false;
            }
            let key = survey.next;
            survey.next = key.saturating_add(1);
            let Some(live) = self.live.get(key) else {
                continue;
            };
            let resource = &live.resource;
            let learning = resource.in_learning_mode(now);
            survey.learning += usize::from(learning);
            survey.over_capacity += usize::from(!learning && resource.is_over_capacity());
            let key = u32::try_from(key).unwrap_or(u32::MAX);
            survey.consider(Reverse((Amount(resource.sum_wants()), key)));
        }
        true
    }

    /// The resources that a survey found to want the most, by identifier.
    #[must_use]
    pub fn most_wanted(&self, survey: &Survey, now: Moment) -> Vec<ResourceView> {
        let keys = survey.top.iter().map(|Reverse((_, key))| *key);
        let mut views: Vec<_> = keys.filter_map(|key| self.view(key, now)).collect();
        views.sort_by(|a, b| a.resource_id.cmp(&b.resource_id));
        views
    }
}
