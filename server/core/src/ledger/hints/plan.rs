//! Whom to hint, for one resource.
//!
//! A plan reads exact shares, but examines only a bounded number of candidates. What it misses, the
//! regular refreshes of the holders settle an interval later.

use doorman_openapi::Moment;
use smallvec::SmallVec;

use crate::ledger::{
    algorithm::BandShares,
    keys::{EntrySlot, HolderKey},
    resource::Resource,
    resource::feedback::Feedback,
    resource::hint_state::{HintState, Order, Round, is_worth_a_hint},
};

/// Smaller parts of an amount are not worth a hint.
const NEGLIGIBLE: f64 = 1e-3;

/// The excess demand has changed if it differs by this part of the capacity.
const EXCESS_CHANGE: f64 = 0.05;

/// Candidates that are examined in vain before a plan gives up.
const MAX_MISSES: usize = 8;

/// A waiting holder is hinted once at least this part of what it lacks is free, or no more comes.
const MIN_SERVED: f64 = 0.125;

/// More than this part of the capacity is not left free for long.
const FREE_WORTH: f64 = 0.01;

/// The most holders that are hinted at once because their demand may have fallen.
const PROBES: usize = 2;

/// The most holders that are hinted at once because the parent node asks for the demand.
const MAX_ASKED: usize = 8;

/// A change of the admission probability by more than this part is worth a round of hints.
const FEEDBACK_CHANGE: f64 = 0.1;

/// Seconds between two looks at a demand that may be suppressed.
const FEEDBACK_CHECK: f64 = 0.25;

/// Seconds between the first two rounds of hints about a feedback.
const FEEDBACK_GAP: f64 = 0.1;

/// Slots that are examined per step of a round.
const ROUND_STEP: usize = 256;

/// The holders to hint.
pub(in crate::ledger) type Chosen = SmallVec<[HolderKey; 8]>;

/// The result of examining a candidate.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Examined {
    /// It is to be hinted, and gives back, or takes, so much.
    Hint { recalled: f64, promised: f64 },
    /// There is nothing to hint it for.
    Missed,
    /// No more hints are needed.
    Enough,
}

struct Planner<'a, P> {
    resource: &'a mut Resource,
    state: &'a mut HintState,
    /// No demand changes while hints are planned.
    bands: BandShares,
    polls: P,
    chosen: Chosen,
    now: Moment,
}

impl Resource {
    /// Chooses holders to hint. `polls` tells whether a holder still polls.
    pub(in crate::ledger) fn plan_hints(
        &mut self,
        polls: impl Fn(HolderKey) -> bool,
        now: Moment,
    ) -> Chosen {
        self.choose(polls, now, |planner| {
            if planner.state.next_at <= now {
                planner.state.next_at = Moment::NEVER;
            }
            if !planner.resource.are_shares_known(now) {
                let ends = planner.resource.learning_until;
                planner.state.wake_at(ends);
            } else if planner.resource.terms.rule().divides() {
                planner.recall();
                planner.serve();
                planner.probe();
            } else {
                planner.tell_feedback();
            }
        })
    }

    /// Hints the holders whose reports are old, because the parent node asks for the demand.
    pub(in crate::ledger) fn ask_demand(
        &mut self,
        polls: impl Fn(HolderKey) -> bool,
        now: Moment,
    ) -> Chosen {
        self.choose(polls, now, |planner| planner.hint_oldest(MAX_ASKED, 0.0))
    }

    /// Hints the next holders of the round of all, at most `budget`; `None` without a round.
    pub(in crate::ledger) fn hint_round(
        &mut self,
        budget: usize,
        polls: impl Fn(HolderKey) -> bool,
        now: Moment,
    ) -> Option<Chosen> {
        let round = self.hints.as_mut()?.round.take()?;
        Some(self.choose(polls, now, |planner| planner.advance(round, budget)))
    }

