//! Whom to hint, for one resource.
//!
//! A plan reads exact shares, but examines only a bounded number of candidates. What it misses, the
//! regular refreshes of the holders settle an interval later.

use doorman_openapi::{MAX_BANDS, Moment, Reason};
use smallvec::SmallVec;

use crate::ledger::{
    algorithm::BandShares,
    keys::{EntrySlot, HolderKey},
    resource::Resource,
    resource::hint_state::{HintState, NEGLIGIBLE, Order, Probe, is_worth_a_hint},
    resource::signal::Signal,
    store::ranked_slots::Place,
};

/// The excess demand has changed if it differs by this part of the capacity.
const EXCESS_CHANGE: f64 = 0.05;

/// Candidates that are examined in vain before a plan goes on with the next band.
const MAX_MISSES: usize = 8;

/// A waiting holder is hinted once at least this part of what it lacks is free, or no more comes:
/// the next hint waits for the spacing.
const MIN_SERVED: f64 = 0.15;

/// More than this part of the capacity is not left free for long.
const FREE_WORTH: f64 = 0.01;

/// The most holders that are hinted at once because their demand may have fallen.
const MAX_PROBES: usize = 2;

/// The most holders that are hinted at once because the parent node asks for the demand.
const MAX_ASKED: usize = 8;

/// Candidates that are examined per round of probes.
const MAX_PROBE_CANDIDATES: usize = 64;

/// Rounds of probes begin anew when the excess demand grows by this factor.
const PROBE_RESTART: f64 = 1.2;

/// A change of the admission probability by more than this part is worth a round of hints.
const FEEDBACK_CHANGE: f64 = 0.1;

/// Seconds between two looks at a demand that may be suppressed.
const FEEDBACK_CHECK: f64 = 0.25;

