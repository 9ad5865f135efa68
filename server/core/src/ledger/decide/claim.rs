//! The claim of a holder: confirmed, recorded and booked.

use doorman_openapi::{Band, Capacity, Moment, RequestCount, Seconds};

use super::{decider::Decider, decider::exceeds};
use crate::ledger::{
    feedback::rules::FeedbackRule, feedback::terms::ControlTerms, resource::Ask, resource::Has,
    resource::Report, resource::booking::Hold, resource::decision::Anomalies,
    resource::effective::EffectiveCapacity, resource::effective::RequestFacts,
    resource::entry::Entry, resource::entry::UsageBaseline, resource::learning::Learning,
    resource::outcomes::Ignored, resource::outcomes::Tally, terms::Role,
};

/// A holder whose wants grow by this factor gets hints for the smallest part that it lacks.
const JUMP: f64 = 2.0;

/// A claim that is booked, and what the others leave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct BookedClaim {
    /// The amount that counts as the holder's.
    pub(super) held: f64,
    pub(super) booked_before: f64,
    /// The amount booked for the others.
    pub(super) others: f64,
    pub(super) available: f64,
    /// The most that a predecessor may have granted, of which today's capacity counts.
    pub(super) granted: f64,
    /// The most that all holders may have, before this claim was booked.
    pub(super) most_of_all: f64,
    /// Whether it is the first one that could be confirmed in learning mode.
    pub(super) is_first: bool,
    /// Whether the holder may have leases of a predecessor beside what is booked for it.
    pub(super) is_unknown: bool,
    pub(super) asks_as_new_master: bool,
    pub(super) anomalies: Anomalies,
}

