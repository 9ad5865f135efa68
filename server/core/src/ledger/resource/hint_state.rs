//! State of the polling holders of one resource, to choose those to hint.

use doorman_openapi::{HolderKind, Moment};
use slab::Slab;

use crate::ledger::{
    keys::{CallSlot, EntrySlot},
    resource::entry::Entry,
    store::max_tree::MaxTree,
    store::sum_tree::SumTree,
};

/// The most hints per window, beside those of rounds. The last ones are for waiting holders only.
const MAX_IN_WINDOW: u32 = 64;
const MAX_UNRESERVED: u32 = 56;

/// In seconds.
const WINDOW: f64 = 0.1;

/// A demand counts as met if less than this part of it is missing.
const UNMET: f64 = 1e-3;

/// The parts of a share and of the capacity that are missed.
const MISSING_OF_SHARE: f64 = 0.05;
const MISSING_OF_CAPACITY: f64 = 0.02;
/// The part of its share that a node misses.
const MISSING_OF_NODE: f64 = 0.005;

/// Kept from the first poll of a holder on.
#[derive(Debug, Clone, Default)]
pub(in crate::ledger) struct HintState {
    /// Whether the algorithm reads priorities.
    pub(in crate::ledger) by_priority: bool,
    candidates: [MaxTree; 3],
    /// The part of its share that each pending holder lacks.
    shortfall: SumTree,
    calls: Slab<()>,
    /// The amount that each hinted holder will give back.
    pub(in crate::ledger) recalled: SumTree,
    /// The amount that each hinted holder will take of the free capacity.
    pub(in crate::ledger) promised: SumTree,
    window: Moment,
    in_window: u32,
    /// Hints to holders that may have reported their demand long ago.
    pub(in crate::ledger) probes: Rounds,
    /// Hints because the feedback of SUPPRESSION or SHARED_BUCKET has changed.
    pub(in crate::ledger) feedback: Rounds,
    /// Hints to all holders after a change of the terms or of the feedback.
    pub(in crate::ledger) round: Option<Round>,
    /// When to plan again without a request.
    pub(in crate::ledger) next_at: Moment,
}

/// An order of the holders that poll and have no open hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ledger) enum Order {
    /// By what is booked beyond the wants.
    Spare = 0,
    /// By what is booked per weight; by priority, in the lowest band first. That of a holder is the
    /// one of the last unit that is booked for it.
    Booked = 1,
    /// Those with unmet wants, the least booked per weight first; by priority, in the highest band
    /// first. That of a holder is the one of the next unit that it wants.
    Waiting = 2,
}

/// When rounds of hints are given about a value that changes.
#[derive(Debug, Clone, Default)]
pub(in crate::ledger) struct Rounds {
    /// The value at the last round.
    pub(in crate::ledger) told: f64,
    pub(in crate::ledger) next: Moment,
    /// Seconds between two rounds.
    pub(in crate::ledger) gap: f64,
}

/// Hints to all holders, in order of their slots.
#[derive(Debug, Clone, Copy)]
pub(in crate::ledger) struct Round {
    pub(in crate::ledger) next_slot: usize,
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
    pub(in crate::ledger) fn new(by_priority: bool) -> Self {
        let feedback = Rounds {
            told: 1.0,
            ..Rounds::default()
        };
        Self {
            by_priority,
            feedback,
            next_at: Moment::NEVER,
            ..Self::default()
        }
    }

    /// Begins a round of hints to all holders, in place of the one under way.
    pub(in crate::ledger) fn begin_round(&mut self, now: Moment) {
        self.round = Some(Round {
            next_slot: 0,
            since: now,
        });
    }

    /// Records a request or release of a holder, and how much it lacks of its share.
    pub(in crate::ledger) fn report(&mut self, entry: &mut Entry, booked: f64, lacks: f64) {
        self.end_call(entry);
        self.shortfall.set(entry.slot.index(), lacks);
        self.track(entry, booked);
    }

    /// Records that a holder was told to shrink. It reports that at once, so it needs no hint.
    pub(in crate::ledger) fn expect_return(
        &mut self,
        entry: &mut Entry,
        booked: f64,
        returns: f64,
    ) {
        if entry.polls && returns > booked * UNMET {
            self.call(entry, booked, returns, 0.0);
        }
    }

    /// Records what is booked for a holder.
    pub(in crate::ledger) fn track(&mut self, entry: &Entry, booked: f64) {
        let is_candidate = entry.polls && entry.call.is_none() && !entry.is_cleared();
        let wants = entry.wants();
        let spare = booked - wants.max(entry.outstanding.get());
        let place = |is_next| {
            if self.by_priority {
                entry.place_of(booked, is_next)
            } else {
                Some((0, booked / entry.weight().max(1.0)))
            }
        };
        let is_waiting = wants - booked > wants * UNMET;
        let values = [
            (spare > 0.0).then_some((0, spare)),
            place(false)
                .filter(|_| booked > 0.0)
                .map(|(band, booked)| (!band, booked)),
            place(true)
                .filter(|_| is_waiting)
                .map(|(band, booked)| (band, -booked)),
        ];
        for (tree, value) in self.candidates.iter_mut().zip(values) {
            let value = value.filter(|_| is_candidate);
            tree.set(entry.slot.index(), value.map_or(0, rank));
        }
    }

    /// Hints a holder. It will give back, or take, so much.
    pub(in crate::ledger) fn call(
        &mut self,
        entry: &mut Entry,
        booked: f64,
        recalled: f64,
        promised: f64,
    ) {
        let call = CallSlot::new(self.calls.insert(()));
        entry.call = Some(call);
        self.recalled.set(call.index(), recalled);
        self.promised.set(call.index(), promised);
        self.track(entry, booked);
    }

    pub(in crate::ledger) fn end_call(&mut self, entry: &mut Entry) {
        if let Some(call) = entry.call.take() {
            self.settle(call);
            self.calls.try_remove(call.index());
        }
    }

    /// Expects nothing more of a hint.
    pub(in crate::ledger) fn settle(&mut self, call: CallSlot) {
        self.recalled.set(call.index(), 0.0);
        self.promised.set(call.index(), 0.0);
    }

    pub(in crate::ledger) fn first(&self, order: Order) -> Option<usize> {
        self.candidates.get(order as usize)?.first()
    }

    /// Leaves a holder out of an order until it is tracked again.
    pub(in crate::ledger) fn set_aside(&mut self, order: Order, slot: usize) {
        if let Some(tree) = self.candidates.get_mut(order as usize) {
            tree.set(slot, 0);
        }
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

/// By the band, then by the number. `f32` is precise enough: ranks only find candidates.
fn rank((band, number): (i32, f64)) -> u64 {
    let bits = (number as f32).to_bits();
    // In the order of `f32::total_cmp`.
    let is_negative = bits >> 31 == 1;
    let number = if is_negative { !bits } else { bits | 1 << 31 };
    let band = band.cast_unsigned() ^ 1 << 31;
    u64::from(band) << 32 | u64::from(number)
}
