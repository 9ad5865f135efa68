//! The entries of one resource, one per holder.

use std::{borrow::Cow, collections::BTreeMap, fmt, mem};

use doorman_openapi::{
    Band, Capacity, ClientCount, HolderKind, MAX_BANDS, Moment, Reason, Seconds,
};
use slab::Slab;
use smallvec::SmallVec;

use crate::ledger::{
    algorithm::{Polling, SharedBucket},
    demands::{Demand, DemandTree, PlacedDemand},
    keys::{EntrySlot, HolderKey},
    resource::booking::Booking,
    resource::order::RequestOrder,
    resource::unit_change::UnitChange,
    store::packed::OptionalCapacity,
};

#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each changes on its own")]
pub(in crate::ledger) struct Entry {
    pub(in crate::ledger) holder: HolderKey,
    pub(in crate::ledger) slot: EntrySlot,
    pub(in crate::ledger) booking: Booking,
    pub(in crate::ledger) order: RequestOrder,
    pub(in crate::ledger) outstanding: Capacity,
    pub(in crate::ledger) used: OptionalCapacity,
    pub(in crate::ledger) last_decision: Option<LastDecision>,
    /// Until then the entry stays without a lease, so that a late request is known as such.
    pub(in crate::ledger) retained_until: Moment,
    /// Until then the new master of a node may claim less than its predecessor has handed out.
    pub(in crate::ledger) predecessor_until: Moment,
    /// The lease was granted in learning mode on a claim that was not confirmed. A late copy may
    /// have made it: others may have the capacity, and the holder less.
    pub(in crate::ledger) is_unconfirmed: bool,
    /// Whether the holder was told the unit in a response.
    pub(in crate::ledger) is_told: bool,
    /// Present after a change of the unit, until the holder has heard of it.
    pub(in crate::ledger) unit_change: Option<Box<UnitChange>>,
    /// Whether the holder counts as polling for hints.
    pub(in crate::ledger) polls: bool,
    /// Whether it has a hint that it has not yet acted on.
    pub(in crate::ledger) is_hinted: bool,
    pub(in crate::ledger) kind: HolderKind,
    /// The demands in the tree. The usual client has one, which needs no allocation.
    bands: SmallVec<[PlacedBand; 1]>,
    /// The bands of a client with several, while the algorithm ignores priorities: `bands` is their
    /// sum, because a client has the weight of one.
    #[expect(
        clippy::box_collection,
        reason = "few have it, and it takes 8 bytes of all"
    )]
    merged: Option<Box<Vec<Band>>>,
}

/// The demand of a holder at one priority.
#[derive(Debug, Clone, Copy)]
struct PlacedBand {
    priority: i32,
    placed: PlacedDemand,
}

/// When the algorithm last ran for a holder, and with what result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::ledger) struct LastDecision {
    pub(in crate::ledger) at: Moment,
    pub(in crate::ledger) reason: Reason,
    /// Seconds from `at` to the next refresh. `f32` is precise to less than a millisecond.
    due_after: f32,
}

impl LastDecision {
    pub(in crate::ledger) fn new(at: Moment, reason: Reason, due: Moment) -> Self {
        Self {
            at,
            reason,
            due_after: due.seconds_since(at) as f32,
        }
    }

    pub(in crate::ledger) fn due(&self) -> Moment {
        self.at.after_seconds(f64::from(self.due_after))
    }
}

/// The baseline of a holder's first `used` total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ledger) enum UsageBaseline {
    Zero,
    /// Itself: a previous server may have charged it.
    FirstReport,
}

impl Entry {
    fn new(holder: HolderKey, kind: HolderKind, slot: EntrySlot, order: RequestOrder) -> Self {
        Self {
            holder,
            slot,
            booking: Booking::NONE,
            order,
            outstanding: Capacity::ZERO,
            used: OptionalCapacity::NONE,
            last_decision: None,
            retained_until: Moment::ORIGIN,
            predecessor_until: Moment::ORIGIN,
            is_unconfirmed: false,
            is_told: false,
            unit_change: None,
            polls: false,
            is_hinted: false,
            kind,
            bands: SmallVec::new(),
            merged: None,
        }
    }

