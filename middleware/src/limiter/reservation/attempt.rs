//! One attempt to take the tokens of a request, or a place to wait for them.

use doorman_openapi::{Moment, Unit};

use super::{Reservation, Stage, Wait, WaitPolicy, WaitSlot};
use crate::{
    limiter::{
        Limiter, Rejected, View, bands::BandRef, bucket::TokenRange, record::is_banded,
        store::QueueGuard,
    },
    refusal::RefusalReason,
};

/// The stage that a step reached; `None` to try again with what it has read.
type Step = Result<Option<Stage>, Rejected>;

/// A loop over compare-and-swap: each step either decides by what was read of the limiter, or reads
/// it again because it has changed.
pub(super) struct Attempt<'r> {
    reservation: &'r Reservation,
    limiter: Limiter<'r>,
    policy: WaitPolicy,
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

impl Reservation {
    /// `slot` is that of a request that already waits.
    pub(super) fn try_reserve(
        &mut self,
        policy: WaitPolicy,
        slot: Option<WaitSlot>,
        now: Moment,
    ) -> Result<(), Rejected> {
        let limiter = self.limiter.get();
        if limiter.is_reused() {
            self.state = self.admit_late(now)?;
            return Ok(());
        }
        let mut at = limiter.view(now);
        let woken = at.published.schedule.is_asleep() && limiter.wake(now);
        if woken {
            at = limiter.view(now);
        }
        if is_banded(at.head) {
            self.band = limiter.band(self.priority);
        }
        let attempt = Attempt {
            reservation: self,
            limiter,
            policy,
            now,
            at,
            spent: limiter.record.spent.load(),
            woken,
            delayed: slot.is_some(),
            queue: None,
            slot,
        };
        self.state = attempt.run()?;
        if self.is_waiting() {
            self.mark_pending();
        }
        Ok(())
    }

    /// Admits a request that was stopped until its limiter was forgotten, with a full bucket, and
    /// another resource got its record.
    #[cold]
    fn admit_late(&self, now: Moment) -> Result<Stage, Rejected> {
        match self.unit {
            Unit::Rate => Ok(Stage::Committed { end: None }),
            // The new limiter of its resource has the units.
            Unit::Gauge => {
                let reason = RefusalReason::Growing;
                Err(self.limiter.get().rejection(reason, Some(now)))
            }
        }
    }
}