impl Decider<'_> {
    /// Safety rule (`epoch-echo`): only a request that echoes this reign's epoch confirms a claim;
    /// others may be late. Returns whether the claims are together more than a predecessor can have
    /// granted.
    pub(super) fn confirm(&mut self, look_up: impl Fn() -> Option<f64>) -> bool {
        let granted = self.granted();
        if let (Some(learning), Has::Amount(has), true) = (
            &mut self.learning,
            self.ask.has,
            self.ask.stamp.echoes_epoch,
        ) {
            // Without `outstanding`: operations may outlive their lease.
            let pool = learning.confirm(self.entry.slot, has.get().min(granted));
            pool > 0.0 && pool > self.granted_before(look_up)
        } else {
            false
        }
    }

    /// Records the order, the demand and the usage of the request. Returns whether the demand has
    /// jumped.
    pub(super) fn record(&mut self) -> bool {
        let is_confirmed = self.is_confirmed();
        let (ask, now) = (self.ask, self.now);
        let entry = &mut *self.entry;
        if ask.stamp.order.epoch > entry.order.epoch {
            entry.predecessor_until = entry.booking.last_end();
        }
        // A master that does not know what the node holds may echo the epoch for other resources.
        if ask.stamp.echoes_epoch && ask.has != Has::Unknown {
            entry.predecessor_until = Moment::ORIGIN;
        }
        entry.order = ask.stamp.order.advance_from(entry.order);
        entry.retained_until = if is_confirmed {
            self.learning_until
        } else {
            Moment::ORIGIN
        };
        entry.outstanding = ask.outstanding;
        entry.polls = self.polls;
        entry.is_told = true;
        let predecessor = self.predecessor.as_ref();
        let baseline = if predecessor.is_some_and(|lost| now < lost.leases_end) {
            UsageBaseline::FirstReport
        } else {
            UsageBaseline::Zero
        };
        let used = entry.report_used(ask.used, baseline, self.terms.rate());
        if let Some(parent) = &mut self.parent {
            parent.used += used;
        }
        if let Some(report) = ask.report {
            self.record_outcomes(report, used);
        }
        let wanted_before = self.entry.wants();
        let capped = self.capped_bands();
        let bands = capped.as_deref().unwrap_or(ask.bands);
        self.entry.set_demand(bands, self.demands);
        let entry = &mut *self.entry;
        // Before the charge, which the demand may explain.
        self.signal.set_demand(self.demands, self.terms, now);
        self.signal.charge(used, self.terms, now);
        entry.wants() > JUMP * wanted_before
    }

    /// Records the outcomes of a request that is known to be newer than the last one, and tells the
    /// law of feedback what is new in them.
    fn record_outcomes(&mut self, report: &Report, used: f64) {
        if !self.ask.stamp.order.is_ordered() {
            return;
        }
        let (slot, now) = (self.entry.slot, self.now);
        let outcomes = self.outcomes.get_or_insert_default();
        let is_first = outcomes.of_holder(slot).is_none();
        let alone = self.effective.as_ref();
        let suffers_alone = alone.is_some_and(|it| it.suffers_alone(slot, now));
        let is_evidence = report.counts && !suffers_alone;
        let new = outcomes.report(slot, &report.outcomes, is_evidence, now);
        let has_law = self.terms.control().is_some();
        outcomes.count_ignored(Ignored::of(
            has_law,
            report.counts,
            suffers_alone,
            new.is_none(),
        ));
        if !report.counts {
            // Nodes do not know whose outcomes may move the capacity of the root.
            self.ignores_outcomes = is_first && has_law;
            return;
        }
        // Without the cost nobody knows how much of the lease was used.
        let new = new.filter(|_| self.ask.used.is_some());
        self.tell_law(report, new.as_ref(), used);
    }

    /// Tells the law of feedback what is new in a report of a holder whose outcomes count.
    fn tell_law(&mut self, report: &Report, new: Option<&Tally>, used: f64) {
        let (slot, now) = (self.entry.slot, self.now);
        let facts = RequestFacts {
            used,
            wants: self.ask.bands.iter().map(|band| band.wants.get()).sum(),
            // A holder may state more than it has.
            has: self.ask.has.amount().min(self.entry.booking.amount(now)),
            pause: report.pause.map(Seconds::get),
            seen: (report.seen).map(|seen| (seen.remaining.get(), seen.reset.get())),
        };
        if let Some(parent) = &mut self.parent {
            parent.record_target(slot, facts.pause, facts.seen, now);
        }
        let Some((terms, role)) = self.control() else {
            if !self
                .terms
                .tuning()
                .is_without(FeedbackRule::EndsWithTemplate)
            {
                *self.effective = None;
            }
            return;
        };
        let is_confirmed = self.is_confirmed();
        let created = || Box::new(EffectiveCapacity::new(terms, role, now));
        let effective = self.effective.get_or_insert_with(created);
        // A holder that counts none would make each request seem more expensive than it is.
        let outcomes = &report.outcomes;
        let counts_some = [outcomes.ok, outcomes.overloaded, outcomes.failed]
            .iter()
            .any(|count| *count > RequestCount::ZERO);
        effective.report(slot, new.filter(|_| counts_some), &facts, now);
        if !self.is_learning {
            return;
        }
        let is_same_unit = self.ask.unit.is_none() || self.ask.unit == self.terms.unit();
        if let (Some(echo), true) = (report.effective, is_same_unit) {
            effective.hear_echo(slot, echo.get());
        }
        if is_confirmed {
            effective.count_echo(slot, facts.has, self.booked.total(), now);
        }
    }

    /// The settings of the law of feedback. A node has them while the root acts by it.
    fn control(&self) -> Option<(ControlTerms, Role)> {
        match &self.parent {
            None => self.terms.control(),
            Some(parent) => parent.control(self.terms),
        }
    }

    /// The bands of a holder that suffers alone, as far as they count: the highest ones first.
    fn capped_bands(&self) -> Option<Vec<Band>> {
        let effective = self.effective.as_ref()?;
        let mut left = effective.demand_cap(self.entry.slot, self.now)?;
        let mut bands = self.ask.bands.to_vec();
        bands.sort_by_key(|band| std::cmp::Reverse(band.priority));
        for band in &mut bands {
            let wants = band.wants.get().min(left);
            left -= wants;
            band.wants = Capacity::saturating(wants);
        }
        Some(bands)
    }

    /// Books the claim.
    pub(super) fn claim(
        &mut self,
        was_unconfirmed: bool,
        look_up: impl Fn() -> Option<f64>,
    ) -> BookedClaim {
        let (ask, now) = (self.ask, self.now);
        let most_of_all = self.most_of_all();
        let is_first = self.is_learning && was_unconfirmed;
        let is_unknown = self.is_learning && self.confirmed().is_none();
        let booked_before = self.entry.booking.amount(now);
        let others = self.booked.total_except(self.entry.slot.index());
        // Safety rule: the node's holders may have it, and its master may not know them. So the
        // node gets no more than it claims, which is a part of that.
        let restored = self.entry.restored(now).map_or(0.0, |it| it.amount);
        let available = if restored > 0.0 {
            0.0
        } else {
            self.available(others)
        };
        let limit = self.claim_limit(is_first, booked_before, available);
        let has = ask.has.amount();
        let anomalies = Anomalies {
            excess_claim: exceeds(has, limit.amount)
                && (!is_first || exceeds(has, self.granted_before(look_up))),
            // The leases of a predecessor are unknown.
            overused: !self.is_learning && exceeds(ask.outstanding.get(), booked_before),
            ..Anomalies::default()
        };
        let outstanding = self.outstanding(booked_before);
        let held = book_claim(self.entry, ask, outstanding, limit, is_first, now);
        // Leases since the first request of this master of the node are its own, although it may
        // not have received the response.
        let is_of_predecessor = booked_before > 0.0 && now < self.entry.predecessor_until;
        // Safety rule: a late copy of an earlier claim may have made it.
        let is_unconfirmed = booked_before > 0.0 && self.entry.is_unconfirmed;
        BookedClaim {
            held,
            booked_before,
            others,
            available,
            granted: self.granted(),
            most_of_all,
            is_first,
            is_unknown,
            asks_as_new_master: ask.has == Has::Unknown
                && (is_unknown || is_of_predecessor || is_unconfirmed || restored > 0.0),
            anomalies,
        }
    }

    /// The state of learning mode, if the holder's claim is confirmed.
    pub(super) fn confirmed(&self) -> Option<&Learning> {
        let learning = self.learning.as_deref();
        learning.filter(|learning| learning.is_confirmed(self.entry.slot))
    }

    fn available(&self, others: f64) -> f64 {
        match self.confirmed() {
            Some(learning) => {
                let parent = self.parent.as_ref();
                let gained = parent.map_or(0.0, |parent| parent.gained(self.now));
                learning.available_beside_others(self.entry.slot, self.terms.capacity(), gained)
            }
            None => self.terms.available_beside(others),
        }
    }

    /// Safety rule (`claim-limit`): a claim counts up to what is booked for the holder, or else
    /// what the others leave. In learning mode neither is known at first, so it counts up to the
    /// capacity, and to what is booked if the capacity was lowered since: raised again, it would be
    /// leased twice.
    fn claim_limit(&self, is_first: bool, booked_before: f64, available: f64) -> Hold {
        if is_first && self.ask.has != Has::Unknown {
            return Hold {
                amount: self.granted().max(booked_before),
                end: self.learning_until,
            };
        }
        let known = booked_before.max(available);
        let limit = Hold::lease(known, self.terms.lease_length(), self.now);
        let parent = self.parent.as_ref();
        Hold {
            end: parent.map_or(limit.end, |it| it.end(limit.end, self.now)),
            ..limit
        }
    }

    /// Safety rule: what a predecessor leased beyond `has` is not in the pool, so nobody gets it
    /// before learning mode ends, and it has ended by then. Leased again, it would last longer. A
    /// lease on a claim that was not confirmed does not count: a late copy may have made it.
    fn outstanding(&self, booked_before: f64) -> f64 {
        let asked = self.ask.outstanding.get();
        match (self.is_learning, self.entry.is_unconfirmed) {
            (true, true) => 0.0,
            (true, false) => asked.min(booked_before),
            (false, _) => asked,
        }
    }

    /// The most that a predecessor may have granted, of which today's capacity counts.
    fn granted(&self) -> f64 {
        let parent = self.parent.as_ref();
        parent.map_or(self.terms.promised(), |it| it.granted_before(self.now))
    }

    /// The same by its own terms.
    fn granted_before(&mut self, look_up: impl Fn() -> Option<f64>) -> f64 {
        let granted = self.granted();
        let is_root = self.parent.is_none();
        let lost = self.predecessor.as_mut().filter(|_| is_root);
        lost.map_or(granted, |it| it.capacity(look_up))
    }
}

