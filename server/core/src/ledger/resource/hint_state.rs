//! State of the polling holders of one resource, to choose those to hint.

use doorman_openapi::{HolderKind, Moment};

use crate::ledger::{
    keys::EntrySlot,
    resource::entry::Entry,
    store::ranked_slots::{Place, Rank, RankedSlots},
    store::sum_tree::SumTree,
};

/// The most hints per window, beside those of rounds. The last ones are for waiting holders only.
const MAX_IN_WINDOW: u32 = 64;
const MAX_UNRESERVED: u32 = 56;

/// In seconds.
const WINDOW: f64 = 0.1;

/// Smaller parts of an amount are not worth a hint: a demand counts as met without them.
pub(in crate::ledger) const NEGLIGIBLE: f64 = 1e-3;

/// The parts of a share and of the capacity that are missed.
const MISSING_OF_SHARE: f64 = 0.05;
const MISSING_OF_CAPACITY: f64 = 0.02;
/// The part of its share that a node misses.
const MISSING_OF_NODE: f64 = 0.005;

/// The band of holders with spare capacity: before all others.
const SPARE: i32 = i32::MIN;

/// Kept from the first poll of a holder on.
#[derive(Debug, Clone, Default)]
pub(in crate::ledger) struct HintState {
    candidates: [RankedSlots; 2],
    /// The part of its share that each pending holder lacks.
    shortfall: SumTree,
    /// The amount that each hinted holder will give back.
    recalled: SumTree,
    /// The amount that each hinted holder will take of the free capacity.
    promised: SumTree,
    window: Moment,
    in_window: u32,
    pub(in crate::ledger) probe: Probe,
    pub(in crate::ledger) signal: SignalRounds,
    /// Hints to all holders after a change of the terms or of the signal.
    pub(in crate::ledger) round: Round,
    /// When to plan again without a request.
    pub(in crate::ledger) next_at: Moment,
}

/// An order of the holders that poll and have no open hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ledger) enum Order {
    /// Those with something booked: first by what is booked beyond the wants, then by what is
    /// booked per weight; by priority, in the lowest band first. The band of a holder is that of
    /// the last unit that is booked for it.
    Booked = 0,
    /// Those with unmet wants, the least booked per weight first; by priority, in the highest band
    /// first. The band of a holder is that of the next unit that it wants.
    Waiting = 1,
}

/// Rounds of hints to holders that may have reported their demand long ago.
#[derive(Debug, Clone, Default)]
pub(in crate::ledger) struct Probe {
    /// Holders that have reported since need no hint.
    pub(in crate::ledger) since: Moment,
    pub(in crate::ledger) next: Moment,
    /// Seconds between two rounds.
    pub(in crate::ledger) gap: f64,
    /// The demand beyond the capacity when the rounds began, or when all had reported since; and in
    /// the last round.
    pub(in crate::ledger) first_excess: f64,
    pub(in crate::ledger) last_excess: f64,
    /// Where the last round stopped; `None` if the next one begins with the largest lease.
    pub(in crate::ledger) stopped: Option<Place>,
    /// Whether any were hinted since a round began with the largest lease.
    has_hinted: bool,
}

impl Probe {
    pub(in crate::ledger) fn begin(excess: f64, gap: f64, now: Moment) -> Self {
        Self {
            since: now,
            next: now,
            gap,
            first_excess: excess,
            last_excess: f64::INFINITY,
            ..Self::default()
        }
    }

    /// Sets the time of the next round.
    pub(in crate::ledger) fn pause(&mut self, gap: f64, excess: f64, now: Moment) {
        self.gap = gap;
        self.last_excess = excess;
        self.next = now.after_seconds(gap);
    }

    /// A round has stopped at a place, `None` at the end of the order.
    pub(in crate::ledger) fn end_round(
        &mut self,
        stopped: Option<Place>,
        has_hinted: bool,
        excess: f64,
        now: Moment,
    ) {
        self.stopped = stopped;
        self.has_hinted |= has_hinted;
        if stopped.is_none() && !std::mem::take(&mut self.has_hinted) {
            // All have reported since the rounds began, so the excess is real.
            self.since = now;
            self.first_excess = excess;
        }
    }
}

/// When rounds of hints begin because the signal of SUPPRESSION or SHARED_BUCKET has changed.
#[derive(Debug, Clone, Default)]
pub(in crate::ledger) struct SignalRounds {
    /// The signal at the last round.
    pub(in crate::ledger) told: f64,
    pub(in crate::ledger) next: Moment,
    /// Seconds between two rounds.
    pub(in crate::ledger) gap: f64,
}

/// Hints to all holders, slot by slot.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::ledger) struct Round {
    pub(in crate::ledger) next_slot: usize,
    /// How many slots are left; 0 if no round is under way.
    pub(in crate::ledger) slots_left: usize,
    /// Holders that have reported since need no hint.
    pub(in crate::ledger) since: Moment,
}

