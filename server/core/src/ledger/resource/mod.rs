//! Leases of one resource, and the decisions on them.

pub(in crate::ledger) mod booking;
pub(in crate::ledger) mod convert;
pub(in crate::ledger) mod decision;
pub(in crate::ledger) mod effective;
pub(in crate::ledger) mod entry;
pub(in crate::ledger) mod hint_state;
pub(in crate::ledger) mod learning;
pub(in crate::ledger) mod order;
pub(in crate::ledger) mod outcomes;
pub(in crate::ledger) mod parent;
pub(in crate::ledger) mod recent_demand;
pub(in crate::ledger) mod signal;
pub(in crate::ledger) mod spent;
mod target_says;
pub(in crate::ledger) mod under_parent;
pub(in crate::ledger) mod unit_change;
pub(in crate::ledger) mod unmet;
pub(in crate::ledger) mod users;

use doorman_openapi::{
    Balance, Band, Bucket, CLOCK_DRIFT, Capacity, FillLevel, HolderKind, Moment, Outcomes, Seconds,
    Seen,
};

use crate::ledger::{
    demands::DemandTree,
    feedback::record::ControlRecord,
    feedback::rules::FeedbackRule,
    feedback::terms::ControlTerms,
    keys::{EntrySlot, HolderKey},
    resource::booking::Hold,
    resource::decision::{Reporting, TOLERANCE, is_over_capacity},
    resource::effective::EffectiveCapacity,
    resource::entry::{Entries, Entry},
    resource::hint_state::HintState,
    resource::learning::Learning,
    resource::order::{RequestOrder, RequestStamp},
    resource::outcomes::ReportedOutcomes,
    resource::parent::ParentLease,
    resource::signal::{LostPredecessor, SharedSignal, Signal},
    resource::spent::Spent,
    resource::unit_change::UnitChange,
    resource::users::Users,
    store::sum_tree::SumTree,
    store::timers::Timers,
    terms::unit::AmountUnit,
    terms::{ResourceTerms, Role},
};

/// Expirations handled per request. A request adds at most one deadline, so they cannot pile up.
const EXPIRATIONS_PER_REQUEST: usize = 8;

#[derive(Debug, Clone, Copy)]
pub(in crate::ledger) struct Ask<'a> {
    pub(in crate::ledger) stamp: RequestStamp,
    pub(in crate::ledger) kind: HolderKind,
    pub(in crate::ledger) bands: &'a [Band],
    pub(in crate::ledger) has: Has,
    pub(in crate::ledger) outstanding: Capacity,
    pub(in crate::ledger) used: Option<Capacity>,
    /// The unit of the amounts that the request states.
    pub(in crate::ledger) unit: Option<AmountUnit>,
    /// The bucket of a client that saves up for long.
    pub(in crate::ledger) bucket: Option<Bucket>,
    pub(in crate::ledger) report: Option<&'a Report>,
    /// The most that the holder may have, if its claim can be read in several units; else 0.
    pub(in crate::ledger) may_have: f64,
    /// Whether the holder has not heard yet of the unit of the resource.
    pub(in crate::ledger) is_first_in_unit: bool,
    /// When the lease may end of a client that the holder replaces.
    pub(in crate::ledger) awaits: Option<Moment>,
}

/// The report of a holder about its requests.
#[derive(Debug, Clone)]
pub(in crate::ledger) struct Report {
    pub(in crate::ledger) outcomes: Outcomes,
    /// Seconds to wait, by the target.
    pub(in crate::ledger) pause: Option<Seconds>,
    pub(in crate::ledger) seen: Option<Seen>,
    /// The effective capacity that the holder was told.
    pub(in crate::ledger) effective: Option<Capacity>,
    /// Whether it may move the capacity.
    pub(in crate::ledger) counts: bool,
}

/// The amount that a holder claims to have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::ledger) enum Has {
    Amount(Capacity),
    /// The sender is a node's new master.
    Unknown,
}

impl Ask<'_> {
    /// The same request, which awaits the end of a lease.
    pub(in crate::ledger) fn awaiting(self, awaits: Option<Moment>) -> Self {
        Self { awaits, ..self }
    }
}

impl Has {
    pub(in crate::ledger) fn amount(self) -> f64 {
        match self {
            Self::Amount(amount) => amount.get(),
            Self::Unknown => 0.0,
        }
    }
}

