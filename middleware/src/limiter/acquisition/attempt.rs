//! One attempt to take the tokens of a request, or to wait for them.

use doorman_openapi::Moment;

use super::{
    Request, State, WaitKind, Waiting,
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
        wait_queue::WaitQueue,
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
    limit: WaitLimit,
    now: Moment,
    at: View,
    spent: f64,
    /// Whether the limiter slept, without a lease.
    woken: bool,
    /// Whether the request waited for a larger lease.
    delayed: bool,
    /// Locked before the request waits, so that the queue has the order of the tokens.
    queue: Option<QueueGuard<'r>>,
    /// Its drop locks the queue, so it comes after the guard.
    slot: Option<WaitSlot>,
}

impl Request {
    /// `slot` is that of a request that already waits.
    pub(super) fn attempt(
        &mut self,
        limit: WaitLimit,
        slot: Option<WaitSlot>,
        now: Moment,
    ) -> Result<State, Rejected> {
        if self.limiter().is_reused() {
            return Err(self.limiter().reject_forgotten(now));
        }
        self.note_cost();
        let at = self.limiter().view(now);
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
            woken: false,
            delayed: slot.is_some(),
            queue: None,
            slot,
        };
        attempt.run()
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
            let is_closed = self.at.is_gauge() && Limiter::is_closed(self.spent);
            let step = if is_closed || self.at.published.schedule.is_asleep() {
                self.wake()?
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

    /// Wakes a limiter whose lease is given up, or is just being given up, while the queue is
    /// locked.
    fn wake(&mut self) -> Step {
        if !self.limiter.is_current() {
            return Err(self.limiter.reject_forgotten(self.now));
        }
        self.queue = None;
        drop(self.limiter.queue());
        self.woken |= self.limiter.wake(self.now);
        self.read_again();
        Ok(None)
    }

    /// The range that must be available before the request may take its tokens, with those that a
    /// lower band leaves to others; `None` if it is.
    fn missing(&self, range: TokenRange) -> Option<TokenRange> {
        let band = self.request.lower_band();
        let kept = self.request.kept(self.spent);
        let is_free =
            !band.is_some_and(BandRef::is_behind_others) && self.at.view.admits_beside(range, kept);
        (!is_free).then(|| match kept {
            0.0 => range,
            _ => self.at.view.with_kept(range, kept),
        })
    }

    /// Lets the request wait until `needed` is available: in turn, or for a larger lease if its
    /// turn comes too late under this one.
    fn wait_for(&mut self, range: TokenRange, needed: TokenRange) -> Step {
        let (request, now) = (self.request, self.now);
        let own_reach = self.at.reach(needed, now);
        let reject = |at| request.reject(needed, at, own_reach, now);
        let published = &self.at.published;
        let (deadline, queue, larger_lease) = match self.limit {
            WaitLimit::NoWait => return Err(reject(&self.at)),
            WaitLimit::Until { deadline, queue } => {
                (deadline, queue, published.may_grow_until(now))
            }
            WaitLimit::LargerLease { deadline, queue } => {
                (deadline, queue, published.grows_on_request_until(now))
            }
        };
        let reach = match request.lower_band() {
            Some(band) => self.reach_beside(band, needed),
            None => own_reach,
        };
        let in_time = matches!(self.limit, WaitLimit::Until { .. })
            && (deadline == Moment::NEVER
                || self.at.awaits_returns(range.cost)
                || reach.is_some_and(|moment| moment <= deadline));
        let larger_lease = larger_lease.map(|end| end.min(deadline));
        if !in_time && larger_lease.is_none_or(|end| end <= now) {
            return Err(reject(&self.at));
        }
        let Some(locked) = &mut self.queue else {
            if self.lock_queue(queue)? {
                return Ok(None);
            }
            let retry_at = reject(&self.at).retry_at;
            return Err(self.limiter.rejection(RefusalReason::QueueFull, retry_at));
        };
        match (larger_lease, request.lower_band()) {
            (Some(until), _) if !in_time => {
                Ok(self.wait_as(WaitKind::LargerLease(self.limit), until))
            }
            // In the queue, others would wait for what no one can give back.
            _ if self.at.view.outgrows(range.cost) => {
                Ok(self.wait_as(WaitKind::LargerLease(self.limit), deadline))
            }
            (_, Some(band)) => {
                let ticket = locked.hold_back(band.priority(), range.cost);
                band.begin_to_hold_back();
                request.raise_peak(range.cost, self.spent);
                Ok(self.wait_as(WaitKind::HeldBack(ticket), deadline))
            }
            (_, None) => Ok(self.queue_up(range, deadline)),
        }
    }

    /// When a request of a lower band may have its tokens, if the higher ones spend what was
    /// measured; `None` if never.
    fn reach_beside(&self, band: BandRef<'_>, needed: TokenRange) -> Option<Moment> {
        if !matches!(self.at.view.refill, Refill::PerSecond(_)) {
            return self.at.reach(needed, self.now);
        }
        let ahead = |queue: &WaitQueue| queue.held_back_before(band.priority());
        let ahead = match &self.queue {
            Some(queue) => ahead(queue),
            None => self.limiter.read_queue(ahead),
        };
        let others = band.demand_above();
        self.at.view.reach_beside(needed, ahead, others, self.now)
    }

    /// Locks the queue, gets a slot in it, and reads the limiter again. False if `max` requests
    /// wait already.
    fn lock_queue(&mut self, max: u32) -> Result<bool, Rejected> {
        let mut queue = self.limiter.queue();
        if self.slot.is_none() {
            if !self.limiter.is_current() {
                return Err(self.limiter.reject_forgotten(self.now));
            }
            let Request {
                handle, priority, ..
            } = self.request;
            self.slot = WaitSlot::acquire(handle, &mut queue, max, *priority);
            if self.slot.is_none() {
                return Ok(false);
            }
        }
        self.limiter.record.set_has_queue(true);
        self.queue = Some(queue);
        // It may have changed before the queue was locked.
        self.read_again();
        Ok(true)
    }

    fn wait_as(&mut self, kind: WaitKind, deadline: Moment) -> Option<State> {
        self.queue = None;
        let slot = self.slot.take()?;
        Some(State::Waiting(Waiting {
            kind,
            deadline,
            slot,
        }))
    }

    /// Takes tokens ahead of their turn.
    fn queue_up(&mut self, range: TokenRange, deadline: Moment) -> Option<State> {
        if !self.spend(range) {
            return None;
        }
        self.request.raise_peaks(range);
        let ticket = self.queue.as_mut()?.push(range);
        self.wait_as(WaitKind::Queued(ticket), deadline)
    }

    /// Takes tokens that are available.
    fn take(&mut self, range: TokenRange) -> Step {
        if !self.spend(range) {
            return Ok(None);
        }
        self.queue = None;
        if self.limiter.is_reused() {
            // The tokens are those of another resource.
            self.limiter.restore(range.end() - self.spent);
            return Err(self.limiter.reject_forgotten(self.now));
        }
        if self.at.is_gauge() && !self.limiter.is_unchanged_since(&self.at) {
            self.limiter.give_back_units(range.cost);
            self.read_again();
            return Ok(None);
        }
        let reservation = Reservation::new(self.request, range);
        // The peak of a band includes the units that are in use by now.
        self.request.raise_peaks(range);
        if self.at.is_gauge() && self.request.lower_band().is_some() {
            // Less is kept for its band from now on, and a lower request may have looked before.
            self.limiter.wake_held_back();
        }
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
}
