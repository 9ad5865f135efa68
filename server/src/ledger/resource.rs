//! Leases of one resource, and the decisions on them.

use doorman_openapi::{
    Band, CLOCK_DRIFT, Capacity, FillLevel, HolderKind, Moment, Reason, Seconds,
};

use super::{
    booking::Hold,
    decision::{
        Anomalies, Decision, GrantInput, TOLERANCE, is_over_capacity, keep_while_learning, reaches,
        report_to_new_master, restate_lease,
    },
    demands::DemandTree,
    entry::{Entries, Entry, LastDecision, UsageBaseline},
    expiry_heap::ExpiryHeap,
    feedback::{Feedback, LostPredecessor, SharedFeedback},
    hint_state::{HintState, is_worth_a_hint},
    keys::HolderKey,
    learning::Learning,
    order::{RequestOrder, RequestStamp},
    parent::ParentLease,
    sum_tree::SumTree,
    terms::ResourceTerms,
    units::{AmountUnit, UnitChange},
};

/// Holders need not report at once that they gave up less than this part of the limit, unless they
/// were told to.
const NOTABLE: f64 = 0.05;

/// If demand exceeds the capacity, holders report soon that they gave up more than this part of it.
const AWAITED: f64 = 0.005;

/// When a holder reports what it gave up, in seconds, while the node owes it to its parent, and
/// when a node confirms its claim.
pub(super) const NODE_INTERVAL: f64 = 0.1;

/// A holder whose wants grow by this factor gets hints for the smallest part that it lacks.
const JUMP: f64 = 2.0;

/// Expirations handled per request. A request adds at most one deadline, so they cannot pile up.
const EXPIRATIONS_PER_REQUEST: usize = 8;

#[derive(Debug, Clone, Copy)]
pub(super) struct Ask<'a> {
    pub(super) stamp: RequestStamp,
    pub(super) kind: HolderKind,
    pub(super) bands: &'a [Band],
    pub(super) has: Has,
    pub(super) outstanding: Capacity,
    pub(super) used: Option<Capacity>,
    /// The unit of the amounts that the request states.
    pub(super) unit: Option<AmountUnit>,
    /// The most that the holder may have, if its claim can be read in several units; else 0.
    pub(super) may_have: f64,
    /// Whether the holder has not heard yet of the unit of the resource.
    pub(super) is_first_in_unit: bool,
}

/// The amount that a holder claims to have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Has {
    Amount(Capacity),
    /// The sender is a node's new master.
    Unknown,
}

impl Has {
    pub(super) fn amount(self) -> f64 {
        match self {
            Self::Amount(amount) => amount.get(),
            Self::Unknown => 0.0,
        }
    }
}

#[derive(Debug)]
pub(super) struct Resource {
    pub(super) terms: ResourceTerms,
    /// The unit of all amounts; `None` before it is known.
    pub(super) unit: Option<AmountUnit>,
    /// Until then holders may have leases that they were told in another unit.
    pub(super) unit_changed_until: Moment,
    pub(super) learning_until: Moment,
    /// Present in learning mode, unless its end was moved: then no claim is confirmed any more.
    pub(super) learning: Option<Box<Learning>>,
    pub(super) predecessor: Option<LostPredecessor>,
    pub(super) entries: Entries,
    /// The booked amount per entry.
    pub(super) booked: SumTree,
    pub(super) demands: DemandTree,
    pub(super) feedback: SharedFeedback,
    pub(super) expiries: ExpiryHeap<HolderKey>,
    /// Present once a holder has polled.
    pub(super) hints: Option<Box<HintState>>,
    /// Present if the capacity is leased from a parent node.
    pub(super) parent: Option<Box<ParentLease>>,
}