#[derive(Debug, Clone)]
pub(in crate::ledger) struct Resource {
    pub(in crate::ledger) terms: ResourceTerms,
    /// The unit of all amounts; `None` before it is known.
    pub(in crate::ledger) unit: Option<AmountUnit>,
    /// Until then holders may have leases that they were told in another unit.
    pub(in crate::ledger) unit_changed_until: Moment,
    pub(in crate::ledger) learning_until: Moment,
    /// Present in learning mode, unless its end was moved: then no claim is confirmed any more.
    pub(in crate::ledger) learning: Option<Box<Learning>>,
    pub(in crate::ledger) predecessor: Option<LostPredecessor>,
    pub(in crate::ledger) entries: Entries,
    /// The booked amount per entry.
    pub(in crate::ledger) booked: SumTree,
    pub(in crate::ledger) demands: DemandTree,
    pub(in crate::ledger) signal: SharedSignal,
    pub(in crate::ledger) expiries: Timers,
    /// Present once a holder has polled.
    pub(in crate::ledger) hints: Option<Box<HintState>>,
    /// Present if the capacity is leased from a parent node.
    pub(in crate::ledger) parent: Option<Box<ParentLease>>,
    /// Present once a holder has stated a bucket.
    pub(in crate::ledger) spent: Option<Box<Spent>>,
    /// Present once a holder has reported outcomes.
    pub(in crate::ledger) outcomes: Option<Box<ReportedOutcomes>>,
    /// Present with `feedback`, once a holder whose outcomes count has reported some.
    pub(in crate::ledger) effective: Option<Box<EffectiveCapacity>>,
    /// Present if the use of ended holders is logged.
    pub(in crate::ledger) users: Option<Box<Users>>,
}

impl Resource {
    pub(in crate::ledger) fn new(
        terms: ResourceTerms,
        learning_until: Moment,
        predecessor: Option<LostPredecessor>,
        now: Moment,
    ) -> Self {
        Self {
            signal: SharedSignal::new(&terms, predecessor, now),
            demands: DemandTree::new(terms.rule().reads_priorities()),
            unit: terms.unit(),
            unit_changed_until: Moment::ORIGIN,
            terms,
            learning_until,
            learning: (now < learning_until).then(Box::default),
            predecessor,
            entries: Entries::default(),
            booked: SumTree::default(),
            expiries: Timers::default(),
            hints: None,
            parent: None,
            spent: None,
            outcomes: None,
            effective: None,
            users: None,
        }
    }

    /// Divides the capacity of the current lease from the parent node.
    pub(in crate::ledger) fn follow_parent(&mut self, now: Moment) {
        if let Some(parent) = &self.parent {
            self.terms.set_leased(parent.capacity(now));
        }
    }

    /// Existing leases stay until their next refresh or end. After a change of the period they are
    /// the same rates as before.
    pub(in crate::ledger) fn set_terms(
        &mut self,
        terms: ResourceTerms,
        learning_until: Moment,
        now: Moment,
    ) {
        let factor = self.factor_to(&terms);
        self.refill_free(now);
        self.signal.set_terms(&self.terms, &terms, factor, now);
        self.terms = terms;
        let control = self.control();
        match (&mut self.effective, control) {
            (Some(effective), Some((terms, role))) => effective.set_terms(terms, role, now),
            (_, None)
                if self
                    .terms
                    .tuning()
                    .is_without(FeedbackRule::EndsWithTemplate) => {}
            (effective, _) => *effective = None,
        }
        self.adopt_effective(now);
        let reads_priorities = self.terms.rule().reads_priorities();
        if reads_priorities != self.demands.is_by_priority() {
            self.reorder_demands(reads_priorities, now);
        }
        if let Some(unit) = self.terms.unit().filter(|unit| self.unit != Some(*unit)) {
            self.change_unit(unit, now);
        }
        self.signal.set_demand(&self.demands, &self.terms, now);
        if self.learning_until != learning_until {
            // Confirmed entries are retained only until the old end.
            self.learning = None;
            if let Some(effective) = &mut self.effective {
                effective.end_learning(now);
            }
            self.learning_until = learning_until;
        }
    }

    /// The same for terms of a parent node, which may tell that this master has to learn.
    pub(in crate::ledger) fn set_terms_of_parent(
        &mut self,
        terms: ResourceTerms,
        learning_until: Moment,
        now: Moment,
    ) {
        self.set_terms(terms, self.learning_until, now);
        self.learning_until = learning_until;
        if self.is_learning(now) {
            self.learning.get_or_insert_default();
        } else {
            self.learning = None;
        }
    }

    /// Applies the law of feedback, if it is time. Returns whether holders may lease another
    /// amount.
    pub(in crate::ledger) fn apply_feedback(&mut self, now: Moment) -> bool {
        let wants = self.sum_wants();
        let Some(effective) = &mut self.effective else {
            return false;
        };
        effective.tick(&self.entries, &self.booked, wants, self.learning_until, now);
        self.adopt_effective(now)
    }

