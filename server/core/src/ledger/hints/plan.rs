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
    resource::feedback::Feedback,
    resource::hint_bands::Rank,
    resource::hint_state::{HintState, Order, Probe, Round, is_worth_a_hint},
};

/// Smaller parts of an amount are not worth a hint.
const NEGLIGIBLE: f64 = 1e-3;

/// The excess demand has changed if it differs by this part of the capacity.
const EXCESS_CHANGE: f64 = 0.05;

/// Candidates that are examined in vain before a plan gives up.
const MAX_MISSES: usize = 8;

/// The same in each band.
const MAX_MISSES_IN_BAND: usize = 3;

/// A waiting holder is hinted once at least this part of what it lacks is free, or no more comes.
const MIN_SERVED: f64 = 0.125;

/// More than this part of the capacity is not left free for long.
const FREE_WORTH: f64 = 0.01;

/// Candidates that are examined per round of probes.
const MAX_PROBE_CANDIDATES: usize = 64;

/// Rounds of probes begin anew when the excess demand grows by this factor.
const PROBE_RESTART: f64 = 1.2;

/// A change of the admission probability by more than this part is worth a round of hints.
const FEEDBACK_CHANGE: f64 = 0.1;

/// Seconds between two looks at a demand that may be suppressed.
const FEEDBACK_CHECK: f64 = 0.25;

/// Seconds between the first two rounds of hints about a feedback.
const FEEDBACK_GAP: f64 = 0.1;

/// Slots that are examined per step of a round.
const ROUND_STEP: usize = 256;

/// Why the hints of a resource are planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ledger) enum Occasion {
    /// A holder has reported, and wants clearly more than it got.
    Unmet,
    /// Anything else.
    Other,
}

/// The holders to hint.
pub(in crate::ledger) type Chosen = SmallVec<[HolderKey; 8]>;