    fn choose<P: Fn(HolderKey) -> bool>(
        &mut self,
        polls: P,
        now: Moment,
        plan: impl FnOnce(&mut Planner<'_, P>),
    ) -> Chosen {
        let Some(mut state) = self.hints.take() else {
            return Chosen::new();
        };
        let mut planner = Planner {
            resource: self,
            state: &mut state,
            bands: BandShares::default(),
            polls,
            chosen: Chosen::new(),
            now,
        };
        plan(&mut planner);
        let chosen = planner.chosen;
        self.hints = Some(state);
        chosen
    }

    /// Begins a round of hints because the terms have changed. Returns whether a holder polls.
    pub(in crate::ledger) fn note_changed_terms(&mut self, now: Moment) -> bool {
        let state = self.hints.as_mut();
        state.is_some_and(|state| {
            state.begin_round(now);
            true
        })
    }

    /// Counts a holder as polling. Returns whether it should refresh, for its surplus.
    pub(in crate::ledger) fn start_polling(&mut self, holder: HolderKey, now: Moment) -> bool {
        let is_hinted = self.terms.rule().divides() && !self.is_learning(now);
        let entry = self.entries.get_mut(holder);
        let Some(entry) = entry.filter(|entry| !entry.polls && !entry.is_cleared()) else {
            return false;
        };
        entry.polls = true;
        let booked = entry.booking.amount(now);
        let by_priority = self.demands.is_by_priority();
        let state = self
            .hints
            .get_or_insert_with(|| Box::new(HintState::new(by_priority)));
        if is_hinted {
            state.call(entry, booked, 0.0, 0.0);
        } else {
            state.track(entry, booked);
        }
        is_hinted
    }

    /// A hint had no effect within the time for it. After the last repetition the holder counts as
    /// not polling until its next request.
    pub(in crate::ledger) fn lapse_hint(
        &mut self,
        holder: HolderKey,
        is_given_up: bool,
        now: Moment,
    ) {
        let (Some(state), Some(entry)) = (&mut self.hints, self.entries.get_mut(holder)) else {
            return;
        };
        let Some(call) = entry.call else { return };
        state.settle(call);
        if is_given_up {
            entry.polls = false;
            state.end_call(entry);
            state.track(entry, entry.booking.amount(now));
        }
    }
}

impl<P: Fn(HolderKey) -> bool> Planner<'_, P> {
    /// Hints holders with more than their share while pending holders, or the parent node, lack
    /// more than is free or already called back.
    fn recall(&mut self) {
        let lacking = self.state.shortfall() + self.owed_to_parent();
        let negligible = lacking * NEGLIGIBLE;
        let mut missing = lacking - self.free() - self.state.recalled.total();
        if missing <= negligible {
            return;
        }
        let mut examine = |planner: &mut Self, slot| {
            if missing <= negligible {
                return Examined::Enough;
            }
            let (gives, booked) = planner.gives(slot);
            if gives <= booked * NEGLIGIBLE {
                return Examined::Missed;
            }
            missing -= gives;
            Examined::Hint {
                recalled: gives,
                promised: 0.0,
            }
        };
        self.examine(Order::Spare, &mut examine);
        self.examine(Order::Booked, &mut examine);
    }

    /// The amount that a holder would give back, and the amount booked for it.
    fn gives(&mut self, slot: EntrySlot) -> (f64, f64) {
        let share = self.share(slot);
        self.resource.entries.at(slot).map_or((0.0, 0.0), |entry| {
            let booked = entry.booking.amount(self.now);
            (booked - share.max(entry.outstanding.get()), booked)
        })
    }