    /// The settings of the law of feedback. A node has them while the root acts by it.
    pub(in crate::ledger) fn control(&self) -> Option<(ControlTerms, Role)> {
        match &self.parent {
            None => self.terms.control(),
            Some(parent) => parent.control(&self.terms),
        }
    }

    /// The answer to a holder that reports outcomes. A node passes on that of its parent.
    /// `echo` is what the holder was told before.
    pub(in crate::ledger) fn reporting(&self, echo: Option<Capacity>, now: Moment) -> Reporting {
        if let Some(parent) = &self.parent {
            return parent.reporting();
        }
        // With `mode: observe` nothing is to be continued.
        let acting = (self.effective.as_ref()).filter(|it| it.role() == Role::Act);
        // A master that learns knows no better than the holder.
        let known = acting.filter(|it| !self.is_learning(now) || it.is_level_known());
        // Not what a pause or headers leave of it: a successor must not take that for the level.
        let effective = known.map(|it| Capacity::saturating(it.level()));
        Reporting {
            is_early: self.terms.control().is_some(),
            is_ignored: false,
            effective: effective.or(echo.filter(|_| self.is_learning(now))),
        }
    }

    /// Continues the law of feedback of a server that stopped at `stopped`.
    pub(in crate::ledger) fn restore_effective(&mut self, record: &ControlRecord, stopped: Moment) {
        if let Some((terms, role)) = self.terms.control() {
            let restored = EffectiveCapacity::restore(record, terms, role, stopped);
            self.effective = Some(Box::new(restored));
            self.adopt_effective(stopped);
        }
    }

    fn adopt_effective(&mut self, now: Moment) -> bool {
        let Some(effective) = &self.effective else {
            return false;
        };
        let (leased, level) = (effective.leased(now), effective.level());
        leased.is_some_and(|leased| {
            self.refill_free(now);
            self.terms.set_effective(leased, level)
        })
    }

    /// Records the demand of a holder without a decision: the parent node is asked first. Its claim
    /// counts once the parent has said what the node has.
    pub(in crate::ledger) fn register(&mut self, holder: HolderKey, ask: &Ask<'_>, now: Moment) {
        let entry = match self.entries.get_mut(holder) {
            Some(entry) => entry,
            None => {
                let none = RequestOrder::of_client(None);
                self.entries.add(holder, ask.kind, none)
            }
        };
        if ask.stamp.is_stale(entry.order, false) {
            return;
        }
        if self.unit.is_none() {
            let stated = ask.unit.map(UnitChange::new);
            entry.unit_change = stated.map(Box::new);
        }
        entry.set_demand(ask.bands, &mut self.demands);
        if entry.booking.next_end(now).is_none() {
            // Without a deadline the entry would stay forever.
            let nothing = Hold::lease(0.0, self.terms.lease_length(), now);
            entry.booking.set_lease(nothing);
        }
        let amount = entry.booking.amount(now);
        self.booked.set(entry.slot.index(), amount);
        schedule_expiry(entry, &mut self.expiries, now);
    }

    /// Orders the demands by priority, or no longer. Takes time in proportion to the number of
    /// holders.
    fn reorder_demands(&mut self, by_priority: bool, now: Moment) {
        self.demands = DemandTree::new(by_priority);
        for entry in self.entries.iter_mut() {
            entry.move_demand(&mut self.demands);
            if let Some(hints) = &mut self.hints {
                hints.track(entry, entry.booking.amount(now));
            }
        }
    }

    pub(in crate::ledger) fn is_learning(&self, now: Moment) -> bool {
        now < self.learning_until
    }

    pub(in crate::ledger) fn is_confirmed(&self, entry: &Entry) -> bool {
        self.learning
            .as_ref()
            .is_some_and(|learning| learning.is_confirmed(entry.slot))
    }

    pub(in crate::ledger) fn end_learning(&mut self, now: Moment) {
        if !self.is_learning(now)
            && self.learning.take().is_some()
            && let Some(effective) = &mut self.effective
        {
            effective.end_learning(now);
        }
    }

    /// Whether all holders and their shares are known: at the latest when learning mode ends, or
    /// when all that a predecessor may have granted is confirmed, and nothing else is booked.
    pub(in crate::ledger) fn are_shares_known(&self, now: Moment) -> bool {
        let Some(learning) = self.learning.as_ref().filter(|_| self.is_learning(now)) else {
            return !self.is_learning(now);
        };
        let granted = match &self.parent {
            Some(parent) => parent.stated(),
            None => self.terms.promised(),
        };
        granted > 0.0
            && learning.unheard(granted) <= granted * TOLERANCE
            && learning.unconfirmed(self.booked.total()) <= granted * TOLERANCE
    }

