//! The turn of a request that waits: whether it has come, and how the request stops waiting.

use doorman_openapi::{Moment, Unit};

use super::{Request, WaitKind, wait::Pause};
use crate::limiter::{
    reservation::Reservation,
    wait_queue::{HeldBackTicket, Ticket},
};

/// The turn of a request that waits.
pub(super) enum Turn {
    Come(Reservation),
    /// It may come after a pause.
    After(Pause),
    /// It comes only with a larger lease: the request has left the queue.
    Outgrown,
    /// It does not come in time.
    TooLate,
}

impl Turn {
    /// After a pause, if that is before a deadline.
    fn after(pause: Pause, deadline: Moment, now: Moment) -> Self {
        match &pause.turn {
            None if pause.until <= deadline => Self::After(pause),
            // It may come at any time.
            Some(_) if now < deadline => Self::After(Pause {
                until: pause.until.min(deadline),
                ..pause
            }),
            None | Some(_) => Self::TooLate,
        }
    }
}

impl Request {
    pub(super) fn take_turn(&self, kind: WaitKind, deadline: Moment, now: Moment) -> Turn {
        let turn = match kind {
            WaitKind::Queued(ticket) => self.take_queued(ticket, now),
            WaitKind::HeldBack(ticket) => self.take_held_back(ticket, now),
            WaitKind::LargerLease(_) => Turn::After(Pause::until(deadline)),
        };
        match turn {
            Turn::After(pause) => Turn::after(pause, deadline, now),
            Turn::Come(_) | Turn::Outgrown | Turn::TooLate => turn,
        }
    }

    /// The turn of a request in the queue. At a gauge it is the first, and others have given units
    /// back.
    fn take_queued(&self, ticket: Ticket, now: Moment) -> Turn {
        let limiter = self.limiter();
        let mut queue = limiter.queue();
        // Requests ahead may have left and moved the range.
        let Some(range) = queue.range(ticket) else {
            return Turn::TooLate;
        };
        let at = limiter.view(now);
        if at.view.outgrows(range.cost) {
            queue.remove(ticket);
            limiter.leave_queue(range.cost, &queue);
            return Turn::Outgrown;
        }
        let (has_turn, turn) = match self.unit {
            Unit::Rate => (at.view.admits(range), None),
            Unit::Gauge => (limiter.has_turn(ticket, &queue, &at), queue.turn(ticket)),
        };
        if !has_turn {
            return Turn::After(Pause::before(range, &at, turn, now));
        }
        queue.remove(ticket);
        if turn.is_some() {
            // The next one may have its turn, too.
            queue.wake_first();
        }
        Turn::Come(Reservation::new(self, range))
    }

    /// The turn of a request that is held back: it is the first one, and its tokens are available.
    fn take_held_back(&self, ticket: HeldBackTicket, now: Moment) -> Turn {
        let limiter = self.limiter();
        let mut queue = limiter.queue();
        let Some((turn, is_first)) = queue.held_back_turn(ticket) else {
            return Turn::TooLate;
        };
        if !is_first {
            return Turn::After(Pause {
                until: Moment::NEVER,
                turn: Some(turn),
                needs_lease: false,
            });
        }
        // A thread that gives units back sees that there is a queue, or these units are seen here.
        limiter.record.spent.update(|spent| spent);
        // No lease is published while the queue is locked.
        let at = limiter.view(now);
        if at.view.outgrows(self.cost) {
            queue.end_held_back(ticket);
            self.end_to_hold_back();
            return Turn::Outgrown;
        }
        let mut spent = limiter.record.spent.load();
        let range = loop {
            let range = at.view.next(spent, self.cost);
            if !at.view.admits_beside(range, self.kept(spent)) {
                let needed = self.needed(&at, spent);
                return Turn::After(Pause::before(needed, &at, Some(turn), now));
            }
            match limiter.record.spent.replace(spent, range.end()) {
                Ok(()) => break range,
                Err(actual) => spent = actual,
            }
        };
        queue.end_held_back(ticket);
        self.end_to_hold_back();
        let reservation = Reservation::new(self, range);
        self.raise_peaks(range);
        Turn::Come(reservation)
    }

    /// Stops waiting, before the turn.
    pub(super) fn leave(&self, kind: WaitKind, now: Moment) {
        let limiter = self.limiter();
        match kind {
            WaitKind::LargerLease(_) => {}
            WaitKind::HeldBack(ticket) => {
                let mut queue = limiter.queue();
                queue.end_held_back(ticket);
                self.end_to_hold_back();
            }
            WaitKind::Queued(ticket) => {
                let mut queue = limiter.queue();
                let Some(range) = queue.remove(ticket) else {
                    return;
                };
                match self.unit {
                    Unit::Rate => limiter.take_back(range, queue, range.start, now),
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