/// Whether it is worth a hint that a holder lacks so much of its share. Small differences are
/// settled by the regular refreshes, but not those of nodes, where they add up over the levels.
pub(in crate::ledger) fn is_worth_a_hint(
    kind: HolderKind,
    lacks: f64,
    share: f64,
    capacity: f64,
) -> bool {
    match kind {
        HolderKind::Client => {
            lacks > share * MISSING_OF_SHARE || lacks > capacity * MISSING_OF_CAPACITY
        }
        HolderKind::Node => lacks > share * MISSING_OF_NODE,
    }
}

impl HintState {
    pub(in crate::ledger) fn new() -> Self {
        Self {
            signal: SignalRounds {
                told: 1.0,
                ..SignalRounds::default()
            },
            next_at: Moment::NEVER,
            ..Self::default()
        }
    }

    /// Begins a round of hints to all of so many slots, in place of the one under way. It begins
    /// where that one is, or the last one ended: frequent rounds reach all holders.
    pub(in crate::ledger) fn begin_round(&mut self, slots: usize, now: Moment) {
        (self.round.slots_left, self.round.since) = (slots, now);
    }

    /// Records a request or release of a holder, and how much it lacks of its share.
    pub(in crate::ledger) fn report(&mut self, entry: &mut Entry, booked: f64, lacks: f64) {
        self.end_hint(entry);
        self.shortfall.set(entry.slot.index(), lacks);
        self.track(entry, booked);
    }

    /// Records what is booked for a holder.
    pub(in crate::ledger) fn track(&mut self, entry: &Entry, booked: f64) {
        let is_candidate = entry.polls && !entry.is_hinted && !entry.is_cleared();
        let ranks = is_candidate.then(|| ranks(entry, booked));
        let ranks = ranks.unwrap_or_default();
        for (slots, rank) in self.candidates.iter_mut().zip(ranks) {
            slots.set(entry.slot.index(), rank);
        }
    }

    /// Hints a holder. It will give back, or take, so much.
    pub(in crate::ledger) fn hint(
        &mut self,
        entry: &mut Entry,
        booked: f64,
        recalled: f64,
        promised: f64,
    ) {
        entry.is_hinted = true;
        self.recalled.set(entry.slot.index(), recalled);
        self.promised.set(entry.slot.index(), promised);
        self.track(entry, booked);
    }

    pub(in crate::ledger) fn end_hint(&mut self, entry: &mut Entry) {
        entry.is_hinted = false;
        self.settle(entry.slot);
    }

    /// Expects nothing more of a hint.
    pub(in crate::ledger) fn settle(&mut self, slot: EntrySlot) {
        self.recalled.set(slot.index(), 0.0);
        self.promised.set(slot.index(), 0.0);
    }

    /// The first candidate in an order, or the next one after another.
    pub(in crate::ledger) fn next(&self, order: Order, after: Option<Place>) -> Option<Place> {
        self.candidates.get(order as usize)?.next(after)
    }

    pub(in crate::ledger) fn recalled(&self) -> f64 {
        self.recalled.total()
    }

    pub(in crate::ledger) fn promised(&self) -> f64 {
        self.promised.total()
    }

    pub(in crate::ledger) fn shortfall(&self) -> f64 {
        self.shortfall.total()
    }

    /// Whether others are called back for this holder.
    pub(in crate::ledger) fn is_short(&self, slot: EntrySlot) -> bool {
        self.shortfall.get(slot.index()) > 0.0
    }

    /// Whether no other holder lacks capacity.
    pub(in crate::ledger) fn nobody_else_lacks(&self, entry: &Entry) -> bool {
        self.shortfall.total_except(entry.slot.index()) == 0.0
    }

    /// Whether another hint is allowed now. If not, sets when to plan again. Some hints are
    /// reserved for waiting holders.
    pub(in crate::ledger) fn has_room(&mut self, is_waiting: bool, now: Moment) -> bool {
        let most = if is_waiting {
            MAX_IN_WINDOW
        } else {
            MAX_UNRESERVED
        };
        let end = self.window.after_seconds(WINDOW);
        if now >= end {
            (self.window, self.in_window) = (now, 0);
        } else if self.in_window >= most {
            self.wake_at(end);
            return false;
        }
        self.in_window = self.in_window.saturating_add(1);
        true
    }

    pub(in crate::ledger) fn wake_at(&mut self, at: Moment) {
        self.next_at = self.next_at.min(at);
    }
}

/// The ranks of a holder in each order.
fn ranks(entry: &Entry, booked: f64) -> [Option<Rank>; 2] {
    let wants = entry.wants();
    let spare = booked - wants.max(entry.outstanding.get());
    let last = if spare > booked * NEGLIGIBLE {
        Some((SPARE, spare))
    } else {
        let last = entry.place_of(booked, false).filter(|_| booked > 0.0);
        last.map(|(band, booked)| (band.max(SPARE + 1), booked))
    };
    let is_waiting = wants - booked > wants * NEGLIGIBLE;
    let next = entry.place_of(booked, true).filter(|_| is_waiting);
    [
        last.map(|(band, booked)| Rank::new(band, -booked)),
        next.map(|(band, booked)| Rank::new(!band, booked)),
    ]
}