    /// Whether a holder has a lease, even on 0, or a claim.
    pub(in crate::ledger) fn has_lease(&self, holder: HolderKey, now: Moment) -> bool {
        self.entries
            .get(holder)
            .is_some_and(|entry| now < entry.booking.last_end())
    }

    /// When an entry changes next, or the resource can be dropped.
    pub(in crate::ledger) fn next_deadline(&self) -> Option<Moment> {
        let droppable = || self.droppable_from();
        let end = self.expiries.next_at();
        let end = end.or_else(|| self.entries.is_empty().then(droppable));
        let tick = self.effective.as_ref().map(|it| it.next_tick());
        let report = self.parent.as_ref().map(|it| it.reported.report_at);
        let report = report.filter(|at| *at < Moment::NEVER);
        end.into_iter().chain(tick).chain(report).min()
    }

    /// Whether dropping the resource loses nothing.
    pub(in crate::ledger) fn is_droppable(&self, now: Moment) -> bool {
        self.entries.is_empty() && self.droppable_from() <= now
    }

    /// Safety rule: a node that learns does not tell its parent that it has nothing. Holders may
    /// have leases of a predecessor.
    pub(in crate::ledger) fn droppable_from(&self) -> Moment {
        let droppable = self.signal.droppable_from(&self.terms);
        let droppable = droppable.max(self.full_at());
        let kept = self.effective.as_ref().map(|it| it.kept_until());
        let droppable = droppable.max(kept.unwrap_or(Moment::ORIGIN));
        match self.parent {
            Some(_) => droppable.max(self.learning_until),
            None => droppable,
        }
    }

    pub(in crate::ledger) fn current_signal(&self, now: Moment) -> Signal {
        self.signal.current(&self.terms, now)
    }

    pub(in crate::ledger) fn sum_has(&self) -> f64 {
        self.booked.total()
    }

    pub(in crate::ledger) fn is_over_capacity(&self) -> bool {
        is_over_capacity(&self.terms, &self.booked)
    }

    pub(in crate::ledger) fn sum_wants(&self) -> f64 {
        self.demands.total().wants
    }

    /// Where nodes split the demand of their clients: at the levels of the parent, which count the
    /// demand of the whole tree, and at those of this node where the parent has none.
    pub(in crate::ledger) fn levels(&self) -> Vec<FillLevel> {
        let own = self.terms.rule().levels(&self.demands);
        let Some(parent) = &self.parent else {
            return own;
        };
        let mut levels = parent.levels().to_vec();
        let is_from_parent = |of: &FillLevel| levels.iter().any(|it| it.priority == of.priority);
        let rest: Vec<_> = own.into_iter().filter(|own| !is_from_parent(own)).collect();
        levels.extend(rest);
        levels
    }

    /// The number of clients, including those behind nodes.
    pub(in crate::ledger) fn clients(&self) -> f64 {
        self.demands.clients()
    }

    /// Releases all that a holder has, with the tokens in its bucket if it states them, and returns
    /// whether it had a lease. A stale release is ignored.
    pub(in crate::ledger) fn release(
        &mut self,
        holder: HolderKey,
        stamp: RequestStamp,
        tokens: Option<Balance>,
        now: Moment,
    ) -> bool {
        self.end_learning(now);
        let Some(entry) = self.entries.get_mut(holder) else {
            return false;
        };
        let learning = self.learning.as_deref();
        let is_confirmed = learning.is_some_and(|it| it.is_confirmed(entry.slot));
        if stamp.is_stale(entry.order, is_confirmed) {
            return false;
        }
        entry.order = stamp.order.advance_from(entry.order);
        let slot = entry.slot;
        if let Some(tokens) = tokens {
            self.note_tokens(slot, tokens, now);
        }
        self.end_lease(holder, now)
    }

