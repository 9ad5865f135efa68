//! Hints that are due without a request, at a pace.

use std::collections::BTreeSet;

use doorman_openapi::Moment;

use crate::ledger::{keys::ResourceKey, store::timers::Timers};

/// Hints a second of rounds to all holders.
const ROUND_PACE: f64 = 5000.0;

/// The most of them at once.
const MAX_BATCH: usize = 250;

/// Hints that are due without a request.
#[derive(Debug, Clone, Default)]
pub(in crate::ledger) struct Hinting {
    /// When to plan the hints of a resource again.
    pub(in crate::ledger) plans: Timers,
    /// The next slot to compare with a new document.
    pub(in crate::ledger) walk: Option<usize>,
    /// Resources with a round of hints to all holders.
    pub(in crate::ledger) rounds: BTreeSet<ResourceKey>,
    /// The next of them, so that a long one does not keep the others waiting.
    next_round: ResourceKey,
    next_batch: Moment,
}

impl Hinting {
    /// How many hints of rounds the pace allows; `None` if none is to be given.
    pub(super) fn round_budget(&self, now: Moment) -> Option<usize> {
        (!self.rounds.is_empty() && self.next_batch <= now).then_some(MAX_BATCH)
    }

    /// The next resource with a round, in turn.
    pub(super) fn next_round(&mut self) -> Option<ResourceKey> {
        let later = self.rounds.range(self.next_round..).next();
        let key = later.or_else(|| self.rounds.first()).copied()?;
        self.next_round = ResourceKey::new(key.index().saturating_add(1));
        Some(key)
    }

    /// Notes that `left` hints of a budget were not given.
    pub(super) fn spend(&mut self, left: usize, now: Moment) {
        let given = MAX_BATCH.saturating_sub(left);
        self.next_batch = now.after_seconds(given as f64 / ROUND_PACE);
    }

    pub(super) fn next_at(&self) -> Option<Moment> {
        let walk = self.walk.map(|_| Moment::ORIGIN);
        let round = (!self.rounds.is_empty()).then_some(self.next_batch);
        [walk, round, self.plans.next_at()]
            .into_iter()
            .flatten()
            .min()
    }
}