    /// Records when the refresh is due after a response without a new decision.
    pub(in crate::ledger) fn set_due(&mut self, refresh_interval: Seconds, now: Moment) {
        if let Some(last) = &mut self.last_decision {
            let due = now.after_seconds(refresh_interval.get());
            *last = LastDecision::new(last.at, last.reason, due);
        }
    }

    /// Replaces the demand. Only changed bands touch the tree.
    pub(in crate::ledger) fn set_demand(&mut self, bands: &[Band], demands: &mut DemandTree) {
        let bands = merge_bands(bands);
        let mut merged = None;
        let bands = if self.is_client() && bands.len() > 1 && !demands.is_by_priority() {
            let sum = sum_of_client(&bands);
            merged = Some(Box::new(bands.into_owned()));
            Cow::Owned(vec![sum])
        } else {
            bands
        };
        let same_priorities = self.bands.len() == bands.len()
            && (self.bands.iter().zip(&*bands)).all(|(old, new)| old.priority == new.priority);
        if same_priorities {
            for (old, new) in self.bands.iter_mut().zip(&*bands) {
                old.placed = demands.replace(old.priority, old.placed, demand_of(new));
            }
            self.merged = merged;
            return;
        }
        self.remove_demand(demands);
        self.merged = merged;
        self.bands.reserve_exact(bands.len());
        self.bands.extend(bands.iter().map(|band| PlacedBand {
            priority: band.priority,
            placed: demands.insert(band.priority, demand_of(band)),
        }));
        demands.add_further_bands(self.further_bands());
    }

    /// Withdraws the demand and frees the leases. The order stays.
    pub(in crate::ledger) fn clear(&mut self, demands: &mut DemandTree) {
        self.remove_demand(demands);
        self.booking = Booking::NONE;
        self.outstanding = Capacity::ZERO;
        self.used = OptionalCapacity::NONE;
        self.last_decision = None;
    }

    pub(in crate::ledger) fn remove_demand(&mut self, demands: &mut DemandTree) {
        demands.remove_further_bands(self.further_bands());
        self.merged = None;
        for band in self.bands.drain(..) {
            demands.remove(band.priority, band.placed);
        }
    }

    /// Inserts the demand into another tree, which replaces the one that it was in.
    pub(in crate::ledger) fn move_demand(&mut self, demands: &mut DemandTree) {
        if self.is_client() && (self.bands.len() > 1 || self.merged.is_some()) {
            let bands = self.bands();
            self.bands.clear();
            self.set_demand(&bands, demands);
            return;
        }
        for band in &mut self.bands {
            band.placed = demands.insert(band.priority, band.placed.demand());
        }
    }

    /// Records the reported total and returns how much of it is new.
    ///
    /// A smaller total starts a new count, of which nothing is charged. A first total is charged
    /// from zero, but at most one burst: more cannot be used before the first response, so it is
    /// the total of a holder that was forgotten.
    pub(in crate::ledger) fn report_used(
        &mut self,
        used: Option<Capacity>,
        baseline: UsageBaseline,
        rate: f64,
    ) -> f64 {
        let Some(used) = used else { return 0.0 };
        let before = mem::replace(&mut self.used, OptionalCapacity::new(Some(used)));
        match (before.get(), baseline) {
            (Some(before), _) => (used.get() - before.get()).max(0.0),
            (None, UsageBaseline::Zero) => used.get().min(SharedBucket::burst(rate)),
            (None, UsageBaseline::FirstReport) => 0.0,
        }
    }

    pub(in crate::ledger) fn demands(&self) -> impl Iterator<Item = PlacedDemand> + Clone {
        self.bands.iter().map(|band| band.placed)
    }

