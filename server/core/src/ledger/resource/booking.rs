//! Booked amounts of one holder, with their deadlines.

use doorman_openapi::{CLOCK_DRIFT, Moment};

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(in crate::ledger) struct Hold {
    pub(in crate::ledger) amount: f64,
    pub(in crate::ledger) end: Moment,
}

impl Hold {
    pub(in crate::ledger) const NONE: Self = Self {
        amount: 0.0,
        end: Moment::ORIGIN,
    };

    /// A lease granted now. The holder's clock may run slower, so it is booked for longer.
    pub(in crate::ledger) fn lease(amount: f64, length: f64, now: Moment) -> Self {
        Self {
            amount,
            end: now.after_seconds(length * CLOCK_DRIFT),
        }
    }

    fn is_active(&self, now: Moment) -> bool {
        self.end > now
    }

    /// The same until `end` at the latest; `None` if that is over.
    pub(in crate::ledger) fn until(self, end: Moment, now: Moment) -> Option<Self> {
        let end = self.end.min(end);
        (now < end).then_some(Self { end, ..self })
    }

    /// The lease length to send, less the drift: restating a lease never extends it.
    pub(in crate::ledger) fn remaining(&self, now: Moment) -> f64 {
        self.end.seconds_since(now) / CLOCK_DRIFT
    }
}

/// The amounts that one holder of a resource may be using: its last lease, or an older lease that
/// it still claims to have.
///
/// Safety rule (`combined-booking`): the larger of the two is booked until it ends. A lost response
/// then costs unused capacity for a while, but never capacity that is used twice.
#[derive(Debug, Clone, Copy)]
pub(in crate::ledger) struct Booking {
    lease: Hold,
    claim: Hold,
}

impl Booking {
    pub(in crate::ledger) const NONE: Self = Self {
        lease: Hold::NONE,
        claim: Hold::NONE,
    };

    pub(in crate::ledger) fn new(lease: Option<Hold>, claim: Option<Hold>) -> Self {
        Self {
            lease: lease.unwrap_or(Hold::NONE),
            claim: claim.unwrap_or(Hold::NONE),
        }
    }

    pub(in crate::ledger) fn amount(&self, now: Moment) -> f64 {
        let amount = |hold: &Hold| {
            if hold.is_active(now) {
                hold.amount
            } else {
                0.0
            }
        };
        amount(&self.lease).max(amount(&self.claim))
    }

    /// The last lease, until it ends.
    pub(in crate::ledger) fn lease(&self, now: Moment) -> Option<Hold> {
        Some(self.lease).filter(|hold| hold.is_active(now))
    }

    /// The holder's claim, until it ends.
    pub(in crate::ledger) fn claim(&self, now: Moment) -> Option<Hold> {
        Some(self.claim).filter(|hold| hold.is_active(now))
    }

    pub(in crate::ledger) fn largest(&self, now: Moment) -> Option<Hold> {
        self.active(now)
            .filter(|hold| hold.amount > 0.0)
            .max_by(|a, b| a.amount.total_cmp(&b.amount).then(a.end.cmp(&b.end)))
    }

    /// Converts the amounts to another unit.
    pub(in crate::ledger) fn scale(&mut self, factor: f64) {
        self.lease.amount *= factor;
        self.claim.amount *= factor;
    }

    /// Adds another booking of the holder, whose unit is converted by this factor.
    pub(in crate::ledger) fn add(&mut self, other: Self, factor: f64) {
        let mut other = other;
        other.scale(factor);
        if self.last_end() == Moment::ORIGIN {
            *self = other;
            return;
        }
        self.claim = Hold {
            amount: self
                .claim
                .amount
                .max(other.lease.amount)
                .max(other.claim.amount),
            end: self.claim.end.max(other.last_end()),
        };
    }

    /// When the booked amount may change next.
    pub(in crate::ledger) fn next_end(&self, now: Moment) -> Option<Moment> {
        self.active(now).map(|hold| hold.end).min()
    }

    pub(in crate::ledger) fn last_end(&self) -> Moment {
        self.lease.end.max(self.claim.end)
    }

    /// Books a claim until `end`. It says that the holder has no other lease.
    pub(in crate::ledger) fn set_claim(&mut self, amount: f64, end: Moment) {
        self.claim = if amount > 0.0 {
            Hold { amount, end }
        } else {
            Hold::NONE
        };
    }

    /// Books a new lease. The claim stays while it may be the larger or the longer one.
    pub(in crate::ledger) fn set_lease(&mut self, lease: Hold) {
        self.lease = lease;
        if self.claim.amount <= lease.amount && self.claim.end <= lease.end {
            self.claim = Hold::NONE;
        }
    }

    fn active(&self, now: Moment) -> impl Iterator<Item = Hold> {
        let holds = [self.lease, self.claim].into_iter();
        holds.filter(move |hold| hold.is_active(now))
    }
}