    /// Hints waiting holders, as many as the free capacity serves.
    fn serve(&mut self) {
        let mut free = self.free() - self.state.promised.total();
        let is_last = self.state.recalled.total() == 0.0;
        let negligible = self.resource.terms.capacity() * NEGLIGIBLE * NEGLIGIBLE;
        if free <= negligible {
            return;
        }
        self.examine(Order::Waiting, &mut |planner, slot| {
            if free <= negligible {
                return Examined::Enough;
            }
            let share = planner.share(slot);
            let Some(entry) = planner.resource.entries.at(slot) else {
                return Examined::Missed;
            };
            let booked = entry.booking.amount(planner.now);
            let goal = share.min(entry.wants());
            let lacks = goal - booked;
            let rule = planner.resource.terms.rule();
            let gets = rule.round_down(goal.min(booked + free)) - booked;
            let capacity = planner.resource.terms.capacity();
            let is_worth = planner.state.is_short(slot)
                || gets > capacity * FREE_WORTH
                || is_worth_a_hint(entry.kind, lacks, goal, capacity);
            if !is_worth || gets <= 0.0 || !is_last && gets < lacks.min(goal) * MIN_SERVED {
                return Examined::Missed;
            }
            free -= gets;
            Examined::Hint {
                recalled: 0.0,
                promised: gets,
            }
        });
    }

    /// Hints the first holders in an order, until it has enough or has missed too often.
    fn examine(
        &mut self,
        order: Order,
        examine: &mut impl FnMut(&mut Self, EntrySlot) -> Examined,
    ) {
        let mut aside = SmallVec::<[EntrySlot; MAX_MISSES]>::new();
        while aside.len() < MAX_MISSES
            && let Some(slot) = self.first(order)
        {
            match examine(self, slot) {
                Examined::Hint { recalled, promised } => {
                    if !self.state.has_room(promised > 0.0, self.now) {
                        break;
                    }
                    self.call(slot, recalled, promised);
                }
                Examined::Missed => {
                    self.state.set_aside(order, slot.index());
                    aside.push(slot);
                }
                Examined::Enough => break,
            }
        }
        for slot in aside {
            if let Some(entry) = self.resource.entries.at(slot) {
                self.state.track(entry, entry.booking.amount(self.now));
            }
        }
    }

    /// In overload, hints the holders with the largest leases whose reports are old: their demand
    /// may have fallen. The next ones follow at once if that was so; else the rounds become rare.
    fn probe(&mut self) {
        let now = self.now;
        let terms = &self.resource.terms;
        let (capacity, first_gap) = (terms.capacity(), terms.tuning().probe_gap);
        let longest = terms.refresh_interval(false).get().max(first_gap);
        let excess = (self.resource.sum_wants() - capacity).max(0.0);
        let probes = &mut self.state.probes;
        if excess == 0.0 {
            if now >= probes.next.after_seconds(longest) {
                probes.told = 0.0;
            }
            return;
        }
        let has_changed = (excess - probes.told).abs() > capacity * EXCESS_CHANGE;
        let is_due = has_changed || now >= probes.next;
        if is_due {
            probes.told = excess;
            probes.gap = if has_changed {
                first_gap
            } else {
                (2.0 * probes.gap).clamp(first_gap, longest)
            };
            probes.next = now.after_seconds(probes.gap);
        }
        if probes.gap < longest {
            let next = probes.next;
            self.state.wake_at(next);
        }
        if is_due {
            self.hint_oldest(PROBES, first_gap);
        }
    }

    /// Hints the holders with the largest leases, at most so many, but no client whose report is
    /// younger than `age` seconds.
    fn hint_oldest(&mut self, mut most: usize, age: f64) {
        self.examine(Order::Booked, &mut |planner, slot| {
            let Some(entry) = planner.resource.entries.at(slot).filter(|_| most > 0) else {
                return Examined::Enough;
            };
            // A node may have reported just now what its holders reported long ago.
            let age = if entry.is_client() { age } else { 0.0 };
            let now = planner.now;
            let is_fresh = |at: Moment| at == now || now < at.after_seconds(age);
            if entry.last_decision.is_some_and(|last| is_fresh(last.at)) {
                return Examined::Missed;
            }
            most = most.saturating_sub(1);
            Examined::Hint {
                recalled: 0.0,
                promised: 0.0,
            }
        });
    }

