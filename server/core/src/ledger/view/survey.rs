//! Incremental survey of all live resources, for metrics.

use doorman_openapi::{Moment, ResourceView};

use crate::ledger::{
    keys::ResourceKey, resource::parent::ParentLease, state::Ledger, view::largest::Largest,
};

/// Totals over all live resources, and those with the largest demand.
#[derive(Debug)]
pub struct Survey {
    /// Resources with more booked than their capacity, after an operator lowered it.
    pub over_capacity: usize,
    /// Resources without a lease from the parent node; `None` at the root.
    pub unleased: Option<usize>,
    /// By demand, rates per second. A changed `per` counts from the resource's next refresh.
    largest: Largest<ResourceKey>,
    next: usize,
}

impl Survey {
    /// A survey that has examined nothing. It will name `top_len` resources.
    #[must_use]
    pub fn new(top_len: usize) -> Self {
        Self {
            over_capacity: 0,
            unleased: None,
            largest: Largest::new(top_len),
            next: 0,
        }
    }
}

impl Ledger {
    /// Examines `budget` slots; `false` at the end. May miss resources that appear between calls.
    pub fn survey(&self, survey: &mut Survey, budget: usize, now: Moment) -> bool {
        if self.parents.is_some() {
            survey.unleased.get_or_insert(0);
        }
        for _ in 0..budget {
            let slot = survey.next;
            if slot >= self.live.end() {
                return false;
            }
            survey.next = slot.saturating_add(1);
            let Some(live) = self.live.get(slot) else {
                continue;
            };
            let resource = &live.resource;
            let is_over_capacity = !resource.is_learning(now) && resource.is_over_capacity();
            survey.over_capacity += usize::from(is_over_capacity);
            let is_unleased = |it: &ParentLease| !it.is_leased(now);
            if let Some(unleased) = &mut survey.unleased {
                *unleased += usize::from(resource.parent.as_deref().is_some_and(is_unleased));
            }
            let rate = resource.shown_wants(now) / resource.terms.period();
            survey.largest.consider(rate, &ResourceKey::new(slot));
        }
        true
    }

    /// The resources of a survey with the largest demand, by identifier.
    #[must_use]
    pub fn most_wanted(&self, survey: &Survey, now: Moment) -> Vec<ResourceView> {
        let keys = survey.largest.keys();
        let mut views: Vec<_> = keys.filter_map(|key| self.view(*key, now)).collect();
        views.sort_by(|a, b| a.resource_id.cmp(&b.resource_id));
        views
    }
}