    pub(in crate::ledger) fn wants(&self) -> f64 {
        self.demands().map(|placed| placed.demand().wants).sum()
    }

    pub(in crate::ledger) fn weight(&self) -> f64 {
        self.demands().map(|placed| placed.demand().weight).sum()
    }

    /// How it polls for hints, by its last decision.
    pub(in crate::ledger) fn polling(&self, demands: &DemandTree) -> Polling {
        if !self.polls {
            return Polling::No;
        }
        if self.last_decision.is_none() {
            return Polling::First;
        }
        let is_alone = self.is_client() && demands.clients() <= 1.0;
        if is_alone {
            Polling::Alone
        } else {
            Polling::Yes
        }
    }

    pub(in crate::ledger) fn is_client(&self) -> bool {
        self.kind == HolderKind::Client
    }

    /// The bands of a client in the tree beyond the first.
    fn further_bands(&self) -> usize {
        match self.kind {
            HolderKind::Client => self.bands.len().saturating_sub(1),
            HolderKind::Node => 0,
        }
    }

    /// The number of clients: of a node, those behind it.
    pub(in crate::ledger) fn clients(&self) -> f64 {
        self.weight() - self.further_bands() as f64
    }

    /// The band of the last unit of an amount that is used by the highest priorities first, or of
    /// the next unit after it, and the amount per weight in that band. It is 0 if the algorithm
    /// ignores priorities.
    pub(in crate::ledger) fn place_of(&self, amount: f64, is_next: bool) -> Option<(i32, f64)> {
        let mut rest = amount;
        let mut place = None;
        let same = |a: &PlacedBand, b: &PlacedBand| a.placed.band() == b.placed.band();
        for bands in self.bands.chunk_by(same) {
            if place.is_some() && (rest < 0.0 || rest == 0.0 && !is_next) {
                break;
            }
            let demands = || bands.iter().map(|band| band.placed.demand());
            let weight: f64 = demands().map(|demand| demand.weight).sum();
            place = Some((bands.first()?.placed.band(), rest / weight));
            rest -= demands().map(|demand| demand.wants).sum::<f64>();
        }
        place
    }

    pub(in crate::ledger) fn bands(&self) -> Vec<Band> {
        if let Some(merged) = &self.merged {
            return Vec::clone(merged);
        }
        let bands = self.bands.iter().filter_map(|band| {
            let demand = band.placed.demand();
            let num_clients = ClientCount::new(demand.weight as u64).ok()?;
            Some(Band {
                priority: band.priority,
                num_clients,
                wants: Capacity::saturating(demand.wants),
            })
        });
        bands.collect()
    }

    /// When the entry changes next: the end of a hold, or of its retention.
    pub(in crate::ledger) fn next_end(&self, now: Moment) -> Option<Moment> {
        let retained = Some(self.retained_until).filter(|end| *end > now);
        let set_aside = self.unit_change.as_ref().and_then(|it| it.end(now));
        let booked = self.booking.next_end(now);
        booked.into_iter().chain(retained).chain(set_aside).min()
    }

    /// Whether it is retained only for its order.
    pub(in crate::ledger) fn is_cleared(&self) -> bool {
        self.bands.is_empty()
    }
}

/// The demand of a client over all priorities, which has the weight of one.
fn sum_of_client(bands: &[Band]) -> Band {
    let wants = bands.iter().map(|band| band.wants.get()).sum();
    Band {
        priority: bands.first().map_or(0, |band| band.priority),
        num_clients: ClientCount::ONE,
        wants: Capacity::saturating(wants),
    }
}

/// A demand in another unit.
pub(in crate::ledger) fn scaled(band: &Band, factor: f64) -> Band {
    Band {
        wants: Capacity::saturating(band.wants.get() * factor),
        ..*band
    }
}

fn demand_of(band: &Band) -> Demand {
    Demand {
        wants: band.wants.get(),
        weight: band.num_clients.get() as f64,
    }
}