    /// Hints all holders when the feedback differs clearly from that of the last round.
    fn tell_feedback(&mut self) {
        let now = self.now;
        let (value, check_at) = match self.resource.current_feedback(now) {
            Feedback::None => return,
            Feedback::AdmissionProbability(probability) => {
                let may_change = self.resource.sum_wants() > self.resource.terms.capacity()
                    || probability.get() < 1.0;
                let check_at = may_change.then(|| now.after_seconds(FEEDBACK_CHECK));
                (probability.get(), check_at)
            }
            Feedback::Balance(balance) => {
                let recovers_in = -balance.get() / self.resource.terms.rate();
                let is_spent = balance.get() <= 0.0 && recovers_in.is_finite();
                // A moment later it is above 0.
                let check_at = is_spent.then(|| now.after_seconds(recovers_in + FEEDBACK_GAP));
                (f64::from(u8::from(balance.get() > 0.0)), check_at)
            }
        };
        let longest = self.resource.terms.refresh_interval(false).get();
        let rounds = &mut self.state.feedback;
        if (value - rounds.told).abs() > FEEDBACK_CHANGE * value.max(rounds.told) {
            let next = rounds.next;
            if now >= next {
                rounds.told = value;
                rounds.gap = if now >= next.after_seconds(longest) {
                    FEEDBACK_GAP
                } else {
                    (2.0 * rounds.gap).clamp(FEEDBACK_GAP, longest.max(FEEDBACK_GAP))
                };
                rounds.next = now.after_seconds(rounds.gap);
                self.state.begin_round(now);
            } else {
                self.state.wake_at(next);
            }
        }
        if let Some(check_at) = check_at {
            self.state.wake_at(check_at);
        }
    }

    /// Hints the next holders of a round, and keeps the rest of it.
    fn advance(&mut self, round: Round, budget: usize) {
        let mut due = SmallVec::<[EntrySlot; 8]>::new();
        let entries = self.resource.entries.slots_from(round.next_slot);
        for (examined, (slot, entry)) in entries.enumerate() {
            if examined >= ROUND_STEP || due.len() >= budget {
                self.state.round = Some(Round {
                    next_slot: slot,
                    ..round
                });
                break;
            }
            if entry.is_some_and(|entry| {
                entry.polls
                    && entry.call.is_none()
                    && entry.last_decision.is_none_or(|last| last.at < round.since)
            }) {
                due.push(EntrySlot::new(slot));
            }
        }
        for slot in due {
            self.call(slot, 0.0, 0.0);
        }
    }

    /// The first holder in an order that still polls.
    fn first(&mut self, order: Order) -> Option<EntrySlot> {
        loop {
            let slot = EntrySlot::new(self.state.first(order)?);
            let Some(entry) = self.resource.entries.at_mut(slot) else {
                self.state.set_aside(order, slot.index());
                continue;
            };
            if (self.polls)(entry.holder) {
                return Some(slot);
            }
            entry.polls = false;
            self.state.track(entry, entry.booking.amount(self.now));
        }
    }

    fn call(&mut self, slot: EntrySlot, recalled: f64, promised: f64) {
        let Some(entry) = self.resource.entries.at_mut(slot) else {
            return;
        };
        if (self.polls)(entry.holder) {
            let booked = entry.booking.amount(self.now);
            self.state.call(entry, booked, recalled, promised);
            self.chosen.push(entry.holder);
        }
    }

    fn share(&mut self, slot: EntrySlot) -> f64 {
        let resource = &*self.resource;
        let Some(entry) = resource.entries.at(slot) else {
            return 0.0;
        };
        let (rule, demands) = (resource.terms.rule(), &resource.demands);
        rule.share_with(&mut self.bands, demands, entry.demands(), entry.polls)
    }

    /// The amount booked beyond a lease from the parent node that has become smaller.
    fn owed_to_parent(&self) -> f64 {
        match &self.resource.parent {
            Some(parent) if parent.is_leased(self.now) => {
                (self.resource.booked.total() - parent.capacity(self.now)).max(0.0)
            }
            Some(_) | None => 0.0,
        }
    }

    fn free(&self) -> f64 {
        let booked = self.resource.booked.total();
        self.resource.terms.available_beside(booked)
    }
}
