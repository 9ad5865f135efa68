//! The share of a holder, and the part of it that it gets.

use doorman_openapi::{HolderKind, Reason};

use super::{claim::BookedClaim, decider::Decider};
use crate::ledger::{
    algorithm::{Polling, ShareRule},
    resource::Has,
    resource::decision::reaches,
};

/// The amount that a holder would get if this server's capacity were its own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct UncoveredGrant {
    pub(super) capacity: f64,
    pub(super) reason: Reason,
    /// The part of its share that a pending holder lacks.
    pub(super) lacks: f64,
}

impl Decider<'_> {
    pub(super) fn share(&self, claim: &BookedClaim) -> UncoveredGrant {
        let wants = self.entry.wants();
        let parent = self.parent.as_ref();
        let mut goal = wants;
        let (capacity, reason) = if self.terms.is_blocked() {
            (0.0, Reason::Blocked)
        } else if wants > 0.0 && parent.is_some_and(|it| it.has_temporary_zero_lease(self.now)) {
            (claim.held.min(wants), Reason::Pending)
        } else if claim.is_unknown {
            let kept = keep_while_learning(claim.held, claim.others, claim.granted);
            let reason = if reaches(kept, wants) {
                Reason::Granted
            } else {
                Reason::Pending
            };
            (kept, reason)
        } else {
            let divided = self.divide(claim);
            goal = divided.goal;
            divided.input.decide(self.terms.rule())
        };
        // To a node that does not know what it has, a part could seem to be what it has.
        let capacity = if self.is_part_of_unknown(reason) {
            0.0
        } else {
            capacity
        };
        let lacks = if reason == Reason::Pending {
            (goal - capacity).max(0.0)
        } else {
            0.0
        };
        UncoveredGrant {
            capacity,
            reason,
            lacks,
        }
    }

    pub(super) fn is_part_of_unknown(&self, reason: Reason) -> bool {
        self.ask.has == Has::Unknown && reason == Reason::Pending
    }

    fn divide(&self, claim: &BookedClaim) -> Divided {
        let (entry, demands) = (&*self.entry, &*self.demands);
        let rule = self.terms.rule();
        let wants = entry.wants();
        // A node without demand has no use for a surplus.
        let may_have_surplus = wants > 0.0 || self.ask.kind == HolderKind::Client;
        let polling = if may_have_surplus && !self.is_learning {
            entry.polling(demands)
        } else {
            Polling::No
        };
        let mut share = rule.share(demands, entry.demands(), polling);
        let goal = share.min(wants);
        let hints = self.hints.as_ref();
        if self.is_learning {
            // The pool has to serve newcomers, so nobody gets a surplus. A holder keeps the one
            // that it had, until another one lacks capacity.
            let usual = rule.share(demands, entry.demands(), Polling::Yes);
            let keeps = hints.is_some_and(|it| it.nobody_else_lacks(entry));
            if keeps && rule.divides() {
                share = share.max(claim.held.min(usual));
            }
        }
        let input = GrantInput {
            wants,
            share,
            held: claim.held,
            available: claim.available,
        };
        Divided { input, goal }
    }
}

/// The result of the algorithm.
struct Divided {
    input: GrantInput,
    /// The part of the demand that the share serves, without a surplus.
    goal: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::ledger) struct GrantInput {
    pub(in crate::ledger) wants: f64,
    pub(in crate::ledger) share: f64,
    pub(in crate::ledger) held: f64,
    pub(in crate::ledger) available: f64,
}

impl GrantInput {
    /// Safety rule (`grant-cap`): a grant exceeds neither the share nor the larger of what the
    /// holder has and what is available. A holder above its share shrinks to it, and others get
    /// that capacity only once the holder has reported it as given up.
    pub(in crate::ledger) fn grant(&self, rule: &ShareRule) -> f64 {
        rule.round_down(self.share.min(self.held.max(self.available)).max(0.0))
    }

    pub(in crate::ledger) fn decide(&self, rule: &ShareRule) -> (f64, Reason) {
        let capacity = self.grant(rule);
        let reason = if reaches(capacity, self.wants) {
            Reason::Granted
        } else if reaches(capacity, self.share) {
            Reason::Share
        } else {
            Reason::Pending
        };
        (capacity, reason)
    }
}

/// Safety rule (`learning-mode`): in learning mode a holder keeps what it claims until its claim is
/// confirmed. Claims above what was `granted`, at most, are scaled down.
fn keep_while_learning(held: f64, others: f64, granted: f64) -> f64 {
    let claimed = held + others;
    if claimed > granted {
        held * (granted / claimed)
    } else {
        held
    }
}