/// Sorts bands by priority, highest first, and merges the lowest beyond [`MAX_BANDS`] priorities,
/// so that a long request cannot bloat the ledger.
fn merge_bands(bands: &[Band]) -> Cow<'_, [Band]> {
    if bands.len() <= 1 {
        return bands.into();
    }
    let mut bands = bands.to_vec();
    bands.sort_by_key(|band| std::cmp::Reverse(band.priority));
    let mut priorities: Vec<i32> = bands.iter().map(|band| band.priority).collect();
    priorities.dedup();
    let Some(lowest) = priorities.get(MAX_BANDS - 1).copied() else {
        return bands.into();
    };
    let kept = bands.partition_point(|band| band.priority >= lowest);
    let merged = bands.split_off(kept);
    if let Some(last) = bands.last_mut() {
        for band in merged {
            let clients = last
                .num_clients
                .get()
                .saturating_add(band.num_clients.get());
            last.num_clients = ClientCount::new(clients).unwrap_or(last.num_clients);
            last.wants = Capacity::saturating(last.wants.get() + band.wants.get());
        }
    }
    bands.into()
}

/// The entries of one resource, by holder and by slot. They are large and many, so they lie in a
/// slab, which a small map indexes. A hash map would stall when it grows.
#[derive(Clone, Default)]
pub(in crate::ledger) struct Entries {
    slots: BTreeMap<HolderKey, EntrySlot>,
    entries: Slab<Entry>,
    end: usize,
}

/// Shows the entries by slot, which a slab does not.
impl fmt::Debug for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(&self.entries).finish()
    }
}

impl Entries {
    pub(in crate::ledger) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(in crate::ledger) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(in crate::ledger) fn contains(&self, holder: HolderKey) -> bool {
        self.slots.contains_key(&holder)
    }

    pub(in crate::ledger) fn get(&self, holder: HolderKey) -> Option<&Entry> {
        self.entries.get(self.slots.get(&holder)?.index())
    }

    pub(in crate::ledger) fn get_mut(&mut self, holder: HolderKey) -> Option<&mut Entry> {
        self.entries.get_mut(self.slots.get(&holder)?.index())
    }

    pub(in crate::ledger) fn at(&self, slot: EntrySlot) -> Option<&Entry> {
        self.entries.get(slot.index())
    }

    pub(in crate::ledger) fn at_mut(&mut self, slot: EntrySlot) -> Option<&mut Entry> {
        self.entries.get_mut(slot.index())
    }

    /// Adds an entry for a holder that has none.
    pub(in crate::ledger) fn add(
        &mut self,
        holder: HolderKey,
        kind: HolderKind,
        order: RequestOrder,
    ) -> &mut Entry {
        if self.entries.capacity() == 0 {
            // Many resources have one holder. The first allocation of a slab is for four.
            self.entries.reserve_exact(1);
        }
        let vacant = self.entries.vacant_entry();
        let slot = EntrySlot::new(vacant.key());
        self.slots.insert(holder, slot);
        self.end = self.end.max(vacant.key().saturating_add(1));
        vacant.insert(Entry::new(holder, kind, slot, order))
    }

    /// Its slot is reused by the next holder.
    pub(in crate::ledger) fn remove(&mut self, holder: HolderKey) -> Option<Entry> {
        let slot = self.slots.remove(&holder)?;
        self.entries.try_remove(slot.index())
    }

    pub(in crate::ledger) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.iter_mut().map(|(_, entry)| entry)
    }

    pub(in crate::ledger) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().map(|(_, entry)| entry)
    }

    /// One past the highest slot that was ever used.
    pub(in crate::ledger) fn end(&self) -> usize {
        self.end
    }

    /// The slots from `slot` on, each with its entry, if any.
    pub(in crate::ledger) fn slots_from(
        &self,
        slot: usize,
    ) -> impl Iterator<Item = (usize, Option<&Entry>)> {
        (slot..self.end).map(|slot| (slot, self.entries.get(slot)))
    }
}
