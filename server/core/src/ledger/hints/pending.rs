//! Hints that are due without a request, at a pace.

use std::collections::{BTreeSet, VecDeque};

use doorman_openapi::Moment;

use crate::ledger::{holders::poll_queue::move_in, keys::ResourceKey};

/// Hints a second after a change of the document.
const CHANGE_PACE: f64 = 5000.0;

/// The most hints at once after a change of the document.
const MAX_CHANGE_BURST: f64 = 250.0;

/// After the first ones, so many hints are given at a time.
const CHANGE_BATCH: f64 = 50.0;

/// Hints that are due without a request.
#[derive(Debug, Clone, Default)]
pub(in crate::ledger) struct Hinting {
    pub(super) plans: BTreeSet<(Moment, ResourceKey)>,
    /// The next slot to compare with a new document.
    pub(super) walk: Option<usize>,
    /// Resources whose holders are hinted because the terms have changed.
    pub(super) changed: VecDeque<ResourceKey>,
    /// Hints that the pace allows, as of a moment.
    pub(super) allowance: (f64, Moment),
}

impl Hinting {
    pub(in crate::ledger) fn begin_walk(&mut self) {
        self.walk = Some(0);
    }

    pub(in crate::ledger) fn add_change(&mut self, key: ResourceKey) {
        self.changed.push_back(key);
    }

    pub(in crate::ledger) fn unschedule(&mut self, key: ResourceKey, at: Option<Moment>) {
        self.reschedule(key, at, None);
    }

    pub(super) fn reschedule(
        &mut self,
        key: ResourceKey,
        old: Option<Moment>,
        new: Option<Moment>,
    ) {
        move_in(&mut self.plans, key, old, new);
    }

    pub(super) fn due(&self, now: Moment) -> Option<ResourceKey> {
        let (_, key) = self.plans.first().filter(|(at, _)| *at <= now)?;
        Some(*key)
    }

    /// How many hints the pace allows; `None` if none is to be given.
    pub(super) fn change_budget(&mut self, now: Moment) -> Option<usize> {
        if self.changed.is_empty() {
            return None;
        }
        let (left, at) = self.allowance;
        let left = left + CHANGE_PACE * now.seconds_since(at);
        self.allowance = (left.min(MAX_CHANGE_BURST), now);
        Some(self.allowance.0 as usize)
    }

    pub(super) fn spend(&mut self, hints: usize) {
        self.allowance.0 -= hints as f64;
    }

    pub(super) fn next_at(&self) -> Option<Moment> {
        let (left, at) = self.allowance;
        let next_change =
            at.after_seconds(CHANGE_BATCH * f64::from(u8::from(left < 1.0)) / CHANGE_PACE);
        let walk = self.walk.map(|_| Moment::ORIGIN);
        let change = (!self.changed.is_empty()).then_some(next_change);
        let plan = self.plans.first().map(|(at, _)| *at);
        [walk, change, plan].into_iter().flatten().min()
    }
}
