//! One attempt to take the tokens of a request, or a place to wait for them.

use doorman_openapi::{Moment, Unit};

use super::{
    Place, Request, State, Waiting,
    wait::{WaitLimit, WaitSlot},
};
use crate::{
    limiter::{
        Limiter, Rejected, View,
        bands::BandRef,
        bucket::{Refill, TokenRange},
        record::is_banded,
        reservation::Reservation,
        store::QueueGuard,
    },
    refusal::RefusalReason,
};

/// The state that a step reached; `None` to try again with what it has read.
type Step = Result<Option<State>, Rejected>;

/// A loop over compare-and-swap: each step either decides by what was read of the limiter, or reads
/// it again because it has changed.
struct Attempt<'r> {
    request: &'r Request,
    limiter: Limiter<'r>,
    limit: Option<WaitLimit>,
    now: Moment,
    at: View,
    spent: f64,
    /// Whether the limiter slept, without a lease.
    woken: bool,
    /// Whether the request waited for a larger lease.
    delayed: bool,
    /// Locked before tokens are taken ahead, so that the queue has the order of the tokens.
    queue: Option<QueueGuard<'r>>,
    /// Its drop locks the queue, so it comes after the guard.
    slot: Option<WaitSlot>,
}

impl Request {
    /// `slot` is that of a request that already waits.
    pub(super) fn attempt(
        &mut self,
        limit: Option<WaitLimit>,
        slot: Option<WaitSlot>,
        now: Moment,
    ) -> Result<State, Rejected> {
        if self.limiter().is_reused() {
            return self.admit_late(now);
        }
        let mut at = self.limiter().view(now);
        let woken = at.published.schedule.is_asleep() && self.limiter().wake(now);
        if woken {
            at = self.limiter().view(now);
        }
        if is_banded(at.head) {
            self.band = self.limiter().band(self.priority);
        }
        let limiter = self.limiter();
        let attempt = Attempt {
            request: self,
            limiter,
            limit,
            now,
            at,
            spent: limiter.record.spent.load(),
            woken,
            delayed: slot.is_some(),
            queue: None,
            slot,
        };
        attempt.run()
    }

    /// Admits a request that was stopped until its limiter was forgotten, with a full bucket, and
    /// another resource got its record.
    #[cold]
    fn admit_late(&self, now: Moment) -> Result<State, Rejected> {
        let range = TokenRange {
            start: 0.0,
            cost: self.cost,
        };
        match self.unit {
            Unit::Rate => Ok(State::Taken {
                reservation: Reservation::new(self, range),
                runs_low: false,
                delayed: false,
            }),
            // The new limiter of its resource has the units.
            Unit::Gauge => {
                let reason = RefusalReason::Growing;
                Err(self.limiter().rejection(reason, Some(now)))
            }
        }
    }
}

