//! The state of the law, for views.

use std::borrow::Cow;

use doorman_openapi::Moment;

use crate::ledger::feedback::{
    control::{ControlState, FeedbackControl},
    terms::ControlTerms,
};

/// The state of the law of one resource, for views. Amounts are in its unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::ledger) struct ControlStatus {
    pub(in crate::ledger) state: ControlState,
    pub(in crate::ledger) since: Moment,
    /// The amount that the target accepted last, while less than the capacity is effective.
    pub(in crate::ledger) plateau: Option<f64>,
    /// The share of overloads by the last verdict.
    pub(in crate::ledger) overloaded_share: f64,
    /// Whether a predecessor has set the level.
    pub(in crate::ledger) is_inherited: bool,
    /// Whether the level was lowered because requests took too long.
    pub(in crate::ledger) is_slow: bool,
    /// Until when it pauses, or holds the level.
    pub(in crate::ledger) until: Option<Moment>,
    /// The share of requests that the target refuses at any load.
    pub(in crate::ledger) base: Option<f64>,
}

impl FeedbackControl {
    /// The same under terms that may be newer.
    pub(in crate::ledger) fn under(&self, terms: ControlTerms, now: Moment) -> Cow<'_, Self> {
        if terms.bounded() == self.terms {
            return Cow::Borrowed(self);
        }
        let mut law = self.clone();
        law.set_terms(terms, now);
        Cow::Owned(law)
    }

    pub(in crate::ledger) fn status(&self, now: Moment) -> ControlStatus {
        let (noted, since) = self.state;
        // A pause ends by itself.
        let state = self.current_state(now);
        let is_held_back = self.level.is_held_back(&self.terms);
        let accepted = self.plateau.accepted;
        let hold = Some(self.probe.hold_until).filter(|until| is_held_back && *until > now);
        let pause = self.pauses.until.filter(|until| *until > now);
        ControlStatus {
            state,
            since: if state == noted { since } else { now },
            plateau: (is_held_back && accepted > 0.0).then_some(accepted),
            overloaded_share: self.overloaded_share,
            is_inherited: !self.has_cut,
            is_slow: self.is_slow,
            until: pause.or(hold),
            base: (self.baseline.share > 0.0).then_some(self.baseline.share),
        }
    }

    /// Remembers since when the state is the same.
    pub(super) fn note_state(&mut self, now: Moment) {
        let state = self.current_state(now);
        if state != self.state.0 {
            self.state = (state, now);
        }
    }

    fn current_state(&self, now: Moment) -> ControlState {
        if self.pauses.is_paused(now) {
            ControlState::Paused
        } else if self.effective(now) >= self.terms.configured {
            ControlState::Open
        } else if self.probe.has_begun && self.level.is_held_back(&self.terms) {
            ControlState::Probing
        } else {
            ControlState::Held
        }
    }
}