/// Seconds between the first two rounds of hints about a signal.
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
                planner.tell_signal();
            }
        })
    }

    /// Hints the holders whose reports are old, because the parent node asks for the demand.
    pub(in crate::ledger) fn ask_demand(
        &mut self,
        polls: impl Fn(HolderKey) -> bool,
        now: Moment,
    ) -> Chosen {
        self.choose(polls, now, |planner| {
            planner.hint_stale(None, MAX_ASKED, f64::INFINITY, now, 0.0);
        })
    }

    /// Hints the next holders of the round of all, at most `budget`; `None` without a round.
    pub(in crate::ledger) fn hint_round(
        &mut self,
        budget: usize,
        polls: impl Fn(HolderKey) -> bool,
        now: Moment,
    ) -> Option<Chosen> {
        self.hints.as_ref().filter(|it| it.round.slots_left > 0)?;
        Some(self.choose(polls, now, |planner| planner.advance_round(budget)))
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
        let slots = self.entries.end();
        let state = self.hints.as_mut();
        state.map(|state| state.begin_round(slots, now)).is_some()
    }

    /// Counts a holder as polling. Returns whether it should refresh, for its surplus.
    pub(in crate::ledger) fn start_polling(&mut self, holder: HolderKey, now: Moment) -> bool {
        let may_gain = self.terms.rule().divides() && !self.is_learning(now);
        let entry = self.entries.get_mut(holder);
        let Some(entry) = entry.filter(|entry| !entry.polls && !entry.is_cleared()) else {
            return false;
        };
        entry.polls = true;
        let (booked, wants) = (entry.booking.amount(now), entry.wants());
        let share =
            (self.terms.rule()).share(&self.demands, entry.demands(), entry.polling(&self.demands));
        let is_worth = is_worth_a_hint(entry.kind, share - booked, share, self.terms.capacity());
        let last = entry.last_decision;
        let lacks = if is_worth && last.is_some_and(|last| last.reason == Reason::Pending) {
            (share.min(wants) - booked).max(0.0)
        } else {
            0.0
        };
        let state = self.hints.get_or_insert_with(|| Box::new(HintState::new()));
        state.report(entry, booked, lacks);
        let free = self.terms.available_beside(self.booked.total());
        let is_hinted = may_gain && is_worth && share > wants && free > 0.0;
        if is_hinted {
            state.hint(entry, booked, 0.0, 0.0);
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
        let entry = self.entries.get_mut(holder).filter(|it| it.is_hinted);
        let (Some(state), Some(entry)) = (&mut self.hints, entry) else {
            return;
        };
        state.settle(entry.slot);
        if is_given_up {
            entry.polls = false;
            state.end_hint(entry);
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
        let mut missing = lacking - self.free() - self.state.recalled();
        if missing <= negligible {
            return;
        }
        self.examine(Order::Booked, |planner, slot| {
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
        });
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
        let mut free = self.free() - self.state.promised();
        let is_last = self.state.recalled() == 0.0;
        let negligible = self.resource.terms.capacity() * NEGLIGIBLE * NEGLIGIBLE;
        if free <= negligible {
            return;
        }
        self.examine(Order::Waiting, |planner, slot| {
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

    /// Hints the holders in an order, until it has enough or has missed too often in each band.
    fn examine(&mut self, order: Order, mut examine: impl FnMut(&mut Self, EntrySlot) -> Examined) {
        let mut after: Option<Place> = None;
        let (mut misses, mut all_misses) = (0, 0_usize);
        while all_misses < MAX_BANDS * MAX_MISSES
            && let Some(place) = self.state.next(order, after)
        {
            if after.is_some_and(|after| after.band() != place.band()) {
                misses = 0;
            }
            after = Some(place);
            let slot = EntrySlot::new(place.slot());
            if !self.still_polls(slot) {
                continue;
            }
            match examine(self, slot) {
                Examined::Hint { recalled, promised } => {
                    if !self.state.has_room(promised > 0.0, self.now) {
                        return;
                    }
                    self.hint(slot, recalled, promised);
                }
                Examined::Missed => {
                    misses += 1;
                    all_misses += 1;
                }
                Examined::Enough => return,
            }
            if misses >= MAX_MISSES {
                after = Some(place.after_band());
            }
        }
    }

    /// In overload, hints the holders with the largest leases whose reports are old: their demand
    /// may have fallen. The rounds become rare while they bring nothing.
    fn probe(&mut self) {
        let now = self.now;
        let terms = &self.resource.terms;
        let (capacity, first_gap) = (terms.capacity(), terms.tuning().probe_gap);
        let longest = terms.refresh_interval(false).get().max(first_gap);
        let excess = self.resource.sum_wants() - capacity;
        let probe = &mut self.state.probe;
        if excess <= 0.0 {
            if now >= probe.since.after_seconds(longest) {
                *probe = Probe::default();
            }
            return;
        }
        let known = probe.first_excess;
        let has_grown = excess > (known * PROBE_RESTART).max(known + capacity * EXCESS_CHANGE);
        if has_grown || probe.gap == 0.0 {
            *probe = Probe::begin(excess, first_gap, now);
        }
        if now >= probe.next {
            let is_shrinking = excess < probe.last_excess * (1.0 - EXCESS_CHANGE);
            let gap = if is_shrinking {
                first_gap
            } else {
                2.0 * probe.gap
            };
            probe.pause(gap.min(longest), excess, now);
            let (stopped, since, before) = (probe.stopped, probe.since, self.chosen.len());
            let stopped = self.hint_stale(stopped, MAX_PROBES, excess, since, first_gap);
            let has_hinted = self.chosen.len() > before;
            self.state.probe.end_round(stopped, has_hinted, excess, now);
        }
        let Probe { next, gap, .. } = self.state.probe;
        if gap < longest {
            self.state.wake_at(next);
        }
    }

    /// Hints at most so many holders after a place in the order, until their leases cover `excess`.
    /// No holder is hinted that has reported since, and no client whose report is younger than
    /// `fresh` seconds. Returns the last place; `None` at the end of the order.
    fn hint_stale(
        &mut self,
        mut after: Option<Place>,
        most: usize,
        mut excess: f64,
        since: Moment,
        fresh: f64,
    ) -> Option<Place> {
        let most = self.chosen.len().saturating_add(most);
        for _ in 0..MAX_PROBE_CANDIDATES {
            if excess <= 0.0 || self.chosen.len() >= most {
                break;
            }
            let place = self.state.next(Order::Booked, after)?;
            let slot = EntrySlot::new(place.slot());
            if self.still_polls(slot)
                && let Some(entry) = self.resource.entries.at(slot)
            {
                // A node may have reported just now what its holders reported long ago.
                let fresh = if entry.is_client() { fresh } else { 0.0 };
                let is_old = entry
                    .last_decision
                    .is_none_or(|last| last.at < since && last.at.after_seconds(fresh) <= self.now);
                let booked = entry.booking.amount(self.now);
                if is_old {
                    if !self.state.has_room(false, self.now) {
                        break;
                    }
                    self.hint(slot, 0.0, 0.0);
                    excess -= booked;
                }
            }
            after = Some(place);
        }
        after
    }

    /// Hints all holders when the signal differs clearly from that of the last round.
    fn tell_signal(&mut self) {
        let now = self.now;
        let (value, check_at) = match self.resource.current_signal(now) {
            Signal::None => return,
            Signal::AdmissionProbability(probability) => {
                let may_change = self.resource.sum_wants() > self.resource.terms.capacity()
                    || probability.get() < 1.0;
                let check_at = may_change.then(|| now.after_seconds(FEEDBACK_CHECK));
                (probability.get(), check_at)
            }
            Signal::Balance(balance) => {
                let recovers_in = -balance.get() / self.resource.terms.rate();
                let is_spent = balance.get() <= 0.0 && recovers_in.is_finite();
                // A moment later it is above 0.
                let check_at = is_spent.then(|| now.after_seconds(recovers_in + FEEDBACK_GAP));
                (f64::from(u8::from(balance.get() > 0.0)), check_at)
            }
        };
        let longest = self.resource.terms.refresh_interval(false).get();
        let rounds = &mut self.state.signal;
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
                let slots = self.resource.entries.end();
                self.state.begin_round(slots, now);
            } else {
                self.state.wake_at(next);
            }
        }
        if let Some(check_at) = check_at {
            self.state.wake_at(check_at);
        }
    }

    /// Hints the next holders of the round of all.
    fn advance_round(&mut self, budget: usize) {
        let (entries, round) = (&self.resource.entries, &mut self.state.round);
        let mut due = SmallVec::<[EntrySlot; 8]>::new();
        for _ in 0..ROUND_STEP.min(round.slots_left) {
            if due.len() >= budget {
                break;
            }
            if round.next_slot >= entries.end() {
                round.next_slot = 0;
            }
            let slot = EntrySlot::new(round.next_slot);
            round.next_slot = round.next_slot.saturating_add(1);
            round.slots_left = round.slots_left.saturating_sub(1);
            if entries.at(slot).is_some_and(|entry| {
                entry.polls
                    && !entry.is_hinted
                    && entry.last_decision.is_none_or(|last| last.at < round.since)
            }) {
                due.push(slot);
            }
        }
        for slot in due {
            if self.still_polls(slot) {
                self.hint(slot, 0.0, 0.0);
            }
        }
    }

    /// Whether a candidate still polls. If not, it is no candidate any more.
    fn still_polls(&mut self, slot: EntrySlot) -> bool {
        let Some(entry) = self.resource.entries.at_mut(slot) else {
            return false;
        };
        entry.polls = (self.polls)(entry.holder);
        if !entry.polls {
            self.state.track(entry, entry.booking.amount(self.now));
        }
        entry.polls
    }

    fn hint(&mut self, slot: EntrySlot, recalled: f64, promised: f64) {
        if let Some(entry) = self.resource.entries.at_mut(slot) {
            let booked = entry.booking.amount(self.now);
            self.state.hint(entry, booked, recalled, promised);
            self.chosen.push(entry.holder);
        }
    }

    fn share(&mut self, slot: EntrySlot) -> f64 {
        let resource = &*self.resource;
        let Some(entry) = resource.entries.at(slot) else {
            return 0.0;
        };
        let (rule, demands) = (resource.terms.rule(), &resource.demands);
        let polling = entry.polling(demands);
        rule.share_with(&mut self.bands, demands, entry.demands(), polling)
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
