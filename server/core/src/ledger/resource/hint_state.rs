//! State of the polling holders of one resource, to choose those to hint.

use doorman_openapi::{HolderKind, Moment};
use slab::Slab;

use crate::ledger::{
    keys::{CallSlot, EntrySlot},
    resource::entry::Entry,
    resource::hint_bands::BandOrder,
    store::max_tree::MaxTree,
    store::sum_tree::SumTree,
    terms::tuning::Tuning,
};

/// One in so many hints of a window is for waiting holders only.
const RESERVED: u32 = 8;

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
    candidates: [MaxTree; 3],
    /// Present if the algorithm reads priorities.
    pub(in crate::ledger) bands: Option<Box<BandOrders>>,
    /// The part of its share that each pending holder lacks.
    shortfall: SumTree,
    calls: Slab<()>,
    /// The amount that each hinted holder will give back.
    pub(in crate::ledger) recalled: SumTree,
    /// The amount that each hinted holder will take of the free capacity.
    pub(in crate::ledger) promised: SumTree,
    window: Moment,
    in_window: u32,
    pub(in crate::ledger) probe: Probe,
    pub(in crate::ledger) feedback: FeedbackRounds,
    /// Hints to all holders after a change of the terms.
    pub(in crate::ledger) change: Option<Round>,
    /// When to plan again without a request.
    pub(in crate::ledger) next_at: Option<Moment>,
}

/// [`Order::Booked`] and [`Order::Waiting`] by band.
#[derive(Debug, Clone, Default)]
pub(in crate::ledger) struct BandOrders {
    /// In the band of the last unit that is booked.
    pub(in crate::ledger) booked: BandOrder,
    /// In the band of the next unit that is wanted.
    pub(in crate::ledger) waiting: BandOrder,
}

/// An order of the holders that poll and have no open hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ledger) enum Order {
    /// By what is booked beyond the wants.
    Spare = 0,
    /// By what is booked per weight.
    Booked = 1,
    /// Those with unmet wants, the least booked per weight first.
    Waiting = 2,
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
}

/// Hints to all holders, in order of their slots.
#[derive(Debug, Clone, Copy)]
pub(in crate::ledger) struct Round {
    pub(in crate::ledger) next_slot: usize,
    /// Holders that have reported since need no hint.
    pub(in crate::ledger) since: Moment,
}

/// Rounds of hints because the feedback of SUPPRESSION or SHARED_BUCKET has changed.
#[derive(Debug, Clone, Default)]
pub(in crate::ledger) struct FeedbackRounds {
    /// The feedback of the last round.
    pub(in crate::ledger) told: Option<f64>,
    pub(in crate::ledger) round: Option<Round>,
    pub(in crate::ledger) next: Moment,
    /// Seconds between two rounds.
    pub(in crate::ledger) gap: f64,
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

fn unreserved(tuning: &Tuning) -> u32 {
    tuning.hints_per_window - tuning.hints_per_window / RESERVED
}

impl HintState {
    pub(in crate::ledger) fn new(by_priority: bool) -> Self {
        Self {
            bands: by_priority.then(Box::default),
            ..Self::default()
        }
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
        let (wants, weight) = (entry.wants(), entry.weight().max(1.0));
        let if_positive = |value: f64| Some(value).filter(|value| is_candidate && *value > 0.0);
        let is_waiting = is_candidate && wants - booked > wants * UNMET;
        let used = wants.max(entry.outstanding.get());
        let values = [
            if_positive(booked - used),
            if_positive(booked / weight),
            is_waiting.then_some(-booked / weight),
        ];
        for (tree, value) in self.candidates.iter_mut().zip(values) {
            tree.set(entry.slot.index(), value);
        }
        if let Some(bands) = &mut self.bands {
            let slot = entry.slot.index();
            let is_booked = is_candidate && booked > 0.0;
            let place = |is_in, is_next| entry.place_of(booked, is_next).filter(|_| is_in);
            bands.booked.set(slot, place(is_booked, false));
            bands.waiting.set(slot, place(is_waiting, true));
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
        self.candidates.get(order as usize)?.largest()
    }

    /// Leaves a holder out of an order until it is tracked again.
    pub(in crate::ledger) fn set_aside(&mut self, order: Order, slot: usize) {
        if let Some(tree) = self.candidates.get_mut(order as usize) {
            tree.set(slot, None);
        }
    }

    pub(in crate::ledger) fn shortfall(&self) -> f64 {
        self.shortfall.total()
    }

    /// Whether others are called back for this holder.
    pub(in crate::ledger) fn is_short(&self, slot: EntrySlot) -> bool {
        self.shortfall.get(slot.index()) > 0.0
    }

    /// A surplus is left alone only while no other holder lacks capacity.
    pub(in crate::ledger) fn may_keep_surplus(&self, entry: &Entry) -> bool {
        entry.polls && self.nobody_else_lacks(entry)
    }

    /// Whether no other holder lacks capacity.
    pub(in crate::ledger) fn nobody_else_lacks(&self, entry: &Entry) -> bool {
        self.shortfall.total_except(entry.slot.index()) == 0.0
    }

    /// Whether another hint is allowed now. If not, sets when to plan again. Some hints are
    /// reserved for waiting holders.
    pub(in crate::ledger) fn has_room(
        &mut self,
        is_waiting: bool,
        tuning: &Tuning,
        now: Moment,
    ) -> bool {
        let most = if is_waiting {
            tuning.hints_per_window
        } else {
            unreserved(tuning)
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

    /// The end of a window without room.
    pub(in crate::ledger) fn window_end(&self, tuning: &Tuning) -> Option<Moment> {
        (self.in_window >= unreserved(tuning)).then(|| self.window.after_seconds(WINDOW))
    }

    pub(in crate::ledger) fn wake_at(&mut self, at: Moment) {
        self.next_at = Some(self.next_at.map_or(at, |next| next.min(at)));
    }
}
