//! The state that a decision reads and changes.

use doorman_openapi::Moment;

use crate::ledger::{
    demands::DemandTree,
    resource::Ask,
    resource::decision::{TOLERANCE, is_over_capacity},
    resource::effective::EffectiveCapacity,
    resource::entry::Entry,
    resource::hint_state::HintState,
    resource::learning::Learning,
    resource::outcomes::ReportedOutcomes,
    resource::parent::ParentLease,
    resource::signal::{LostPredecessor, SharedSignal},
    store::sum_tree::SumTree,
    terms::ResourceTerms,
};

/// A request, the holder's entry, and the state of the resource.
pub(super) struct Decider<'a> {
    pub(super) ask: &'a Ask<'a>,
    /// Whether the holder polls for hints.
    pub(super) polls: bool,
    pub(super) now: Moment,
    pub(super) entry: &'a mut Entry,
    pub(super) terms: &'a ResourceTerms,
    pub(super) learning_until: Moment,
    pub(super) is_learning: bool,
    pub(super) learning: Option<&'a mut Learning>,
    pub(super) predecessor: Option<&'a mut LostPredecessor>,
    pub(super) booked: &'a mut SumTree,
    pub(super) demands: &'a mut DemandTree,
    pub(super) signal: &'a mut SharedSignal,
    pub(super) hints: &'a mut Option<Box<HintState>>,
    pub(super) parent: Option<&'a mut ParentLease>,
    pub(super) outcomes: &'a mut Option<Box<ReportedOutcomes>>,
    pub(super) effective: &'a mut Option<Box<EffectiveCapacity>>,
    /// Whether the outcomes of the request move no capacity, for the first time.
    pub(super) ignores_outcomes: bool,
    /// Safety rule (`restated-expiry`): nothing is restated, or stated to the new master of a node,
    /// beyond the lease of the parent that covers it.
    pub(super) covered_until: Moment,
}

impl Decider<'_> {
    pub(super) fn set_booked(&mut self, amount: f64) {
        let slot = self.entry.slot;
        self.booked.set(slot.index(), amount);
        if let Some(learning) = &mut self.learning
            && learning.is_confirmed(slot)
        {
            learning.set_booked(slot, amount);
        }
    }

    pub(super) fn is_over_capacity(&self) -> bool {
        let parent = self.parent.as_ref();
        is_over_capacity(self.terms, self.booked)
            && parent.is_none_or(|it| it.is_exceeded(self.booked.total(), self.now))
    }

    /// Whether the first claim of the holder was confirmed in learning mode.
    pub(super) fn is_confirmed(&self) -> bool {
        let learning = self.learning.as_ref();
        learning.is_some_and(|learning| learning.is_confirmed(self.entry.slot))
    }

    /// The most that all holders of this node may have together.
    pub(super) fn most_of_all(&self) -> f64 {
        self.parent.as_ref().map_or(0.0, |parent| {
            parent.most_of_all(
                self.booked.total(),
                self.is_learning,
                self.learning.as_deref(),
            )
        })
    }
}

pub(super) fn exceeds(amount: f64, limit: f64) -> bool {
    amount > limit * (1.0 + TOLERANCE)
}