impl Resource {
    pub(super) fn new(
        terms: ResourceTerms,
        learning_until: Moment,
        predecessor: Option<LostPredecessor>,
        now: Moment,
    ) -> Self {
        Self {
            feedback: SharedFeedback::new(&terms, predecessor, now),
            demands: DemandTree::new(terms.rule().reads_priorities()),
            unit: terms.unit(),
            unit_changed_until: Moment::ORIGIN,
            terms,
            learning_until,
            learning: (now < learning_until).then(Box::default),
            predecessor,
            entries: Entries::default(),
            booked: SumTree::default(),
            expiries: ExpiryHeap::default(),
            hints: None,
            parent: None,
        }
    }

    /// Divides the capacity of the current lease from the parent node.
    pub(super) fn follow_parent(&mut self, now: Moment) {
        if let Some(parent) = &self.parent {
            self.terms.set_leased(parent.capacity(now));
        }
    }

    /// Existing leases stay until their next refresh or end. After a change of the period they are
    /// the same rates as before.
    pub(super) fn set_terms(&mut self, terms: ResourceTerms, learning_until: Moment, now: Moment) {
        let factor = self.factor_to(&terms);
        self.feedback.set_terms(&self.terms, &terms, factor, now);
        self.terms = terms;
        let reads_priorities = self.terms.rule().reads_priorities();
        if reads_priorities != self.demands.is_by_priority() {
            self.reorder_demands(reads_priorities, now);
        }
        if let Some(unit) = self.terms.unit().filter(|unit| self.unit != Some(*unit)) {
            self.change_unit(unit, now);
        }
        self.feedback
            .set_demand(self.demands.total().wants, &self.terms, now);
        if self.learning_until != learning_until {
            // Confirmed entries are retained only until the old end.
            self.learning = None;
            self.learning_until = learning_until;
        }
    }