impl Attempt<'_> {
    fn run(mut self) -> Result<Stage, Rejected> {
        if self.at.view.leased && !self.at.published.draw() {
            let range = self.next_range();
            self.reservation.count_attempt(range.cost);
            return Err(self.limiter.suppress(range, &self.at, self.now));
        }
        loop {
            let step = if self.at.is_gauge() && Limiter::is_closed(self.spent) {
                self.reopen()?
            } else {
                let range = self.next_range();
                match self.missing(range) {
                    None => self.take(range, None)?,
                    Some(needed) => self.wait_for(range, needed)?,
                }
            };
            if let Some(stage) = step {
                return Ok(stage);
            }
        }
    }

    /// The tokens that the request would take.
    fn next_range(&self) -> TokenRange {
        self.at.view.next(self.spent, self.reservation.cost.get())
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

    /// What has to be available before the request may take its tokens, which a lower band also
    /// leaves to others; `None` if it is.
    fn missing(&self, range: TokenRange) -> Option<TokenRange> {
        let (reserve, is_behind) = match self.reservation.lower_band() {
            Some(band) => (
                band.reserve(self.reservation.unit, self.spent),
                band.is_behind_others(),
            ),
            None => (0.0, false),
        };
        let is_free = !is_behind && self.at.view.admits_beside(range, reserve);
        (!is_free).then(|| match reserve {
            0.0 => range,
            _ => self.at.view.with_reserve(range, reserve),
        })
    }

    /// Lets the request wait until `needed` is available, if the policy allows it.
    fn wait_for(&mut self, range: TokenRange, needed: TokenRange) -> Step {
        let (reservation, limiter, now) = (self.reservation, self.limiter, self.now);
        let own_reach = self.at.reach(needed, now);
        let reach = match reservation.lower_band() {
            Some(band) => limiter.reach_beside(band, needed, &self.at, now),
            None => own_reach,
        };
        let awaits_returns = self.at.awaits_returns(range.cost);
        let may_grow_until = self.at.published.may_grow_until(now);
        let policy = self.policy;
        let Some(wait) = policy.wait(reach, awaits_returns, may_grow_until, now) else {
            return Err(reservation.reject(needed, &self.at, own_reach, now));
        };
        // The queue is not locked before there is a slot.
        let joined = self.slot.take();
        let joined = joined.or_else(|| {
            WaitSlot::acquire(&reservation.limiter, policy.queue(), reservation.priority)
        });
        let Some(slot) = joined else {
            let rejected = reservation.reject(needed, &self.at, own_reach, now);
            return Err(limiter.rejection(RefusalReason::QueueFull, rejected.retry_at));
        };
        match wait {
            Wait::LargerLease { until } => Ok(Some(Stage::AwaitingLargerLease {
                policy,
                until,
                slot,
            })),
            Wait::Turn { deadline } => match reservation.lower_band() {
                Some(band) => Ok(Some(self.hold_back(band, range, deadline, slot))),
                None => {
                    self.slot = Some(slot);
                    self.queue_up(range, deadline)
                }
            },
        }
    }

    /// Lets a request of a lower band wait without tokens.
    fn hold_back(
        &mut self,
        band: BandRef<'_>,
        range: TokenRange,
        deadline: Moment,
        slot: WaitSlot,
    ) -> Stage {
        // A request of a lower band never has the queue here.
        self.queue = None;
        let ticket = self.limiter.queue().hold_back(band.priority(), range.cost);
        band.begin_to_hold_back();
        self.reservation.raise_peak(range.cost, self.spent);
        Stage::HeldBack {
            ticket,
            deadline,
            _slot: slot,
        }
    }

    /// Takes tokens ahead of their turn, with the queue locked.
    fn queue_up(&mut self, range: TokenRange, deadline: Moment) -> Step {
        if self.queue.is_some() {
            return self.take(range, Some(deadline));
        }
        self.queue = Some(self.limiter.queue());
        self.limiter.record.set_has_queue(true);
        // A lease may have been published before the queue was locked.
        self.read_again();
        Ok(None)
    }

    /// Takes the tokens; with a deadline those of a request in the queue.
    fn take(&mut self, range: TokenRange, deadline: Option<Moment>) -> Step {
        let limiter = self.limiter;
        if let Err(actual) = limiter.record.spent.replace(self.spent, range.end()) {
            self.spent = actual;
            return Ok(None);
        }
        if limiter.is_reused() {
            limiter.restore(range.end() - self.spent);
            self.queue = None;
            return self.reservation.admit_late(self.now).map(Some);
        }
        if self.at.is_gauge() && !self.count_units(range, deadline.is_none()) {
            return Ok(None);
        }
        let ticket = deadline.and_then(|_| Some(self.queue.as_mut()?.push(range)));
        self.queue = None;
        if let (Some(ticket), Some(deadline), Some(slot)) = (ticket, deadline, self.slot.take()) {
            return Ok(Some(Stage::Queued {
                ticket,
                deadline,
                _slot: slot,
            }));
        }
        Ok(Some(Stage::Taken {
            range,
            // The worker looks at a limiter again when it signals.
            runs_low: self.woken || self.at.view.runs_low(range.end()),
            delayed: self.delayed,
        }))
    }

    /// Counts units of a gauge that were taken, which are `used` at once or queued. Gives them back
    /// and returns false if a lease was published since it was read.
    fn count_units(&mut self, range: TokenRange, used: bool) -> bool {
        let limiter = self.limiter;
        if used && !limiter.is_unchanged_since(&self.at) {
            self.queue = None;
            limiter.give_back_units(range.cost);
            self.read_again();
            return false;
        }
        limiter.raise_peak(range.end());
        if used {
            self.reservation.use_units(range.cost);
        }
        self.reservation.raise_peak(0.0, range.end());
        true
    }
}
