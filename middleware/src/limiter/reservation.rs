//! Tokens of a rate, or units of a gauge, that a request has taken.
//!
//! Only these types can be committed: a request that has nothing, or that waits, has neither.

use doorman_openapi::{Moment, Unit};

use super::{
    Limiter, acquisition::Request, bands::RequestBand, bucket::TokenRange, store::QueueGuard,
    units::TakenUnits, wait_queue::unlock_and_wake,
};

/// Tokens or units that a request has taken at one limiter. They are committed or released.
#[derive(Debug)]
#[must_use = "the limiter stays short of it until it is released"]
pub(super) enum Reservation {
    Rate(TokenRange),
    /// Units, in use from now on.
    Gauge(f64),
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
            Unit::Rate => Self::Rate(range),
            Unit::Gauge => {
                request.use_units(range.cost);
                Self::Gauge(range.cost)
            }
        }
    }

    /// Counts the request as admitted.
    pub(super) fn commit(self, request: &mut Request) -> Committed {
        request.count_admission();
        let band = request.band.clone();
        match self {
            Self::Rate(range) => Committed::Rate(SpentTokens {
                end: range.end(),
                band,
            }),
            Self::Gauge(units) => Committed::Gauge(TakenUnits { units, band }),
        }
    }

    /// Returns it, first to the requests in the queue.
    pub(super) fn release(self, request: &Request, now: Moment) {
        let limiter = request.limiter();
        match self {
            Self::Rate(range) => {
                limiter.take_back(range, limiter.queue(), f64::NEG_INFINITY, now);
            }
            Self::Gauge(units) => {
                request.use_units(-units);
                limiter.leave_queue(units, &limiter.queue());
            }
        }
    }
}

impl Limiter<'_> {
    /// Returns the tokens that have not overflowed, and moves the queued requests forward that
    /// start behind a position. Those whose turn has come were ahead.
    pub(super) fn take_back(
        self,
        range: TokenRange,
        mut queue: QueueGuard<'_>,
        position: f64,
        now: Moment,
    ) {
        if !self.is_current() {
            return;
        }
        let view = self.view(now).view;
        let returned = range.returnable(&view);
        self.record.spent.update(|spent| spent - returned);
        queue.wake_first_held_back();
        queue.advance(returned, |it| it.start > position && !view.admits(it));
        let taken = self.record.spent.load() - queue.cost();
        if let Some(charges) = queue.open_charges() {
            charges.lower(taken);
        }
        if returned > 0.0 {
            // Also those that wait for a larger lease: the tokens may be enough for one.
            unlock_and_wake(queue);
        }
    }
}
