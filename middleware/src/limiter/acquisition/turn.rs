//! The turn of a request that waits: whether it has come, and how the request leaves its place.

use doorman_openapi::{Moment, Unit};

use super::{Place, Request, wait::Pause};
use crate::limiter::{
    reservation::Reservation,
    wait_queue::{HeldBackTicket, Ticket},
};

/// The reservation of a request whose turn has come, or else the pause until the next look; `None`
/// if the turn does not come in time.
type Turn = Result<Reservation, Option<Pause>>;

impl Request {
    pub(super) fn take_turn(&self, place: Place, deadline: Moment, now: Moment) -> Turn {
        let turn = match place {
            Place::Queued(ticket) => self.take_queued(ticket, now),
            Place::HeldBack(ticket) => self.take_held_back(ticket, now),
            Place::LargerLease(_) => Err(Some(Pause::until(deadline))),
        };
        turn.map_err(|pause| pause?.within(deadline, now))
    }

    /// The turn of a request in the queue. At a gauge it is the first, and others have given units
    /// back.
    fn take_queued(&self, ticket: Ticket, now: Moment) -> Turn {
        let limiter = self.limiter();
        let mut queue = limiter.queue();
        // Requests ahead may have left and moved the range.
        let range = queue.range(ticket).ok_or(None)?;
        let at = limiter.view(now);
        let (has_turn, turn) = match self.unit {
            Unit::Rate => (at.view.admits(range), None),
            Unit::Gauge => (limiter.has_turn(ticket, &queue, &at), queue.turn(ticket)),
        };
        if !has_turn {
            return Err(Some(Pause::before(range, &at, turn, now)));
        }
        queue.remove(ticket);
        if turn.is_some() {
            // The next one may have its turn, too.
            queue.wake_first();
        }
        Ok(Reservation::new(self, range))
    }

    /// The turn of a request that is held back: it is the first one, and its tokens are available.
    fn take_held_back(&self, ticket: HeldBackTicket, now: Moment) -> Turn {
        let limiter = self.limiter();
        let mut queue = limiter.queue();
        let (turn, is_first) = queue.held_back_turn(ticket).ok_or(None)?;
        if !is_first {
            return Err(Some(Pause {
                until: Moment::NEVER,
                turn: Some(turn),
                needs_lease: false,
            }));
        }
        // A thread that gives units back sees that there is a queue, or these units are seen here.
        limiter.record.spent.update(|spent| spent);
        // No lease is published while the queue is locked.
        let at = limiter.view(now);
        let mut spent = limiter.record.spent.load();
        let range = loop {
            let range = at.view.next(spent, self.cost);
            if !at.view.admits_beside(range, self.reserve(spent)) {
                let needed = self.needed(&at, spent);
                return Err(Some(Pause::before(needed, &at, Some(turn), now)));
            }
            match limiter.record.spent.replace(spent, range.end()) {
                Ok(()) => break range,
                Err(actual) => spent = actual,
            }
        };
        queue.end_held_back(ticket);
        self.end_to_hold_back();
        Ok(Reservation::new(self, range))
    }

    /// Leaves the place where the request waits.
    pub(super) fn leave(&self, place: Place, now: Moment) {
        let limiter = self.limiter();
        match place {
            Place::LargerLease(_) => {}
            Place::HeldBack(ticket) => {
                limiter.queue().end_held_back(ticket);
                self.end_to_hold_back();
            }
            Place::Queued(ticket) => {
                let mut queue = limiter.queue();
                let Some(range) = queue.remove(ticket) else {
                    return;
                };
                match self.unit {
                    Unit::Rate => limiter.take_back(range, queue, Some(ticket), now),
                    Unit::Gauge => limiter.leave_queue(range.cost, &queue),
                }
            }
        }
    }

    fn end_to_hold_back(&self) {
        if let Some(band) = self.band() {
            band.end_to_hold_back();
        }
    }
}
