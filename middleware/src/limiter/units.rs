//! Units of a gauge: taken, waited for and given back.
//!
//! *Spent* is what is in use, and what the requests in the queue wait for. A request that waits has
//! its turn when it is the first in the queue and the lease has room for it beside what is in use.
//!
//! Two rules make what the worker reports as outstanding an upper bound of what is in use beyond
//! the lease. Units are taken only if no lease was published between reading the lease and taking
//! them. And a request in the queue takes its turn under the lock of the queue, which a publication
//! holds.

use std::ptr;

use doorman_openapi::Unit;

use super::{
    Limiter, View,
    bands::RequestBand,
    bucket::Refill,
    record::Maximum,
    wait_queue::{Ticket, WaitQueue, unlock_and_wake},
};

/// *Spent* of a gauge that is forgotten, or just being put to sleep: nothing can be taken.
const CLOSED: f64 = f64::INFINITY;

/// Units of a gauge in use by a process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct UnitsInUse {
    pub(crate) in_use: f64,
    /// The units for which requests wait, in the queue, for a larger lease or for the first one.
    pub(crate) waiting: f64,
}

/// Units that a request has taken.
#[derive(Debug, Default)]
pub(crate) struct TakenUnits {
    pub(crate) units: f64,
    /// Among requests of other priorities.
    pub(super) band: Option<RequestBand>,
}

impl View {
    pub(super) fn is_gauge(&self) -> bool {
        self.unit == Unit::Gauge
    }

    /// Whether a request of a gauge can be admitted only when others give units back.
    pub(super) fn awaits_returns(&self, cost: f64) -> bool {
        self.is_gauge() && self.view.admits_after_returns(cost)
    }
}

impl Limiter<'_> {
    /// The position of a gauge in an order of all gauges of the process, for as long as it is in
    /// use; `None` for a rate.
    pub(crate) fn gauge_order(self) -> Option<usize> {
        (self.unit() == Unit::Gauge).then(|| ptr::from_ref(self.record).addr())
    }

    /// The units in use; `None` unless it is a gauge.
    pub(crate) fn units_in_use(self) -> Option<UnitsInUse> {
        if self.unit() != Unit::Gauge {
            return None;
        }
        let spent = || self.record.spent.load();
        // While the queue is locked no request has its turn.
        let with_queue = self.read_queue(|queue| {
            let waiting = queue.waiting().max(queue.cost());
            Some((spent() - queue.cost(), waiting))
        });
        let (in_use, waiting) = with_queue.unwrap_or_else(|| (spent(), 0.0));
        Some(UnitsInUse {
            in_use: in_use.max(0.0),
            waiting,
        })
    }

    /// The most units in use or waited for since the last call.
    pub(crate) fn take_peak(self) -> f64 {
        let peak = self.store.extra(self.number).take_peak();
        peak.max(self.record.spent.load())
    }

    pub(super) fn raise_peak(self, units: f64) {
        self.store.extra(self.number).raise_peak(units);
    }

    /// The largest cost of a request for units since the last call; 0 without one.
    pub(crate) fn take_largest_cost(self) -> f64 {
        let cost = self.store.gauge_cost(self.number);
        cost.map_or(0.0, Maximum::take)
    }

    /// Notes the cost of a request for units, or of those to come.
    pub(crate) fn note_cost(self, cost: f64) {
        if let Some(largest) = self.store.gauge_cost(self.number) {
            largest.raise(cost);
        }
    }

    /// Whether no lease was published since `at` was read.
    pub(super) fn is_unchanged_since(self, at: &View) -> bool {
        self.record.head.is_unchanged(at.head)
    }

    /// Gives units back and wakes the request that waits for them. Returns whether more was in use
    /// than the lease allows, so that the worker should report less.
    pub(crate) fn give_back(self, taken: &TakenUnits) -> bool {
        if let Some(band) = &taken.band {
            band.get().use_units(-taken.units);
        }
        self.give_back_units(taken.units)
    }

    /// Gives units back that are not counted in a band.
    pub(super) fn give_back_units(self, units: f64) -> bool {
        let mut before = self.subtract(units);
        // A request sets this flag before it adds its cost. So it sees these units, or this thread
        // sees the flag.
        if self.record.has_queue() {
            let queue = self.queue();
            before = self.record.spent.load() - queue.cost() + units;
            queue.wake_first();
            if queue.has_others() {
                // The units may be enough for one that waits for a larger lease.
                unlock_and_wake(queue);
            }
        }
        match self.read().schedule.refill {
            Refill::Units(leased) => before > leased,
            Refill::Blocked => before > 0.0,
            Refill::Credit(_) | Refill::PerSecond(_) | Refill::Unlimited => false,
        }
    }

    /// Takes the units of a request that leaves the queue out of *spent*.
    pub(super) fn leave_queue(self, units: f64, queue: &WaitQueue) {
        self.subtract(units);
        queue.wake_first();
    }

    fn subtract(self, units: f64) -> f64 {
        let mut spent = self.record.spent.load();
        while let Err(actual) = self.record.spent.replace(spent, spent - units) {
            spent = actual;
        }
        spent
    }

    /// Whether a request in the queue has its turn.
    pub(super) fn has_turn(self, ticket: Ticket, queue: &WaitQueue, at: &View) -> bool {
        let Some(cost) = queue.first(ticket) else {
            return false;
        };
        let in_use = self.record.spent.load() - queue.cost();
        match at.view.refill {
            Refill::Units(units) => in_use + cost <= units,
            Refill::Unlimited => true,
            Refill::Blocked | Refill::Credit(_) | Refill::PerSecond(_) => false,
        }
    }

    /// Whether nothing can be taken any more.
    pub(super) fn is_closed(spent: f64) -> bool {
        spent == CLOSED
    }

    /// Lets nothing be taken any more. False if something is in use.
    pub(super) fn close(self) -> bool {
        loop {
            match self.record.spent.replace(0.0, CLOSED) {
                Ok(()) => return true,
                // It failed spuriously.
                Err(0.0) => {}
                Err(_) => return false,
            }
        }
    }
}