impl Attempt<'_> {
    fn run(mut self) -> Result<State, Rejected> {
        if self.at.view.leased && !self.at.published.draw() {
            let range = self.next_range();
            self.request.count_attempt(range.cost);
            return Err(self.limiter.suppress(range, &self.at, self.now));
        }
        loop {
            let step = if self.at.is_gauge() && Limiter::is_closed(self.spent) {
                self.reopen()?
            } else {
                let range = self.next_range();
                match self.missing(range) {
                    None => self.take(range)?,
                    Some(needed) => self.wait_for(range, needed)?,
                }
            };
            if let Some(state) = step {
                return Ok(state);
            }
        }
    }

    /// The tokens that the request would take.
    fn next_range(&self) -> TokenRange {
        self.at.view.next(self.spent, self.request.cost)
    }

    fn read_again(&mut self) {
        self.at = self.limiter.view(self.now);
        self.spent = self.limiter.record.spent.load();
    }

    /// Wakes a gauge whose lease is being given up, while the queue is locked.
    fn reopen(&mut self) -> Step {
        if !self.limiter.is_current() {
            let reason = RefusalReason::Growing;
            return Err(self.limiter.rejection(reason, Some(self.now)));
        }
        self.queue = None;
        drop(self.limiter.queue());
        self.woken |= self.limiter.wake(self.now);
        self.read_again();
        Ok(None)
    }

    /// The range that must be available before the request may take its tokens, with the reserve
    /// that a lower band leaves to others; `None` if it is.
    fn missing(&self, range: TokenRange) -> Option<TokenRange> {
        let band = self.request.lower_band();
        let reserve = self.request.reserve(self.spent);
        let is_free = !band.is_some_and(BandRef::is_behind_others)
            && self.at.view.admits_beside(range, reserve);
        (!is_free).then(|| match reserve {
            0.0 => range,
            _ => self.at.view.with_reserve(range, reserve),
        })
    }

    /// Lets the request wait until `needed` is available: in turn, or for a larger lease if its
    /// turn comes too late under this one.
    fn wait_for(&mut self, range: TokenRange, needed: TokenRange) -> Step {
        let (request, now) = (self.request, self.now);
        let own_reach = self.at.reach(needed, now);
        let reject = |at| request.reject(needed, at, own_reach, now);
        let Some(limit) = self.limit else {
            return Err(reject(&self.at));
        };
        let reach = match request.lower_band() {
            Some(band) => self.limiter.reach_beside(band, needed, &self.at, now),
            None => own_reach,
        };
        let deadline = limit.deadline;
        let in_time = deadline == Moment::NEVER
            || self.at.awaits_returns(range.cost)
            || reach.is_some_and(|moment| moment <= deadline);
        let larger_lease = self.at.published.may_grow_until(now);
        let larger_lease = larger_lease.map(|end| end.min(deadline));
        if !in_time && larger_lease.is_none_or(|end| end <= now) {
            return Err(reject(&self.at));
        }
        if self.slot.is_none() {
            // The queue is not locked before there is a slot.
            self.slot = WaitSlot::acquire(&request.handle, limit.queue, request.priority);
        }
        if self.slot.is_none() {
            let retry_at = reject(&self.at).retry_at;
            return Err(self.limiter.rejection(RefusalReason::QueueFull, retry_at));
        }
        match (larger_lease, request.lower_band()) {
            (Some(until), _) if !in_time => Ok(self.wait_at(Place::LargerLease(limit), until)),
            (_, Some(band)) => Ok(self.hold_back(band, range, deadline)),
            (_, None) => self.queue_up(range, deadline),
        }
    }

    fn wait_at(&mut self, place: Place, deadline: Moment) -> Option<State> {
        self.queue = None;
        let slot = self.slot.take()?;
        Some(State::Waiting(Waiting {
            place,
            deadline,
            slot,
        }))
    }

    /// Lets a request of a lower band wait without tokens.
    fn hold_back(
        &mut self,
        band: BandRef<'_>,
        range: TokenRange,
        deadline: Moment,
    ) -> Option<State> {
        // A request of a lower band never has the queue here.
        let ticket = self.limiter.queue().hold_back(band.priority(), range.cost);
        band.begin_to_hold_back();
        self.request.raise_peak(range.cost, self.spent);
        self.wait_at(Place::HeldBack(ticket), deadline)
    }

    /// Takes tokens ahead of their turn, with the queue locked.
    fn queue_up(&mut self, range: TokenRange, deadline: Moment) -> Step {
        if self.queue.is_none() {
            self.queue = Some(self.limiter.queue());
            self.limiter.record.set_has_queue(true);
            // A lease may have been published before the queue was locked.
            self.read_again();
            return Ok(None);
        }
        if !self.spend(range) {
            return Ok(None);
        }
        if self.limiter.is_reused() {
            return self.give_back_late(range);
        }
        self.raise_peaks(range);
        let ticket = self.queue.as_mut().map(|queue| queue.push(range));
        Ok(ticket.and_then(|ticket| self.wait_at(Place::Queued(ticket), deadline)))
    }

    /// Takes tokens that are available.
    fn take(&mut self, range: TokenRange) -> Step {
        if !self.spend(range) {
            return Ok(None);
        }
        if self.limiter.is_reused() {
            return self.give_back_late(range);
        }
        self.queue = None;
        if self.at.is_gauge() && !self.limiter.is_unchanged_since(&self.at) {
            self.limiter.give_back_units(range.cost);
            self.read_again();
            return Ok(None);
        }
        let reservation = Reservation::new(self.request, range);
        // The peak of a band includes the units that are in use by now.
        self.raise_peaks(range);
        Ok(Some(State::Taken {
            reservation,
            // The worker looks at a limiter again when it signals.
            runs_low: self.woken || self.at.view.runs_low(range.end()),
            delayed: self.delayed,
        }))
    }

    /// Adds a range to *spent*. False if *spent* has changed.
    fn spend(&mut self, range: TokenRange) -> bool {
        let spent = &self.limiter.record.spent;
        let replaced = spent.replace(self.spent, range.end());
        replaced.map_err(|actual| self.spent = actual).is_ok()
    }

    /// The tokens were taken from another resource.
    #[cold]
    fn give_back_late(&mut self, range: TokenRange) -> Step {
        self.limiter.restore(range.end() - self.spent);
        self.queue = None;
        self.request.admit_late(self.now).map(Some)
    }

    /// Counts units of a gauge that are in use or waited for.
    fn raise_peaks(&self, range: TokenRange) {
        if self.at.is_gauge() {
            self.limiter.raise_peak(range.end());
            self.request.raise_peak(0.0, range.end());
        }
    }
}

impl Limiter<'_> {
    /// When a request of a lower band may have its tokens, if the higher ones spend what was
    /// measured; `None` if never.
    fn reach_beside(
        self,
        band: BandRef<'_>,
        needed: TokenRange,
        at: &View,
        now: Moment,
    ) -> Option<Moment> {
        if !matches!(at.view.refill, Refill::PerSecond(_)) {
            return at.reach(needed, now);
        }
        let ahead = if self.record.has_queue() {
            self.queue().held_back_before(band.priority())
        } else {
            0.0
        };
        at.view
            .reach_beside(needed, ahead, band.demand_above(), now)
    }
}