    /// The same for terms of a parent node, which may tell that this master has to learn.
    pub(super) fn set_terms_of_parent(
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

    /// Records the demand of a holder without a decision: the parent node is asked first. Its claim
    /// counts once the parent has said what the node has.
    pub(super) fn register(&mut self, holder: HolderKey, ask: &Ask<'_>, now: Moment) {
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
        if let Some(hints) = &mut self.hints {
            hints.bands = by_priority.then(Box::default);
        }
        for entry in self.entries.iter_mut() {
            entry.move_demand(&mut self.demands);
            if let Some(hints) = &mut self.hints {
                hints.track(entry, entry.booking.amount(now));
            }
        }
    }

    pub(super) fn is_learning(&self, now: Moment) -> bool {
        now < self.learning_until
    }

    pub(super) fn is_confirmed(&self, entry: &Entry) -> bool {
        self.learning
            .as_ref()
            .is_some_and(|learning| learning.is_confirmed(entry.slot))
    }

    fn end_learning(&mut self, now: Moment) {
        if !self.is_learning(now) {
            self.learning = None;
        }
    }

    /// Whether all holders and their shares are known: at the latest when learning mode ends, or
    /// when all that a predecessor may have granted is confirmed, and nothing else is booked.
    pub(super) fn are_shares_known(&self, now: Moment) -> bool {
        let Some(learning) = self.learning.as_ref().filter(|_| self.is_learning(now)) else {
            return !self.is_learning(now);
        };
        let granted = match &self.parent {
            Some(parent) => parent.stated(),
            None => self.terms.capacity(),
        };
        granted > 0.0
            && learning.unheard(granted) <= granted * TOLERANCE
            && learning.unconfirmed(self.booked.total()) <= granted * TOLERANCE
    }

    /// Whether a holder has a lease, even on 0, or a claim.
    pub(super) fn has_lease(&self, holder: HolderKey, now: Moment) -> bool {
        self.entries
            .get(holder)
            .is_some_and(|entry| now < entry.booking.last_end())
    }

    /// When an entry changes next, or the resource can be dropped.
    pub(super) fn next_deadline(&self) -> Option<Moment> {
        let droppable = || self.droppable_from();
        self.expiries
            .next_at()
            .or_else(|| self.entries.is_empty().then(droppable))
    }

    /// Whether dropping the resource loses nothing.
    pub(super) fn is_droppable(&self, now: Moment) -> bool {
        self.entries.is_empty() && self.droppable_from() <= now
    }

    /// Safety rule: a node that learns does not tell its parent that it has nothing. Holders may
    /// have leases of a predecessor.
    pub(super) fn droppable_from(&self) -> Moment {
        let droppable = self.feedback.droppable_from(&self.terms);
        match self.parent {
            Some(_) => droppable.max(self.learning_until),
            None => droppable,
        }
    }

    pub(super) fn current_feedback(&self, now: Moment) -> Feedback {
        self.feedback.current(&self.terms, now)
    }

    pub(super) fn sum_has(&self) -> f64 {
        self.booked.total()
    }

    pub(super) fn is_over_capacity(&self) -> bool {
        is_over_capacity(&self.terms, &self.booked)
    }

    pub(super) fn sum_wants(&self) -> f64 {
        self.demands.total().wants
    }

    /// Where nodes split the demand of their clients: at the levels of the parent, which count the
    /// demand of the whole tree, and at those of this node where the parent has none.
    pub(super) fn levels(&self) -> Vec<FillLevel> {
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
    pub(super) fn clients(&self) -> f64 {
        self.demands.clients()
    }

    /// `polls` tells whether the holder polls for hints, `capacity_before` the most that leases of
    /// a predecessor were together, if that is known.
    #[expect(clippy::too_many_lines, reason = "not yet cut into its steps")]
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
        let is_learning = self.is_learning(now);
        let unit = self.unit;
        let look_up = || unit.and_then(&capacity_before);
        let Self {
            terms,
            learning_until,
            learning,
            predecessor,
            entries,
            booked,
            demands,
            feedback,
            expiries,
            hints,
            parent,
            ..
        } = self;
        let is_unleased = parent.as_ref().is_some_and(|it| !it.is_leased(now));
        let (entry, is_new) = match entries.get_mut(holder) {
            Some(entry) => (entry, false),
            None => (entries.add(holder, ask.kind, ask.stamp.order), true),
        };
        // A holder that waited for the parent is registered already.
        let is_first = entry.last_decision.is_none();
        let was_confirmed = learning
            .as_ref()
            .is_some_and(|learning| learning.is_confirmed(entry.slot));
        // Safety rule: nothing is restated, or stated to the new master of a node, beyond the lease
        // of the parent that covers it.
        let covered_until = parent.as_ref().map_or(Moment::NEVER, |parent| {
            let total = parent.most_of_all(booked.total(), is_learning, learning.as_deref());
            let cover = parent.cover(total, now);
            cover
                .or_else(|| Some(parent.cover_beside(0.0, now)?.end))
                .unwrap_or(now)
        });
        if !is_new && ask.stamp.is_stale(entry.order, was_confirmed) {
            let is_unknown = is_learning && !was_confirmed;
            let known_from = known_from(entry, is_unknown, *learning_until);
            let mut decision = match ask.has {
                // Safety rule: the node has another master, or another node has its name. The
                // lease is that of the later master alone.
                _ if ask.stamp.order.is_of_earlier_master(entry.order) => Decision::none(terms),
                Has::Amount(_) => restate_lease(entry, terms, covered_until, now),
                Has::Unknown => report_to_new_master(entry, terms, known_from, covered_until, now),
            };
            if is_learning || is_unleased {
                decision.withhold_zero();
            }
            entry.set_due(decision.refresh_interval, now);
            return decision;
        }

        // The most that a predecessor may have granted, of which today's capacity counts.
        let granted = parent
            .as_ref()
            .map_or(terms.capacity(), |it| it.granted_before(now));
        let has_parent = parent.is_some();
        let leases_end_before = predecessor.map(|lost| lost.leases_end);
        let mut granted_before = || {
            let lost = predecessor.as_mut().filter(|_| !has_parent);
            lost.map_or(granted, |it| it.capacity(look_up))
        };
        let mut claims_exceed = false;
        if let (Some(learning), Has::Amount(has), true) =
            (&mut *learning, ask.has, ask.stamp.echoes_epoch)
        {
            // Without `outstanding`: operations may outlive their lease.
            let pool = learning.confirm(entry.slot, has.get().min(granted));
            claims_exceed = pool > 0.0 && pool > granted_before();
        }
        let most_of_all = parent.as_ref().map_or(0.0, |parent| {
            parent.most_of_all(booked.total(), is_learning, learning.as_deref())
        });
        let confirmed = learning
            .as_deref_mut()
            .filter(|learning| learning.is_confirmed(entry.slot));
        // Whether the holder may have leases of a predecessor beside what is booked for it.
        let is_unknown = is_learning && confirmed.is_none();

        if ask.stamp.order.is_of_later_master(entry.order) {
            entry.predecessor_until = entry.booking.last_end();
        }
        // A master that does not know what the node holds may echo the epoch for other resources.
        if ask.stamp.echoes_epoch && ask.has != Has::Unknown {
            entry.predecessor_until = Moment::ORIGIN;
        }
        entry.order = ask.stamp.order.advance_from(entry.order);
        entry.retained_until = if confirmed.is_some() {
            *learning_until
        } else {
            Moment::ORIGIN
        };
        entry.outstanding = ask.outstanding;
        entry.polls = polls;
        entry.is_told = true;
        let baseline = if leases_end_before.is_some_and(|end| now < end) {
            UsageBaseline::FirstReport
        } else {
            UsageBaseline::Zero
        };
        let used = entry.report_used(ask.used, baseline, terms.rate());
        if let Some(parent) = parent {
            parent.add_used(used);
        }
        let wanted_before = entry.wants();
        entry.set_demand(ask.bands, demands);
        let has_jumped = entry.wants() > JUMP * wanted_before;
        // Before the charge, which the demand may explain.
        feedback.set_demand(demands.total().wants, terms, now);
        feedback.charge(used, terms, now);

        let booked_before = entry.booking.amount(now);
        let others = booked.total_except(entry.slot.index());
        let available = match &confirmed {
            Some(learning) => {
                let gained = parent.as_ref().map_or(0.0, |parent| parent.gained(now));
                learning.available_beside_others(entry.slot, terms.capacity(), gained)
            }
            None => terms.available_beside(others),
        };
        // Safety rule: the node's holders may have it, and its master may not know them. So the
        // node gets no more than it claims, which is a part of that.
        let restored = entry.restored(now).map_or(0.0, |it| it.amount);
        let available = if restored > 0.0 { 0.0 } else { available };
        // Safety rule: a claim counts up to what is booked for the holder, or else what the others
        // leave. In learning mode neither is known at first, so it counts up to the capacity.
        let is_first_claim = is_learning && !was_confirmed;
        let claim_limit = if is_first_claim && ask.has != Has::Unknown {
            Hold {
                amount: granted,
                end: *learning_until,
            }
        } else {
            let limit = Hold::lease(booked_before.max(available), terms.lease_length(), now);
            Hold {
                end: parent
                    .as_ref()
                    .map_or(limit.end, |it| it.end(limit.end, now)),
                ..limit
            }
        };
        let exceeds = |amount: f64, limit: f64| amount > limit * (1.0 + TOLERANCE);
        let mut anomalies = Anomalies {
            excess_claim: exceeds(ask.has.amount(), claim_limit.amount)
                && (!is_first_claim || exceeds(ask.has.amount(), granted_before())),
            claims_exceed,
            // The leases of a predecessor are unknown.
            overused: !is_learning && exceeds(ask.outstanding.get(), booked_before),
            over_capacity: false,
        };
        // Safety rule: what a predecessor leased beyond `has` is not in the pool, so nobody gets it
        // before learning mode ends, and it has ended by then. Leased again, it would last longer.
        // A lease on a claim that was not confirmed does not count: a late copy may have made it.
        let outstanding = match (is_learning, entry.is_unconfirmed) {
            (true, true) => 0.0,
            (true, false) => ask.outstanding.get().min(booked_before),
            (false, _) => ask.outstanding.get(),
        };
        let held = book_claim(entry, ask, outstanding, claim_limit, is_first_claim, now);

        // Leases since the first request of this master of the node are its own, although it may
        // not have received the response.
        let is_of_predecessor = booked_before > 0.0 && now < entry.predecessor_until;
        let asks_as_new_master =
            ask.has == Has::Unknown && (is_unknown || is_of_predecessor || restored > 0.0);
        // A pending holder may refresh early. A lease from before the first confirmed claim may
        // stem from a late request, so a holder has what it claims and not what was booked. A
        // hinted refresh is never early.
        let is_early = !is_first_claim
            && !ask.is_first_in_unit
            && entry.call.is_none()
            && entry.last_decision.is_some_and(|last| {
                last.reason != Reason::Pending && now < terms.early_until(last.at)
            });
        let mut lacks = 0.0;
        let mut decision = if asks_as_new_master {
            if entry.booking.next_end(now).is_none() {
                // Without a deadline the entry would stay forever.
                let nothing = Hold::lease(0.0, terms.lease_length(), now);
                entry.booking.set_lease(nothing);
            }
            let known_from = known_from(entry, is_unknown, *learning_until);
            report_to_new_master(entry, terms, known_from, covered_until, now)
        } else if is_early {
            restate_lease(entry, terms, covered_until, now)
        } else {
            let wants = entry.wants();
            let mut goal = wants;
            let (capacity, reason) = if terms.is_blocked() {
                (0.0, Reason::Blocked)
            } else if parent
                .as_ref()
                .is_some_and(|it| it.has_temporary_zero_lease(now))
                && wants > 0.0
            {
                (held.min(wants), Reason::Pending)
            } else if is_unknown {
                let kept = keep_while_learning(held, others, granted);
                let reason = if reaches(kept, wants) {
                    Reason::Granted
                } else {
                    Reason::Pending
                };
                (kept, reason)
            } else {
                let rule = terms.rule();
                // A node without demand has no use for a surplus.
                let may_have_surplus = wants > 0.0 || ask.kind == HolderKind::Client;
                let polls = polls && !is_learning && may_have_surplus;
                let mut share = rule.share(demands, entry.demands(), polls);
                goal = share.min(wants);
                if is_learning {
                    // The pool has to serve newcomers, so nobody gets a surplus. A holder keeps the
                    // one that it had, until another one lacks capacity.
                    let usual = rule.share(demands, entry.demands(), true);
                    let keeps = hints.as_ref().is_some_and(|it| it.nobody_else_lacks(entry));
                    if keeps && rule.divides() {
                        share = share.max(held.min(usual));
                    }
                } else if may_have_surplus
                    && hints.as_ref().is_some_and(|it| it.may_keep_surplus(entry))
                {
                    let tolerance = terms.tuning().surplus_tolerance;
                    share = rule.keep_surplus(share, wants, held, available, tolerance);
                }
                let input = GrantInput {
                    wants,
                    share,
                    held,
                    available,
                };
                input.decide(terms.rule())
            };
            // To a node that does not know what it has, a part could seem to be what it has.
            let is_part_of_unknown = |reason| ask.has == Has::Unknown && reason == Reason::Pending;
            let capacity = if is_part_of_unknown(reason) {
                0.0
            } else {
                capacity
            };
            if reason == Reason::Pending {
                lacks = (goal - capacity).max(0.0);
            }
            let mut lease = Hold::lease(capacity, terms.lease_length(), now);
            let mut lease_length = terms.lease_length();
            let mut reason = reason;
            if let Some(parent) = parent {
                let is_shared = terms.rule().divides() && !is_unknown;
                let others = parent.most_of_others(others, confirmed.as_deref(), entry.slot);
                let total = match (terms.rule().divides(), is_unknown) {
                    (true, false) => others + capacity,
                    // Claims of a predecessor's leases end with the lease that covers all of them.
                    (true, true) => most_of_all,
                    (false, _) => 0.0,
                };
                let covered = match parent.cover(total, now) {
                    Some(end) => Some(Hold { end, ..lease }),
                    // Claims of a predecessor's leases may outlive the lease that covers them.
                    None if is_shared => parent.cover_beside(others, now),
                    // Safety rule: no lease covers the claim together with all that may be out.
                    None => None,
                };
                match covered {
                    Some(covered) => {
                        lease.amount = covered.amount;
                        if covered.end < lease.end {
                            lease.end = covered.end;
                            lease_length = lease.remaining(now);
                        }
                    }
                    // The entry stays for its demand, without capacity.
                    None => {
                        lease.amount = 0.0;
                        lease_length = 0.0;
                    }
                }
                let awaits_more = parent.is_pending() || lease_length == 0.0;
                let is_less = lease.amount < capacity;
                if is_less || awaits_more && reason == Reason::Share && lease.amount < wants {
                    reason = Reason::Pending;
                }
            }
            if is_part_of_unknown(reason) {
                lease.amount = 0.0;
            }
            let capacity = lease.amount;
            entry.booking.set_lease(lease);
            // What a predecessor had booked and handed over is confirmed.
            entry.is_unconfirmed =
                is_unknown && (entry.is_unconfirmed || exceeds(capacity, booked_before));
            entry.last_decision = Some(LastDecision::new(now, reason, now));
            // The next request confirms a claim, or returns what others wait for.
            let all_want = demands.total().wants;
            let returns = entry.booking.amount(now) - capacity;
            let is_awaited = returns > terms.capacity() * AWAITED
                && all_want > terms.capacity()
                && all_want > wants;
            let is_owed = returns > terms.capacity() * AWAITED
                && parent
                    .as_ref()
                    .is_some_and(|it| others + capacity + returns > it.capacity(now));
            // All clients of a node wait until its claim is confirmed.
            let is_unknown_node = is_unknown && is_first && ask.kind == HolderKind::Node;
            let is_soon = reason == Reason::Pending || is_unknown && is_first || is_awaited;
            let refresh_interval = terms.refresh_interval_within(lease_length, is_soon);
            Decision {
                capacity: Capacity::saturating(capacity),
                lease_length: Seconds::saturating(lease_length),
                refresh_interval: if is_owed || is_unknown_node {
                    Seconds::saturating(refresh_interval.get().min(NODE_INTERVAL))
                } else {
                    refresh_interval
                },
                reason,
                booked_until: lease.end,
                anomalies,
                lacks: None,
            }
        };
        if is_learning {
            decision.withhold_zero();
        }
        entry.set_due(decision.refresh_interval, now);
        let amount = entry.booking.amount(now);
        booked.set(entry.slot.index(), amount);
        if let Some(learning) = confirmed {
            learning.set_booked(entry.slot, amount);
        }
        schedule_expiry(entry, expiries, now);
        anomalies.over_capacity = !is_learning
            && !asks_as_new_master
            && !is_early
            && is_over_capacity(terms, booked)
            && parent
                .as_ref()
                .is_none_or(|it| it.is_exceeded(booked.total(), now));
        decision.anomalies = anomalies;
        decision.lacks = Some(lacks);
        let share = decision.capacity.get() + lacks;
        if !has_jumped && !is_worth_a_hint(ask.kind, lacks, share, terms.capacity()) {
            lacks = 0.0;
        }
        if (polls || is_learning) && hints.is_none() {
            let by_priority = demands.is_by_priority();
            *hints = Some(Box::new(HintState::new(by_priority)));
        }
        if let Some(hints) = hints {
            hints.report(entry, amount, lacks);
            let returns = amount - decision.capacity.get().max(entry.outstanding.get());
            let is_told = decision.reason != Reason::Granted;
            if returns > amount * TOLERANCE && (is_told || returns > terms.limit() * NOTABLE) {
                hints.expect_return(entry, amount, returns);
            }
        }
        decision
    }

    /// Releases all that a holder has, and returns whether it had a lease. A stale release is
    /// ignored.
    pub(super) fn release(&mut self, holder: HolderKey, stamp: RequestStamp, now: Moment) -> bool {
        self.end_learning(now);
        let Some(entry) = self.entries.get_mut(holder) else {
            return false;
        };
        let learning = self.learning.as_deref_mut();
        let confirmed = learning.filter(|learning| learning.is_confirmed(entry.slot));
        if stamp.is_stale(entry.order, confirmed.is_some()) {
            return false;
        }
        let had_lease = entry.booking.lease(now).is_some();
        entry.order = stamp.order.advance_from(entry.order);
        entry.clear(&mut self.demands);
        entry.free_released(now);
        let amount = entry.booking.amount(now);
        self.feedback
            .set_demand(self.demands.total().wants, &self.terms, now);
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
            let entries = &self.entries;
            self.expiries.compact(entries.len(), |at, holder| {
                entries
                    .get(*holder)
                    .is_some_and(|entry| entry.deadline == at)
            });
        }
        had_lease
    }

