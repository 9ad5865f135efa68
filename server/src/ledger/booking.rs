//! The most that one holder may be using, and until when.

use doorman_openapi::{CLOCK_DRIFT, Moment};

/// So much, until then.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Hold {
    pub(super) amount: f64,
    pub(super) end: Moment,
}

impl Hold {
    const NONE: Self = Self {
        amount: 0.0,
        end: Moment::ORIGIN,
    };

    /// A lease granted now: the books keep it for 1.05 × its length, counted from the handling of the request.
    pub(super) fn lease(amount: f64, length: f64, now: Moment) -> Self {
        Self {
            amount,
            end: now.after_seconds(length * CLOCK_DRIFT),
        }
    }

    fn lasts(&self, now: Moment) -> bool {
        self.end > now
    }

    /// What the holder may count on: what is left, less the drift, so that stating it again never lengthens a lease.
    pub(super) fn remaining(&self, now: Moment) -> f64 {
        self.end.seconds_since(now) / CLOCK_DRIFT
    }
}

/// What the books keep for one holder of one resource: the lease last granted until its booked end, and what the holder said it
/// has until the end of the older lease it has it from. It may be using either, so the larger one counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Booking {
    lease: Hold,
    claim: Hold,
}

impl Booking {
    pub(super) const NOTHING: Self = Self {
        lease: Hold::NONE,
        claim: Hold::NONE,
    };

    /// What was kept of a lease and of a claim.
    pub(super) fn of(lease: Option<Hold>, claim: Option<Hold>) -> Self {
        Self {
            lease: lease.unwrap_or(Hold::NONE),
            claim: claim.unwrap_or(Hold::NONE),
        }
    }

    /// The most that the holder may be using.
    pub(super) fn at(&self, now: Moment) -> f64 {
        let amount = |hold: &Hold| if hold.lasts(now) { hold.amount } else { 0.0 };
        amount(&self.lease).max(amount(&self.claim))
    }

    /// What the holder said it has, while that lasts.
    pub(super) fn claim(&self, now: Moment) -> f64 {
        self.claimed_hold(now).map_or(0.0, |claim| claim.amount)
    }

    /// The same with its end.
    pub(super) fn claimed_hold(&self, now: Moment) -> Option<Hold> {
        self.claim.lasts(now).then_some(self.claim)
    }

    /// The lease last granted, while it lasts.
    pub(super) fn lease(&self, now: Moment) -> Option<Hold> {
        self.lease.lasts(now).then_some(self.lease)
    }

    /// The larger of the two, while it lasts.
    pub(super) fn largest(&self, now: Moment) -> Option<Hold> {
        [self.lease, self.claim]
            .into_iter()
            .filter(|hold| hold.lasts(now) && hold.amount > 0.0)
            .max_by(|a, b| a.amount.total_cmp(&b.amount).then(a.end.cmp(&b.end)))
    }

    /// When the books have to be looked at again: the nearest end.
    pub(super) fn next_end(&self, now: Moment) -> Option<Moment> {
        [self.lease, self.claim]
            .into_iter()
            .filter(|hold| hold.lasts(now))
            .map(|hold| hold.end)
            .min()
    }

    /// When the last of it ends.
    pub(super) fn last_end(&self) -> Moment {
        self.lease.end.max(self.claim.end)
    }

    /// The holder says that it has `amount`, and so nothing else of what it was ever granted. Which grant it has that from is not
    /// known: the latest end of them counts, or `unknown_end` when the books know of none.
    pub(super) fn claimed(&mut self, amount: f64, unknown_end: Moment, now: Moment) {
        let known_end = [self.lease, self.claim]
            .into_iter()
            .filter(|hold| hold.lasts(now))
            .map(|hold| hold.end)
            .max();
        self.claim = if amount > 0.0 {
            Hold {
                amount,
                end: known_end.unwrap_or(unknown_end),
            }
        } else {
            Hold::NONE
        };
    }

    /// A new lease takes the place of the one before; the claim stays beside it while it may be the larger, or the longer.
    pub(super) fn granted(&mut self, lease: Hold) {
        self.lease = lease;
        if self.claim.amount <= lease.amount && self.claim.end <= lease.end {
            self.claim = Hold::NONE;
        }
    }
}
