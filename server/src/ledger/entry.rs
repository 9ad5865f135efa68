//! What the books keep of one holder of one resource.

use std::borrow::Cow;

use doorman_openapi::{Band, Capacity, ClientCount, Moment, Reason, Seconds};
use smallvec::SmallVec;

use super::{
    booking::Booking,
    demands::{Demand, Demands, Placed},
    order::Order,
    resource::HolderKey,
    shared_bucket,
};

/// The most priorities that one holder is booked with: of more, the lowest are merged, so that no request bloats the books.
const MAX_BANDS: usize = 32;

/// One holder's demand at one priority.
#[derive(Debug, Clone, Copy)]
struct BandEntry {
    priority: i32,
    placed: Placed,
}

/// From where the first total counts that a holder says it has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Baseline {
    Zero,
    /// From itself: a predecessor may have counted it already.
    Said,
}

/// What came of the last time that the algorithm ran for a holder.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Decided {
    /// When that was.
    pub(super) at: Moment,
    /// Why it gave what it gave.
    pub(super) reason: Reason,
    /// How many seconds later the holder should have come back, by what it was last told: other terms may be in force meanwhile. It is
    /// for people only, and half the bytes of a length do.
    due_after: f32,
}

impl Decided {
    pub(super) fn new(at: Moment, reason: Reason, due: Moment) -> Self {
        Self {
            at,
            reason,
            due_after: due.seconds_since(at) as f32,
        }
    }

    /// When the holder should have come back at the latest.
    pub(super) fn due(&self) -> Moment {
        self.at.after_seconds(f64::from(self.due_after))
    }
}

/// What the books keep of one holder of one resource.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) holder: HolderKey,
    /// Its place among the entries, and in the sums of the bookings.
    pub(super) slot: u32,
    pub(super) booking: Booking,
    /// The newest transmission that was heard.
    pub(super) order: Order,
    pub(super) outstanding: Capacity,
    pub(super) used: Option<Capacity>,
    pub(super) decided: Option<Decided>,
    /// When it rings for this entry; any other alarm is an old one.
    pub(super) alarm: Moment,
    /// A released entry keeps its order until then, so that a late request does not bring the lease back.
    pub(super) released_until: Moment,
    /// A client has one: it lies here, not behind a pointer.
    bands: SmallVec<[BandEntry; 1]>,
}

impl Entry {
    pub(super) fn new(holder: HolderKey, slot: u32, order: Order) -> Self {
        Self {
            holder,
            slot,
            booking: Booking::NOTHING,
            order,
            outstanding: Capacity::ZERO,
            used: None,
            decided: None,
            alarm: Moment::NEVER,
            released_until: Moment::ORIGIN,
            bands: SmallVec::new(),
        }
    }

    /// The holder is told to come back after this interval.
    pub(super) fn told(&mut self, refresh_interval: Seconds, now: Moment) {
        if let Some(decided) = &mut self.decided {
            let due = now.after_seconds(refresh_interval.get());
            *decided = Decided::new(decided.at, decided.reason, due);
        }
    }

    /// Puts the demand in the place of the one before; a demand that has not changed costs no change of the tree.
    pub(super) fn demand(&mut self, bands: &[Band], demands: &mut Demands) {
        let bands = merged(bands);
        let same_priorities = self.bands.len() == bands.len()
            && (self.bands.iter().zip(&*bands)).all(|(kept, band)| kept.priority == band.priority);
        if same_priorities {
            for (kept, band) in self.bands.iter_mut().zip(&*bands) {
                let demand = demand_of(band);
                if kept.placed.demand() != demand {
                    kept.placed = demands.replace(kept.placed, demand);
                }
            }
            return;
        }
        self.withdraw(demands);
        self.bands.reserve_exact(bands.len());
        self.bands.extend(bands.iter().map(|band| BandEntry {
            priority: band.priority,
            placed: demands.insert(demand_of(band)),
        }));
    }

    /// Takes down the total that the holder says it has used; how much of it is new.
    ///
    /// A total that has shrunk is another count, of which nothing is known. The first that is ever heard counts from zero, but for no
    /// more than one bucket full: so much the holder may have used before it was first answered; a larger one is the total of somebody
    /// who was forgotten.
    pub(super) fn says_used(
        &mut self,
        used: Option<Capacity>,
        baseline: Baseline,
        rate: f64,
    ) -> f64 {
        let Some(used) = used else { return 0.0 };
        match (self.used.replace(used), baseline) {
            (Some(before), _) => (used.get() - before.get()).max(0.0),
            (None, Baseline::Zero) => used.get().min(shared_bucket::size(rate)),
            (None, Baseline::Said) => 0.0,
        }
    }

    /// Takes the demand out.
    pub(super) fn withdraw(&mut self, demands: &mut Demands) {
        for band in self.bands.drain(..) {
            demands.remove(band.placed);
        }
    }

    /// The demands, one a band.
    pub(super) fn demands(&self) -> impl Iterator<Item = Placed> + Clone {
        self.bands.iter().map(|band| band.placed)
    }

    /// The same as they were asked.
    pub(super) fn bands(&self) -> Vec<Band> {
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

    /// When this entry has to be looked at again: the nearest end of what it may use, or of what is kept of it.
    pub(super) fn next_end(&self, now: Moment) -> Option<Moment> {
        let kept = (self.released_until > now).then_some(self.released_until);
        self.booking.next_end(now).into_iter().chain(kept).min()
    }

    /// Whether it is only kept for its order.
    pub(super) fn is_released(&self) -> bool {
        self.bands.is_empty()
    }
}

fn demand_of(band: &Band) -> Demand {
    Demand {
        wants: band.wants.get(),
        weight: band.num_clients.get() as f64,
    }
}

/// The bands by priority, highest first, the lowest merged into one when there are too many.
fn merged(bands: &[Band]) -> Cow<'_, [Band]> {
    // A client has one.
    if bands.len() <= 1 {
        return bands.into();
    }
    let mut bands = bands.to_vec();
    bands.sort_by_key(|band| std::cmp::Reverse(band.priority));
    while bands.len() > MAX_BANDS {
        if let Some(lowest) = bands.pop()
            && let Some(next) = bands.last_mut()
        {
            let clients = next
                .num_clients
                .get()
                .saturating_add(lowest.num_clients.get());
            next.num_clients = ClientCount::new(clients).unwrap_or(next.num_clients);
            next.wants = Capacity::saturating(next.wants.get() + lowest.wants.get());
        }
    }
    bands.into()
}
