//! Incremental survey of all live resources, for metrics.

use std::collections::BTreeMap;

use doorman_openapi::{Moment, ResourceView};

use crate::ledger::{
    keys::ResourceKey, resource::Resource, resource::parent::ParentLease, state::Ledger,
    terms::Role, view::largest::Largest,
};

/// The part of a capacity below which it counts as held back.
const HELD_BACK: f64 = 0.9;

/// Totals over all live resources, and those with the largest demand.
#[derive(Debug)]
pub struct Survey {
    /// Resources with more booked than their capacity, after an operator lowered it.
    pub over_capacity: usize,
    /// Resources without a lease from the parent node; `None` at the root.
    pub unleased: Option<usize>,
    /// Resources with `feedback`, by template.
    pub feedback: BTreeMap<String, FeedbackSurvey>,
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
            feedback: BTreeMap::new(),
            largest: Largest::new(top_len),
            next: 0,
        }
    }
}

/// Sums over the resources of a template with `feedback`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct FeedbackSurvey {
    /// Their effective capacity.
    pub effective: f64,
    /// Their configured capacity.
    pub configured: f64,
    /// Resources of which less than nine tenths are effective while demand is unmet.
    pub held_back: usize,
    /// Resources at their floor, and paused ones.
    pub at_floor: usize,
    /// Resources whose target refuses requests at any load.
    pub not_ours: usize,
    /// Holders that suffer alone.
    pub suffer_alone: usize,
}

impl Survey {
    fn add_feedback(&mut self, resource: &Resource, now: Moment) {
        let effective = resource.effective.as_ref();
        let is_used = !resource.entries.is_empty();
        let effective = effective.filter(|it| is_used && it.role() != Role::Node);
        let (Some(effective), Some(template)) = (effective, resource.terms.template()) else {
            return;
        };
        let glob = template.identifier_glob();
        let sums = match self.feedback.get_mut(glob) {
            Some(sums) => sums,
            None => self.feedback.entry(glob.to_owned()).or_default(),
        };
        let (amount, configured) = (effective.effective(now), resource.terms.limit());
        let is_unmet = resource.sum_wants() > amount;
        let status = effective.status(now);
        sums.effective += amount;
        sums.configured += configured;
        let is_held_back = effective.role() == Role::Act && amount < configured;
        sums.held_back += usize::from(is_held_back && is_unmet && amount < HELD_BACK * configured);
        if effective.role() == Role::Act {
            sums.at_floor += usize::from(effective.is_at_floor());
            sums.not_ours += usize::from(status.base.is_some());
            sums.suffer_alone += effective.suffering_alone();
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
            survey.add_feedback(resource, now);
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
