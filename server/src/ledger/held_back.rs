//! What keeps a holder from having what it wants: a pure function of what the books say, by the same rules as the grant itself.

use doorman_openapi::{Balance, HeldBackBy, Probability};

use super::{algorithm::Rule, decision::reaches, terms::Terms, undivided::Feedback};

/// Where a holder stands among the others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Stand {
    pub(super) wants: f64,
    pub(super) share: f64,
    /// The lease last granted, while it lasts.
    pub(super) has: f64,
    /// What it said that it cannot give back at once.
    pub(super) outstanding: f64,
    /// The most that it may be using now.
    pub(super) booked: f64,
    /// The most that it could have beside the others.
    pub(super) room: f64,
}

impl Stand {
    /// What it would be granted if it came back now and said that it has what it was granted, and as much outstanding as before: that
    /// counts as held, as far as the books know of it.
    pub(super) fn within_reach(&self, rule: &Rule) -> f64 {
        let outstanding = self.outstanding.min(self.booked.max(self.room));
        let held = self.has.max(outstanding);
        rule.round_down(self.share.min(held.max(self.room)).max(0.0))
    }

    /// What keeps it from having what it wants, on these terms.
    pub(super) fn held_back(
        &self,
        terms: &Terms,
        learning: bool,
        feedback: Feedback,
    ) -> Option<HeldBackBy> {
        if self.wants <= 0.0 {
            return None;
        }
        if terms.is_blocked() {
            return Some(HeldBackBy::Blocked);
        }
        // What all are told alike keeps back even those that have as large a lease as they want.
        let is_spent = |balance: Balance| balance.get() <= 0.0;
        let is_part = |probability: Probability| probability.get() < 1.0;
        if feedback.balance().is_some_and(is_spent) {
            return Some(HeldBackBy::Balance);
        }
        if feedback.admission_probability().is_some_and(is_part) {
            return Some(HeldBackBy::Suppressed);
        }
        if reaches(self.has, self.wants) {
            None
        } else if learning {
            Some(HeldBackBy::Learning)
        } else if !reaches(self.has, self.within_reach(terms.rule())) {
            Some(HeldBackBy::NotRefreshed)
        } else if !reaches(self.has, self.share) {
            Some(HeldBackBy::Others)
        } else {
            Some(HeldBackBy::Share)
        }
    }
}