/// The result of examining a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Examined {
    Hinted,
    /// There is nothing to hint it for.
    Missed,
    /// No more hints are needed, or allowed now.
    Done,
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
        occasion: Occasion,
        polls: impl Fn(HolderKey) -> bool,
        now: Moment,
    ) -> Chosen {
        let Some(mut state) = self.hints.take() else {
            return Chosen::new();
        };
        let is_timer = state.next_at.is_some_and(|at| at <= now);
        if is_timer {
            state.next_at = None;
        }
        let mut planner = Planner {
            resource: self,
            state: &mut state,
            bands: BandShares::default(),
            polls,
            chosen: Chosen::new(),
            now,
        };
        if !planner.resource.are_shares_known(now) {
            let ends = planner.resource.learning_until;
            planner.state.wake_at(ends);
        } else if planner.resource.terms.rule().divides() {
            planner.recall();
            planner.serve();
            planner.probe(is_timer || occasion == Occasion::Unmet);
        } else {
            planner.tell_feedback();
        }
        let chosen = planner.chosen;
        self.hints = Some(state);
        chosen
    }

    /// Hints the holders whose reports are old, because the parent node asks for the demand.
    pub(in crate::ledger) fn ask_demand(
        &mut self,
        polls: impl Fn(HolderKey) -> bool,
        now: Moment,
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
        planner.hint_oldest(f64::INFINITY, now, 0.0);
        let chosen = planner.chosen;
        self.hints = Some(state);
        chosen
    }

    /// Hints all holders whose terms have changed, at most `budget` now; `None` when done.
    pub(in crate::ledger) fn hint_change(
        &mut self,
        budget: usize,
        polls: impl Fn(HolderKey) -> bool,
        now: Moment,
    ) -> Option<Chosen> {
        let mut state = self.hints.take()?;
        let round = state.change.take();
        let mut planner = Planner {
            resource: self,
            state: &mut state,
            bands: BandShares::default(),
            polls,
            chosen: Chosen::new(),
            now,
        };
        let rest = round.map(|round| planner.advance(round, budget, false));
        let chosen = planner.chosen;
        state.change = rest.flatten();
        self.hints = Some(state);
        round.map(|_| chosen)
    }

    /// Notes that the terms have changed. Returns whether a round of hints begins that was not
    /// already under way.
    pub(in crate::ledger) fn note_changed_terms(&mut self, now: Moment) -> bool {
        let Some(state) = &mut self.hints else {
            return false;
        };
        let round = Round {
            next_slot: 0,
            since: now,
        };
        state.change.replace(round).is_none()
    }

    /// Counts a holder as polling. Returns whether it should refresh for its surplus.
    pub(in crate::ledger) fn start_polling(&mut self, holder: HolderKey, now: Moment) -> bool {
        let learning = self.is_learning(now);
        let Some(entry) = self.entries.get_mut(holder) else {
            return false;
        };
        if entry.polls || entry.is_cleared() {
            return false;
        }
        entry.polls = true;
        let (booked, wants) = (entry.booking.amount(now), entry.wants());
        let rule = self.terms.rule();
        let share = rule.share(&self.demands, entry.demands(), true);
        let is_pending = entry
            .last_decision
            .is_some_and(|last| last.reason == Reason::Pending);
        let lacks = if is_pending {
            (share.min(wants) - booked).max(0.0)
        } else {
            0.0
        };
        let is_worth = is_worth_a_hint(entry.kind, lacks, booked + lacks, self.terms.capacity());
        let lacks = if is_worth { lacks } else { 0.0 };
        let by_priority = self.demands.is_by_priority();
        let state = self
            .hints
            .get_or_insert_with(|| Box::new(HintState::new(by_priority)));
        state.report(entry, booked, lacks);
        let free = self.terms.available_beside(self.booked.total());
        let others = self.booked.total_except(entry.slot.index());
        let available = self.terms.available_beside(others);
        let tolerance = self.terms.tuning().surplus_tolerance;
        let gains =
            share > wants && rule.keep_surplus(share, wants, booked, available, tolerance) > booked;
        if rule.divides() && !learning && gains && free > 0.0 {
            state.call(entry, booked, 0.0, 0.0);
            return true;
        }
        false
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
                return Examined::Done;
            }
            let Some((gives, booked)) = planner.gives(slot) else {
                return Examined::Done;
            };
            if gives <= booked * NEGLIGIBLE {
                Examined::Missed
            } else if planner.hint(slot, gives, 0.0) {
                missing -= gives;
                Examined::Hinted
            } else {
                Examined::Done
            }
        };
        self.examine(Order::Spare, &mut examine);
        self.examine(Order::Booked, &mut examine);
    }

    /// The amount that a holder would give back, and the amount booked for it.
    fn gives(&mut self, slot: EntrySlot) -> Option<(f64, f64)> {
        let share = self.share(slot);
        let entry = self.resource.entries.at(slot)?;
        let booked = entry.booking.amount(self.now);
        Some((booked - share.max(entry.outstanding.get()), booked))
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
                return Examined::Done;
            }
            let share = planner.share(slot);
            let Some(entry) = planner.resource.entries.at(slot) else {
                return Examined::Done;
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
                Examined::Missed
            } else if planner.hint(slot, 0.0, gets) {
                free -= gets;
                Examined::Hinted
            } else {
                Examined::Done
            }
        });
    }

    /// Examines the first holders in an order, until it is done or has missed too often.
    fn examine(
        &mut self,
        order: Order,
        examine: &mut impl FnMut(&mut Self, EntrySlot) -> Examined,
    ) {
        if order != Order::Spare && self.state.bands.is_some() {
            self.examine_bands(order, examine);
            return;
        }
        let mut aside = SmallVec::<[EntrySlot; MAX_MISSES]>::new();
        while aside.len() < MAX_MISSES {
            let Some(slot) = self.first(order) else { break };
            match examine(self, slot) {
                Examined::Hinted => {}
                Examined::Missed => {
                    self.state.set_aside(order, slot.index());
                    aside.push(slot);
                }
                Examined::Done => break,
            }
        }
        self.restore(&aside);
    }

    /// The same in each band: those with much from the lowest band up, those with little from the
    /// highest down.
    fn examine_bands(
        &mut self,
        order: Order,
        examine: &mut impl FnMut(&mut Self, EntrySlot) -> Examined,
    ) {
        let mut after: Option<Rank> = None;
        let (mut misses, mut all_misses) = (0, 0_usize);
        while all_misses < MAX_BANDS * MAX_MISSES_IN_BAND
            && let Some(rank) = self.next_in_bands(order, after)
        {
            if after.is_some_and(|after| after.band != rank.band) {
                misses = 0;
            }
            after = Some(rank);
            let slot = EntrySlot::new(rank.slot());
            if !self.still_polls(slot) {
                continue;
            }
            match examine(self, slot) {
                Examined::Hinted => {}
                Examined::Missed => {
                    misses += 1;
                    all_misses += 1;
                }
                Examined::Done => return,
            }
            if misses >= MAX_MISSES_IN_BAND {
                after = Some(match order {
                    Order::Waiting => rank.before_band(),
                    Order::Spare | Order::Booked => rank.after_band(),
                });
            }
        }
    }

    fn next_in_bands(&self, order: Order, after: Option<Rank>) -> Option<Rank> {
        let bands = self.state.bands.as_ref()?;
        match order {
            Order::Waiting => bands.waiting.next_down(after),
            Order::Spare | Order::Booked => bands.booked.next_up(after),
        }
    }

    /// Hints the holders with the largest leases whose reports are old: their demand may have
    /// fallen. The rounds become rare while they bring nothing.
    fn probe(&mut self, is_due: bool) {
        let now = self.now;
        let capacity = self.resource.terms.capacity();
        let excess = self.resource.sum_wants() - capacity;
        let interval = self.resource.terms.refresh_interval(false).get();
        let first_gap = self.resource.terms.tuning().probe_gap;
        let longest = interval.max(first_gap);
        if excess <= 0.0 {
            let probe = &mut self.state.probe;
            if now >= probe.since.after_seconds(longest) {
                *probe = Probe::default();
            }
            return;
        }
        if !is_due {
            return;
        }
        let probe = &mut self.state.probe;
        let known = probe.first_excess;
        let has_grown = excess > (known * PROBE_RESTART).max(known + capacity * EXCESS_CHANGE);
        if has_grown || probe.gap == 0.0 {
            (probe.since, probe.next, probe.gap) = (now, now, first_gap);
            (probe.first_excess, probe.last_excess) = (excess, f64::INFINITY);
        }
        if now < probe.next {
            let next = probe.next;
            if probe.gap < longest {
                self.state.wake_at(next);
            }
            return;
        }
        let is_shrinking = excess < probe.last_excess * (1.0 - EXCESS_CHANGE);
        probe.gap = if is_shrinking {
            first_gap
        } else {
            (2.0 * probe.gap).min(longest)
        };
        probe.last_excess = excess;
        probe.next = now.after_seconds(probe.gap);
        let (next, gap, since) = (probe.next, probe.gap, probe.since);
        if self.hint_oldest(excess, since, first_gap) == 0 {
            // All have reported since the rounds began, so the excess is real.
            self.state.probe.since = now;
            self.state.probe.first_excess = excess;
        }
        if gap < longest {
            self.state.wake_at(next);
        }
    }

    /// One round of probes, until the leases of the hinted holders cover `excess`.
    /// A client's report is not doubted for `fresh` seconds.
    fn hint_oldest(&mut self, mut excess: f64, since: Moment, fresh: f64) -> usize {
        let tuning = self.resource.terms.tuning();
        let before = self.chosen.len();
        let mut aside = SmallVec::<[EntrySlot; 8]>::new();
        for _ in 0..MAX_PROBE_CANDIDATES {
            let hinted = self.chosen.len().saturating_sub(before);
            if excess <= 0.0 || hinted >= tuning.probes {
                break;
            }
            let Some(slot) = self.first(Order::Booked) else {
                break;
            };
            let Some(entry) = self.resource.entries.at(slot) else {
                break;
            };
            // A node may have reported just now what its holders reported long ago.
            let fresh = if entry.is_client() { fresh } else { 0.0 };
            let is_old = entry
                .last_decision
                .is_none_or(|last| last.at < since && last.at.after_seconds(fresh) <= self.now);
            let booked = entry.booking.amount(self.now);
            if !is_old {
                self.state.set_aside(Order::Booked, slot.index());
                aside.push(slot);
            } else if self.hint(slot, 0.0, 0.0) {
                excess -= booked;
            } else {
                break;
            }
        }
        self.restore(&aside);
        self.chosen.len().saturating_sub(before)
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
        let feedback = &mut self.state.feedback;
        let told = *feedback.told.get_or_insert(1.0);
        if (value - told).abs() > FEEDBACK_CHANGE * value.max(told) {
            if now >= feedback.next {
                feedback.told = Some(value);
                feedback.gap = if now >= feedback.next.after_seconds(longest) {
                    FEEDBACK_GAP
                } else {
                    (2.0 * feedback.gap).clamp(FEEDBACK_GAP, longest.max(FEEDBACK_GAP))
                };
                feedback.next = now.after_seconds(feedback.gap);
                feedback.round = Some(Round {
                    next_slot: 0,
                    since: now,
                });
            } else {
                let next = feedback.next;
                self.state.wake_at(next);
            }
        }
        if let Some(check_at) = check_at {
            self.state.wake_at(check_at);
        }
        if let Some(round) = self.state.feedback.round {
            self.state.feedback.round = self.advance(round, ROUND_STEP, true);
            if self.state.feedback.round.is_some() && self.state.next_at.is_none_or(|at| at > now) {
                // The next step, or the end of the window.
                let window_end = self
                    .state
                    .window_end(self.resource.terms.tuning())
                    .filter(|end| *end > now);
                self.state.wake_at(window_end.unwrap_or(now));
            }
        }
    }

    /// Hints the next holders of a round. Returns the rest of it. A paced round waits for room.
    fn advance(&mut self, round: Round, budget: usize, is_paced: bool) -> Option<Round> {
        let mut due = SmallVec::<[EntrySlot; 8]>::new();
        let mut rest = None;
        let tuning = self.resource.terms.tuning();
        let entries = self.resource.entries.slots_from(round.next_slot);
        for (examined, (slot, entry)) in entries.enumerate() {
            let is_due = entry.is_some_and(|entry| {
                entry.polls
                    && entry.call.is_none()
                    && entry.last_decision.is_none_or(|last| last.at < round.since)
            });
            if examined >= ROUND_STEP
                || is_due && due.len() >= budget
                || is_due && is_paced && !self.state.has_room(false, tuning, self.now)
            {
                rest = Some(Round {
                    next_slot: slot,
                    ..round
                });
                break;
            }
            if is_due {
                due.push(EntrySlot::new(slot));
            }
        }
        for slot in due {
            self.call(slot, 0.0, 0.0);
        }
        rest
    }

    /// The first holder in an order that still polls.
    fn first(&mut self, order: Order) -> Option<EntrySlot> {
        loop {
            let slot = EntrySlot::new(self.state.first(order)?);
            if self.still_polls(slot) {
                return Some(slot);
            }
            if self.resource.entries.at(slot).is_none() {
                self.state.set_aside(order, slot.index());
            }
        }
    }

    /// Whether a candidate still polls. If not, it is no candidate any more.
    fn still_polls(&mut self, slot: EntrySlot) -> bool {
        let Some(entry) = self.resource.entries.at_mut(slot) else {
            return false;
        };
        if (self.polls)(entry.holder) {
            return true;
        }
        entry.polls = false;
        self.state.track(entry, entry.booking.amount(self.now));
        false
    }

    /// Hints a holder, if the resource may have another hint now.
    fn hint(&mut self, slot: EntrySlot, recalled: f64, promised: f64) -> bool {
        let tuning = self.resource.terms.tuning();
        let has_room = self.state.has_room(promised > 0.0, tuning, self.now);
        if has_room {
            self.call(slot, recalled, promised);
        }
        has_room
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

    fn restore(&mut self, aside: &[EntrySlot]) {
        for slot in aside {
            if let Some(entry) = self.resource.entries.at(*slot) {
                self.state.track(entry, entry.booking.amount(self.now));
            }
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
