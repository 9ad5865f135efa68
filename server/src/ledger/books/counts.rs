//! What is counted of the answers.

use doorman_openapi::{AlgorithmKind, Capacity};

use super::{Decision, Grant, LedgerStats};

impl LedgerStats {
    /// LedgerStats an answer.
    pub(super) fn count(&mut self, granted: &Grant, decision: &Decision) {
        let is_grant = granted.capacity > Capacity::ZERO;
        let mut add = |counter: fn(&mut Self) -> &mut u64, when: bool| {
            let counter = counter(self);
            *counter = counter.saturating_add(u64::from(when));
        };
        let kind = granted.algorithm.kind;
        add(|it| &mut it.unmatched, granted.template.is_none());
        add(|it| &mut it.excess_claims, decision.claimed_too_much);
        add(|it| &mut it.overused, decision.overused);
        add(
            |it| &mut it.no_algorithm_grants,
            is_grant && kind == AlgorithmKind::NoAlgorithm,
        );
        add(
            |it| &mut it.static_grants,
            is_grant && kind == AlgorithmKind::Static,
        );
        add(
            |it| &mut it.suppression_grants,
            is_grant && kind == AlgorithmKind::Suppression,
        );
        add(
            |it| &mut it.shared_bucket_grants,
            is_grant && kind == AlgorithmKind::SharedBucket,
        );
        add(|it| &mut it.decisions_during_cut, decision.is_over_capacity);
    }
}