    /// Handles some expirations. Calls `removed` for each holder whose entry is removed.
    pub(super) fn expire(&mut self, now: Moment, mut removed: impl FnMut(HolderKey)) {
        self.end_learning(now);
        for _ in 0..EXPIRATIONS_PER_REQUEST {
            let Some((at, holder)) = self.expiries.pop_due(now) else {
                return;
            };
            let entry = self.entries.get_mut(holder);
            let Some(entry) = entry.filter(|entry| entry.deadline == at) else {
                continue;
            };
            entry.deadline = Moment::NEVER;
            let amount = entry.booking.amount(now);
            self.booked.set(entry.slot.index(), amount);
            if let Some(learning) = &mut self.learning {
                learning.set_booked(entry.slot, amount);
            }
            if entry.next_end(now).is_some() {
                if entry.booking.next_end(now).is_none() && !entry.is_cleared() {
                    entry.clear(&mut self.demands);
                    self.feedback
                        .set_demand(self.demands.total().wants, &self.terms, now);
                    if let Some(hints) = &mut self.hints {
                        hints.report(entry, amount, 0.0);
                    }
                }
                if let Some(hints) = &mut self.hints {
                    hints.track(entry, amount);
                }
                schedule_expiry(entry, &mut self.expiries, now);
            } else {
                self.remove(holder, now);
                removed(holder);
            }
        }
    }

