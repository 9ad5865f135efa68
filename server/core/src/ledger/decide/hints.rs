//! The effect of a decision on the plan of hints.

use doorman_openapi::Reason;

use super::decider::Decider;
use crate::ledger::{
    resource::Has,
    resource::decision::Decision,
    resource::hint_state::{HintState, NEGLIGIBLE, is_worth_a_hint},
};

/// Holders need not report at once that they gave up less than this part of the limit, unless they
/// were told to.
const NOTABLE: f64 = 0.05;

impl Decider<'_> {
    /// `amount` is booked for the holder, which `lacks` a part of its share. The smallest part is
    /// worth a hint if its demand `has_jumped`.
    pub(super) fn hint(
        &mut self,
        decision: &Decision,
        amount: f64,
        mut lacks: f64,
        has_jumped: bool,
    ) {
        let share = decision.capacity.get() + lacks;
        let limit = self.terms.capacity();
        if !has_jumped && !is_worth_a_hint(self.ask.kind, lacks, share, limit) {
            lacks = 0.0;
        }
        if self.polls || self.is_learning {
            (self.hints).get_or_insert_with(|| Box::new(HintState::new()));
        }
        if let Some(hints) = self.hints {
            hints.report(self.entry, amount, lacks);
            let outstanding = self.entry.outstanding.get();
            let returns = amount - decision.capacity.get().max(outstanding);
            let is_told = decision.reason != Reason::Granted;
            let is_notable = is_told || returns > self.terms.limit() * NOTABLE;
            // A master that does not know what its node has gives nothing back.
            let is_known = self.ask.has != Has::Unknown;
            if self.polls && is_known && returns > amount * NEGLIGIBLE && is_notable {
                // It reports that at once, as if it were hinted. No hint is open that could lapse.
                hints.hint(self.entry, amount, returns, 0.0);
            }
        }
    }
}