/// Books what a holder claims, up to a limit. Returns what it has.
///
/// The lease of a claim is unknown, so the claim lasts as long as any lease that is booked.
///
/// Safety rule (`outstanding`): operations under a lease of a predecessor may last as long as that
/// lease, although the holder has a shorter one by now. So the first claim lasts until the limit
/// ends, even where a lease was granted on a claim that was not confirmed.
fn book_claim(
    entry: &mut Entry,
    ask: &Ask<'_>,
    outstanding: f64,
    limit: Hold,
    is_first: bool,
    now: Moment,
) -> f64 {
    match ask.has {
        Has::Amount(has) => {
            let claim = has.get().max(outstanding).min(limit.amount);
            let most = claim.max(ask.may_have.min(limit.amount));
            // Safety rule: the new master of a node may claim less than its predecessor has handed
            // out, until it echoes the epoch. Until then nothing is lowered.
            let least = if now < entry.predecessor_until {
                entry.booking.amount(now)
            } else {
                entry.restored(now).map_or(0.0, |it| it.amount)
            };
            let booked = most.max(least);
            let known_end = entry.booking.last_end();
            let end = if known_end <= now {
                limit.end
            } else if is_first {
                known_end.max(limit.end)
            } else {
                known_end
            };
            entry.booking.set_claim(booked, end);
            entry.booking.claim(now).map_or(0.0, |_| claim)
        }
        // Safety rule (`own-leases-only`): a node that does not know what it has asserts nothing.
        Has::Unknown => entry.booking.amount(now),
    }
}