    /// Ends the lease of a holder and withdraws its demand. Returns whether it had one.
    pub(in crate::ledger) fn end_lease(&mut self, holder: HolderKey, now: Moment) -> bool {
        let Some(slot) = self.entries.get(holder).map(|entry| entry.slot) else {
            return false;
        };
        self.note_use(slot, now);
        self.note_end_of_lease(slot, now);
        let Some(entry) = self.entries.get_mut(holder) else {
            return false;
        };
        let learning = self.learning.as_deref_mut();
        let confirmed = learning.filter(|learning| learning.is_confirmed(entry.slot));
        let had_lease = entry.booking.lease(now).is_some();
        entry.clear(&mut self.demands);
        entry.free_released(now);
        let amount = entry.booking.amount(now);
        self.signal.set_demand(&self.demands, &self.terms, now);
        self.booked.set(entry.slot.index(), amount);
        if let Some(hints) = &mut self.hints {
            hints.report(entry, amount, 0.0);
        }
        let mut retained_until = Moment::ORIGIN;
        if entry.order.is_ordered() {
            retained_until = now.after_seconds(self.terms.lease_length() * CLOCK_DRIFT);
        }
        if let Some(learning) = confirmed {
            learning.set_booked(entry.slot, amount);
            retained_until = retained_until.max(self.learning_until);
        }
        entry.retained_until = retained_until;
        if entry.next_end(now).is_some() {
            schedule_expiry(entry, &mut self.expiries, now);
        } else {
            self.remove(holder, now);
        }
        had_lease
    }

    /// Handles some expirations. Calls `ended` for each holder whose lease has ended, with whether
    /// its entry is retained.
    pub(in crate::ledger) fn expire(
        &mut self,
        now: Moment,
        mut ended: impl FnMut(HolderKey, bool),
    ) {
        self.end_learning(now);
        self.refill_free(now);
        for _ in 0..EXPIRATIONS_PER_REQUEST {
            let Some(slot) = self.expiries.pop_due(now) else {
                return;
            };
            let slot = EntrySlot::new(slot);
            if self
                .entries
                .at(slot)
                .is_some_and(|it| it.booking.lease(now).is_none())
            {
                self.note_use(slot, now);
                self.note_end_of_lease(slot, now);
            }
            let Some(entry) = self.entries.at_mut(slot) else {
                continue;
            };
            let amount = entry.booking.amount(now);
            if let Some(hints) = &mut self.hints
                && amount < self.booked.get(entry.slot.index())
            {
                // The amount to be returned is free by now.
                hints.settle(entry.slot);
            }
            self.booked.set(entry.slot.index(), amount);
            if let Some(learning) = &mut self.learning {
                learning.set_booked(entry.slot, amount);
            }
            if entry.next_end(now).is_some() {
                if entry.booking.next_end(now).is_none() && !entry.is_cleared() {
                    entry.clear(&mut self.demands);
                    ended(entry.holder, true);
                    self.signal.set_demand(&self.demands, &self.terms, now);
                    if let Some(hints) = &mut self.hints {
                        hints.report(entry, amount, 0.0);
                    }
                }
                if let Some(hints) = &mut self.hints {
                    hints.track(entry, amount);
                }
                schedule_expiry(entry, &mut self.expiries, now);
            } else {
                let holder = entry.holder;
                self.remove(holder, now);
                ended(holder, false);
            }
        }
    }

    /// Frees the rest of the bucket of a lease that ends, and forgets its outcomes.
    fn note_end_of_lease(&mut self, slot: EntrySlot, now: Moment) {
        self.give_back_bucket(slot, now);
        if let Some(outcomes) = &mut self.outcomes {
            outcomes.end(slot);
        }
        if let Some(effective) = &mut self.effective {
            effective.end(slot);
        }
    }

    /// Notes what a holder has used whose lease ends.
    fn note_use(&mut self, slot: EntrySlot, now: Moment) {
        let (Some(users), Some(entry)) = (&mut self.users, self.entries.at(slot)) else {
            return;
        };
        let outcomes = self.outcomes.as_ref().and_then(|it| it.of_holder(slot));
        users.end(slot, entry.used.get(), outcomes.map(|it| it.totals), now);
    }

    fn remove(&mut self, holder: HolderKey, now: Moment) {
        if let Some(entry) = self.entries.get(holder) {
            self.note_use(entry.slot, now);
        }
        if let Some(mut entry) = self.entries.remove(holder) {
            self.note_end_of_lease(entry.slot, now);
            entry.remove_demand(&mut self.demands);
            self.expiries.set(entry.slot.index(), Moment::NEVER);
            self.signal.set_demand(&self.demands, &self.terms, now);
            self.booked.set(entry.slot.index(), 0.0);
            if let Some(hints) = &mut self.hints {
                hints.report(&mut entry, 0.0, 0.0);
            }
        }
    }
}

/// Sets the next deadline of an entry, unless an earlier one is set: renewals change none.
pub(in crate::ledger) fn schedule_expiry(entry: &Entry, expiries: &mut Timers, now: Moment) {
    let slot = entry.slot.index();
    if let Some(end) = entry.next_end(now)
        && end < expiries.get(slot)
    {
        expiries.set(slot, end);
    }
}