    fn remove(&mut self, holder: HolderKey, now: Moment) {
        if let Some(mut entry) = self.entries.remove(holder) {
            entry.remove_demand(&mut self.demands);
            self.feedback
                .set_demand(self.demands.total().wants, &self.terms, now);
            self.booked.set(entry.slot.index(), 0.0);
            if let Some(hints) = &mut self.hints {
                hints.report(&mut entry, 0.0, 0.0);
            }
        }
    }
}

/// From when on the ledger knows what a holder has. Until learning mode ends, the leases of one
/// that is unknown; then a lease that was granted on a claim that was not confirmed.
fn known_from(entry: &Entry, is_unknown: bool, learning_until: Moment) -> Moment {
    match (is_unknown, entry.is_unconfirmed) {
        (true, _) => learning_until,
        (false, true) => entry.booking.last_end(),
        (false, false) => Moment::ORIGIN,
    }
}

/// Books what a holder claims, up to a limit. Returns what it has.
///
/// The lease of a claim is unknown, so the claim lasts as long as any lease that is booked.
///
/// Safety rule: operations under a lease of a predecessor may last as long as that lease, although
/// the holder has a shorter one by now. So the first claim lasts until the limit ends, even where a
/// lease was granted on a claim that was not confirmed.
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
        // Safety rule: a node that does not know what it has asserts nothing.
        Has::Unknown => entry.booking.amount(now),
    }
}

/// Pushes the next deadline of an entry, unless an earlier one is in the heap.
pub(super) fn schedule_expiry(
    entry: &mut Entry,
    expiries: &mut ExpiryHeap<HolderKey>,
    now: Moment,
) {
    if let Some(end) = entry.next_end(now).filter(|end| *end < entry.deadline) {
        entry.deadline = end;
        expiries.push(end, entry.holder);
    }
}
