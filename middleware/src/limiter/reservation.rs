//! Tokens of a rate, or units of a gauge, that a request has taken.
//!
//! Only these types can be committed: a request that has nothing, or that waits, has neither.

use doorman_openapi::{Moment, Unit};

use super::{
    Limiter,
    acquisition::Request,
    bands::RequestBand,
    bucket::TokenRange,
    store::QueueGuard,
    units::TakenUnits,
    wait_queue::{Ticket, unlock_and_wake},
};

/// Tokens or units that a request has taken at one limiter. They are committed or released.
#[derive(Debug)]
#[must_use = "the limiter stays short of it until it is released"]
pub(super) enum Reservation {
    Rate(RateReservation),
    Gauge(GaugeReservation),
}

/// Tokens of a rate.
#[derive(Debug)]
pub(super) struct RateReservation {
    range: TokenRange,
}

/// Units of a gauge, in use from now on.
#[derive(Debug)]
pub(super) struct GaugeReservation {
    units: f64,
}

/// The tokens or units of an admitted request.
#[derive(Debug)]
pub(crate) enum Committed {
    Rate(SpentTokens),
    Gauge(TakenUnits),
}

/// The tokens of an admitted request, whose cost may be corrected.
#[derive(Debug)]
pub(crate) struct SpentTokens {
    /// The end of their range.
    pub(super) end: f64,
    /// Among requests of other priorities.
    pub(super) band: Option<RequestBand>,
}

impl Reservation {
    /// Of a range that was just added to *spent*, and is not that of a request in the queue.
    pub(super) fn new(request: &Request, range: TokenRange) -> Self {
        match request.unit {
            Unit::Rate => Self::Rate(RateReservation { range }),
            Unit::Gauge => {
                request.use_units(range.cost);
                Self::Gauge(GaugeReservation { units: range.cost })
            }
        }
    }

    /// Counts the request as admitted.
    pub(super) fn commit(self, request: &mut Request) -> Committed {
        request.count_admission();
        let band = request.band.clone();
        match self {
            Self::Rate(RateReservation { range }) => Committed::Rate(SpentTokens {
                end: range.end(),
                band,
            }),
            Self::Gauge(GaugeReservation { units }) => Committed::Gauge(TakenUnits { units, band }),
        }
    }

    /// Returns it, first to the requests in the queue.
    pub(super) fn release(self, request: &Request, now: Moment) {
        let limiter = request.limiter();
        match self {
            // Available ranges come before all queued ones, so all of the queue is behind.
            Self::Rate(RateReservation { range }) => {
                limiter.take_back(range, limiter.queue(), None, now);
            }
            Self::Gauge(GaugeReservation { units }) => {
                request.use_units(-units);
                limiter.leave_queue(units, &limiter.queue());
            }
        }
    }
}

impl Limiter<'_> {
    /// Returns the tokens that have not overflowed, and moves the requests queued behind forward.
    pub(super) fn take_back(
        self,
        range: TokenRange,
        mut queue: QueueGuard<'_>,
        removed: Option<Ticket>,
        now: Moment,
    ) {
        if !self.is_current() {
            return;
        }
        let returned = range.returnable(&self.view(now).view);
        self.record.spent.update(|spent| spent - returned);
        queue.wake_first_held_back();
        let moved = queue.advance(removed, returned);
        let taken = self.record.spent.load() - queue.cost();
        if let Some(charges) = queue.open_charges() {
            charges.lower(taken);
        }
        if moved {
            unlock_and_wake(queue);
        }
    }
}
