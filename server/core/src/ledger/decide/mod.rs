//! The decision on one request of a holder, in steps: a stale request gets its lease again; the
//! claim is confirmed, recorded and booked; the share is computed, covered by a lease of the parent
//! node and booked; the holder is told when to refresh, and others are hinted.

mod claim;
mod cover;
mod decider;
mod hints;
mod interval;
mod share;
mod stale;

use doorman_openapi::{Capacity, Moment, Seconds};

pub(super) use self::share::GrantInput;
use self::{
    claim::BookedClaim,
    cover::CoveredLease,
    decider::{Decider, exceeds},
};
use super::{
    keys::HolderKey,
    resource::decision::{Anomalies, Decision},
    resource::entry::LastDecision,
    resource::{Ask, Resource, schedule_expiry},
    terms::unit::AmountUnit,
};

impl Resource {
    /// `polls` tells whether the holder polls for hints, `capacity_before` the most that leases of
    /// a predecessor were together, if that is known.
    pub(super) fn refresh(
        &mut self,
        holder: HolderKey,
        polls: bool,
        ask: &Ask<'_>,
        capacity_before: impl Fn(AmountUnit) -> Option<f64>,
        now: Moment,
    ) -> Decision {
        self.end_learning(now);
        self.follow_parent(now);
        let unit = self.unit;
        let look_up = || unit.and_then(&capacity_before);
        let is_learning = self.is_learning(now);
        let (entry, is_new) = match self.entries.get_mut(holder) {
            Some(entry) => (entry, false),
            None => (self.entries.add(holder, ask.kind, ask.stamp.order), true),
        };
        let mut decider = Decider {
            ask,
            polls,
            now,
            entry,
            terms: &self.terms,
            learning_until: self.learning_until,
            is_learning,
            learning: self.learning.as_deref_mut(),
            predecessor: self.predecessor.as_mut(),
            booked: &mut self.booked,
            demands: &mut self.demands,
            signal: &mut self.signal,
            hints: &mut self.hints,
            parent: self.parent.as_deref_mut(),
            outcomes: &mut self.outcomes,
            effective: &mut self.effective,
            ignores_outcomes: false,
            covered_until: Moment::NEVER,
        };
        decider.covered_until = decider.covered_until();
        if !is_new && let Some(decision) = decider.restate_stale() {
            return decision;
        }
        let decision = decider.decide(look_up);
        schedule_expiry(decider.entry, &mut self.expiries, now);
        decision
    }
}

impl Decider<'_> {
    fn decide(&mut self, look_up: impl Fn() -> Option<f64>) -> Decision {
        // A holder that waited for the parent is registered already.
        let is_first = self.entry.last_decision.is_none();
        let was_confirmed = self.is_confirmed();
        let claims_exceed = self.confirm(&look_up);
        let has_jumped = self.record();
        let mut claim = self.claim(!was_confirmed, look_up);
        claim.anomalies.claims_exceed = claims_exceed;
        claim.anomalies.ignored_outcomes = self.ignores_outcomes;
        let mut lacks = 0.0;
        let is_restated = claim.asks_as_new_master || self.is_early(claim.is_first);
        let mut decision = if claim.asks_as_new_master {
            self.state_to_new_master(claim.is_unknown)
        } else if is_restated {
            self.restate()
        } else {
            let grant = self.share(&claim);
            lacks = grant.lacks;
            let covered = self.cover(&claim, &grant);
            self.lease(&claim, covered, is_first)
        };
        if self.is_learning {
            decision.withhold_zero();
        }
        self.entry.set_due(decision.refresh_interval, self.now);
        let amount = self.entry.booking.amount(self.now);
        self.set_booked(amount);
        claim.anomalies.over_capacity =
            !self.is_learning && !is_restated && self.is_over_capacity();
        decision.anomalies = claim.anomalies;
        decision.lacks = Some(lacks);
        self.hint(&decision, amount, lacks, has_jumped);
        decision
    }

    /// Books a covered share.
    fn lease(&mut self, claim: &BookedClaim, covered: CoveredLease, is_first: bool) -> Decision {
        let CoveredLease {
            lease,
            length,
            reason,
        } = covered;
        self.entry.booking.set_lease(lease);
        // A booking that a predecessor handed over is confirmed.
        self.entry.is_unconfirmed = claim.is_unknown
            && (self.entry.is_unconfirmed || exceeds(lease.amount, claim.booked_before));
        self.entry.last_decision = Some(LastDecision::new(self.now, reason, self.now));
        Decision {
            capacity: Capacity::saturating(lease.amount),
            lease_length: Seconds::saturating(length),
            refresh_interval: self.interval(claim, &covered, is_first),
            reason,
            booked_until: lease.end,
            anomalies: Anomalies::default(),
            lacks: None,
        }
    }
}
