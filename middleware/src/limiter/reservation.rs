//! Reservation of tokens for one request: taken, queued, or waiting for a larger lease.

mod attempt;

use std::{
    future::Future,
    mem,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use doorman_openapi::{Moment, Unit};

use super::{
    Limiter, LimiterHandle, Rejected, Shortage, View,
    bands::{BandRef, RequestBand},
    bucket::{Refill, TokenRange},
    charge::OpenCharge,
    store::QueueGuard,
    sync::Notify,
    units::TakenUnits,
    wait_queue::{HeldBackTicket, Ticket, unlock_and_wake},
};
use crate::{clock, cost::Cost};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitPolicy {
    Never,
    /// Until the deadline, unless `queue` requests wait already.
    Until {
        deadline: Moment,
        queue: u32,
    },
    Forever,
}

impl WaitPolicy {
    /// The turn comes at `reach`, or when others give units back, and a larger lease may come
    /// before `may_grow_until`.
    fn wait(
        self,
        reach: Option<Moment>,
        awaits_returns: bool,
        may_grow_until: Option<Moment>,
        now: Moment,
    ) -> Option<Wait> {
        match self {
            Self::Never => None,
            Self::Until { deadline, .. } => {
                let in_time = awaits_returns || reach.is_some_and(|moment| moment <= deadline);
                let until = may_grow_until
                    .map(|end| end.min(deadline))
                    .filter(|&end| now < end);
                let larger_lease = until.map(|until| Wait::LargerLease { until });
                in_time.then_some(Wait::Turn { deadline }).or(larger_lease)
            }
            Self::Forever => Some(Wait::Turn {
                deadline: Moment::NEVER,
            }),
        }
    }

    fn queue(self) -> u32 {
        match self {
            Self::Never => 0,
            Self::Until { queue, .. } => queue,
            Self::Forever => u32::MAX,
        }
    }
}

enum Wait {
    /// The turn comes before the deadline.
    Turn { deadline: Moment },
    /// The turn comes too late under the current lease.
    LargerLease { until: Moment },
}

/// The tokens of one request at one limiter, released on drop unless [committed](Self::commit).
#[derive(Debug)]
pub(crate) struct Reservation {
    limiter: LimiterHandle,
    cost: Cost,
    unit: Unit,
    priority: i32,
    /// Among requests of other priorities, when it last reserved.
    band: Option<RequestBand>,
    /// Whether the cost is part of the queue's pending cost.
    pending: bool,
    state: Stage,
}

/// `Idle` → `Taken` | `Queued` | `HeldBack` | `AwaitingLargerLease`;
/// `AwaitingLargerLease` → `Taken` | `Queued` | `HeldBack` | `Idle`;
/// `HeldBack` → `Taken` | `Idle`; `Taken`, `Queued` → `Committed` | `Idle`.
#[derive(Debug)]
enum Stage {
    Idle,
    Taken {
        range: TokenRange,
        runs_low: bool,
        /// It waited for a larger lease.
        delayed: bool,
    },
    /// Tokens are taken ahead of their turn.
    Queued {
        ticket: Ticket,
        deadline: Moment,
        _slot: WaitSlot,
    },
    /// Waits until tokens are available, behind requests of higher priorities.
    HeldBack {
        ticket: HeldBackTicket,
        deadline: Moment,
        _slot: WaitSlot,
    },
    /// Retries when a lease is published. It holds no queue position: other requests would wait
    /// behind tokens that are seldom used.
    AwaitingLargerLease {
        policy: WaitPolicy,
        until: Moment,
        slot: WaitSlot,
    },
    Committed {
        /// The end of its tokens; `None` if it took none.
        end: Option<f64>,
    },
}

/// The tokens or units for which a request in the queue waits.
struct Awaited {
    range: TokenRange,
    at: View,
    /// Notifies of the turn at a gauge.
    turn: Option<Arc<Notify>>,
}

/// The event that a request that is held back waits for.
struct HeldBackUntil {
    /// Its tokens, if it is the first one.
    first: Option<(TokenRange, View)>,
    turn: Arc<Notify>,
}

impl Reservation {
    pub(crate) fn new(limiter: LimiterHandle, priority: i32, cost: Cost) -> Self {
        let unit = limiter.get().unit();
        Self {
            cost: match unit {
                Unit::Rate => cost,
                Unit::Gauge => cost.whole(),
            },
            unit,
            limiter,
            priority,
            band: None,
            pending: false,
            state: Stage::Idle,
        }
    }

    fn band(&self) -> Option<BandRef<'_>> {
        self.band.as_ref().map(RequestBand::get)
    }

    /// The band, if there are higher ones.
    fn lower_band(&self) -> Option<BandRef<'_>> {
        self.band().filter(|band| band.is_lower())
    }

    fn count_attempt(&self, cost: f64) {
        if let Some(band) = self.band() {
            band.count(cost);
        }
    }

    fn raise_peak(&self, wanted: f64, spent: f64) {
        if self.unit == Unit::Gauge
            && let Some(band) = self.band()
        {
            band.raise_peak(wanted, spent);
        }
    }

    /// Counts units of a gauge in their band.
    fn use_units(&self, units: f64) {
        if self.unit == Unit::Gauge
            && let Some(band) = self.band()
        {
            band.use_units(units);
        }
    }

    /// Rejects the request, and counts it.
    fn reject(&self, range: TokenRange, at: &View, reach: Option<Moment>, now: Moment) -> Rejected {
        let limiter = self.limiter.get();
        if self.band.is_some() {
            self.count_attempt(range.cost);
            self.raise_peak(range.cost, limiter.record.spent.load());
        }
        limiter.reject(range, at, reach, now)
    }

    #[inline]
    pub(crate) fn limiter(&self) -> Limiter<'_> {
        self.limiter.get()
    }

    /// Takes the next tokens, or waits for them; [`Rejected`] if they come too late for `policy`.
    pub(crate) fn reserve(&mut self, policy: WaitPolicy, now: Moment) -> Result<(), Rejected> {
        self.release(now);
        self.try_reserve(policy, None, now)
            .inspect_err(|_| self.clear_pending())
    }

    /// Retries after a change of the lease, if it waits for a larger one.
    fn retry(&mut self, now: Moment) -> Result<(), Rejected> {
        match mem::replace(&mut self.state, Stage::Idle) {
            Stage::AwaitingLargerLease { policy, slot, .. } => self
                .try_reserve(policy, Some(slot), now)
                .inspect_err(|_| self.clear_pending()),
            other => {
                self.state = other;
                Ok(())
            }
        }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        matches!(
            self.state,
            Stage::Queued { .. } | Stage::HeldBack { .. } | Stage::AwaitingLargerLease { .. }
        )
    }

    /// Whether the request waits, or waited before its tokens were taken.
    pub(crate) fn is_delayed(&self) -> bool {
        self.is_waiting() || matches!(self.state, Stage::Taken { delayed: true, .. })
    }

    /// The shortage that the last [`reserve`](Self::reserve) showed.
    pub(crate) fn shortage(&self) -> Option<Shortage> {
        match self.state {
            Stage::Taken { runs_low, .. } => runs_low.then_some(Shortage::RunningLow),
            Stage::Queued { .. }
            | Stage::HeldBack { .. }
            | Stage::AwaitingLargerLease { .. }
            | Stage::Idle => Some(match self.band() {
                Some(band) if band.is_higher() => Shortage::HigherDenied,
                Some(_) | None => Shortage::Denied,
            }),
            Stage::Committed { .. } => None,
        }
    }

    /// Counts the request as admitted. Returns the units that it uses of a gauge.
    pub(crate) fn commit(&mut self) -> Option<TakenUnits> {
        let end = match mem::replace(&mut self.state, Stage::Idle) {
            Stage::Taken { range, .. } => Some(range.end()),
            Stage::Queued { ticket, .. } => {
                let range = self.limiter.get().queue().remove(ticket);
                range.map(TokenRange::end)
            }
            Stage::Committed { end } => end,
            Stage::HeldBack { ticket, .. } => {
                self.end_held_back(ticket);
                None
            }
            Stage::Idle | Stage::AwaitingLargerLease { .. } => None,
        };
        self.state = Stage::Committed { end };
        let limiter = self.limiter.get();
        if !limiter.is_reused() {
            let admitted = &limiter.record.admitted;
            admitted.update(|total| total + self.cost.get());
        }
        self.count_attempt(self.cost.get());
        self.clear_pending();
        (self.unit == Unit::Gauge && end.is_some()).then(|| TakenUnits {
            units: self.cost.get(),
            band: self.band.clone(),
        })
    }

    /// Lets this part of the cost be corrected, of a request that was admitted. `None` if it took
    /// no tokens, or at a gauge.
    pub(crate) fn open_charge(&self, cost: Cost) -> Option<OpenCharge> {
        let Stage::Committed { end } = self.state else {
            return None;
        };
        self.limiter
            .get()
            .open_charge(end?, cost, self.band.clone())
    }

    /// Adds the cost to the demand while the request waits, here or at another limit. The limiter
    /// is not forgotten meanwhile.
    pub(crate) fn mark_pending(&mut self) {
        if !mem::replace(&mut self.pending, true) {
            self.limiter.get().queue().add_pending(self.cost.get());
            self.count_attempt(self.cost.get());
        }
    }

    fn clear_pending(&mut self) {
        if mem::take(&mut self.pending) {
            self.limiter.get().queue().remove_pending(self.cost.get());
            self.count_attempt(-self.cost.get());
        }
    }

    /// The earliest moment at which a retry could succeed; `None` when unknown.
    pub(crate) fn retry_at(&self, now: Moment) -> Option<Moment> {
        let limiter = self.limiter.get();
        let at = limiter.view(now);
        let spent = limiter.record.spent.load();
        let range = at.view.next(spent, self.cost.get());
        let band = self.lower_band();
        let reserve = band.map_or(0.0, |band| band.reserve(self.unit, spent));
        let needed = at.view.with_reserve(range, reserve);
        at.retry_at(needed, at.reach(needed, now), now)
    }

    /// Returns the tokens, first to the requests queued behind.
    pub(crate) fn release(&mut self, now: Moment) {
        match mem::replace(&mut self.state, Stage::Idle) {
            Stage::Idle | Stage::AwaitingLargerLease { .. } => {}
            Stage::Committed { end } => self.state = Stage::Committed { end },
            Stage::HeldBack { ticket, .. } => self.end_held_back(ticket),
            Stage::Taken { range, .. } => {
                self.use_units(-range.cost);
                // Available ranges come before all queued ones, so all of the queue is behind.
                let limiter = self.limiter.get();
                limiter.take_back(range, limiter.queue(), None, now);
                // It waited elsewhere only.
                self.clear_pending();
            }
            Stage::Queued { ticket, .. } => {
                let limiter = self.limiter.get();
                let mut queue = limiter.queue();
                if let Some(range) = queue.remove(ticket) {
                    limiter.take_back(range, queue, Some(ticket), now);
                }
            }
        }
    }

    /// Waits for the turn of the tokens, and looks again whenever the lease changes; waits for a
    /// larger lease first if it needs one. Without a deadline it gives up when `no_lease_can_come`
    /// resolves and the turn is not known. [`Rejected`] when the turn does not come in time. Cancel
    /// safe: the reservation stays as it is.
    pub(crate) async fn wait_turn(
        &mut self,
        no_lease_can_come: impl Future<Output = ()>,
    ) -> Result<(), Rejected> {
        self.wait_larger_lease().await?;
        let mut no_lease_can_come = pin!(no_lease_can_come);
        let Stage::Queued {
            ticket, deadline, ..
        } = self.state
        else {
            return self.wait_held_back(no_lease_can_come).await;
        };
        let changes = self.limiter.get().queue().changes();
        loop {
            let mut changed = pin!(changes.notified());
            // No publication after this is missed.
            changed.as_mut().enable();
            let now = clock::now();
            let Some(Awaited { range, at, turn }) = self.await_turn(ticket, now) else {
                return Ok(());
            };
            if let Some(turn) = turn
                && now < deadline
            {
                // Units may be given back at any time, and a fallback may admit later.
                let reach = at.reach(range, now).filter(|moment| now < *moment);
                let again = deadline.min(reach.unwrap_or(Moment::NEVER));
                let needs_lease = reach.is_none() && !at.awaits_returns(range.cost);
                tokio::select! {
                    biased;
                    () = changed => continue,
                    () = turn.notified() => continue,
                    () = tokio::time::sleep(again.since(now)), if again < Moment::NEVER => continue,
                    () = &mut no_lease_can_come, if needs_lease => {}
                }
                let rejected = self.reject(range, &at, at.reach(range, now), now);
                self.clear_pending();
                return Err(rejected);
            }
            match at.reach(range, now) {
                Some(moment) if moment <= deadline && !at.is_gauge() => {
                    tokio::select! {
                        () = changed => {}
                        () = tokio::time::sleep(moment.since(now)) => {}
                    }
                    continue;
                }
                None if deadline == Moment::NEVER => {
                    tokio::select! {
                        biased;
                        () = changed => continue,
                        () = &mut no_lease_can_come => {}
                    }
                }
                Some(_) | None => {}
            }
            let rejected = self.reject(range, &at, at.reach(range, now), now);
            self.clear_pending();
            return Err(rejected);
        }
    }

    /// The wait of a request in the queue; `None` if it is over. Takes the turn at a gauge.
    fn await_turn(&mut self, ticket: Ticket, now: Moment) -> Option<Awaited> {
        let limiter = self.limiter.get();
        let mut queue = limiter.queue();
        // Requests ahead may have left and moved the range.
        let range = queue.range(ticket)?;
        let at = limiter.view(now);
        if !at.is_gauge() {
            let turn = None;
            return (!at.view.admits(range)).then_some(Awaited { range, at, turn });
        }
        let turn = queue.turn(ticket);
        if !limiter.take_turn(ticket, &mut queue, &at) {
            return Some(Awaited { range, at, turn });
        }
        // A slot locks the queue when it is dropped.
        drop(queue);
        self.use_units(range.cost);
        self.state = Stage::Taken {
            range,
            runs_low: true,
            delayed: true,
        };
        None
    }

    /// Waits for the tokens of a request that is held back, as [`Self::wait_turn`].
    async fn wait_held_back(
        &mut self,
        mut no_lease_can_come: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), Rejected> {
        let Stage::HeldBack {
            ticket, deadline, ..
        } = self.state
        else {
            return Ok(());
        };
        let changes = self.limiter.get().queue().changes();
        loop {
            let mut changed = pin!(changes.notified());
            // No publication after this is missed.
            changed.as_mut().enable();
            let now = clock::now();
            let Some(HeldBackUntil { first, turn }) = self.take_held_back(ticket, now) else {
                return Ok(());
            };
            let (mut again, mut needs_lease) = (deadline, false);
            if let Some((range, at)) = &first {
                let reach = at.reach(*range, now);
                needs_lease = reach.is_none() && !at.awaits_returns(range.cost);
                let reach = reach.filter(|&moment| now < moment);
                again = deadline.min(reach.unwrap_or(Moment::NEVER));
            }
            if now < deadline {
                tokio::select! {
                    biased;
                    () = changed => continue,
                    () = turn.notified() => continue,
                    () = tokio::time::sleep(again.since(now)), if again < Moment::NEVER => continue,
                    () = &mut no_lease_can_come, if needs_lease => {}
                }
            }
            return Err(self.give_up(now));
        }
    }

    /// Takes the tokens of a request that is held back, if it is the first one and they are
    /// available; `None` if it waits no longer.
    fn take_held_back(&mut self, ticket: HeldBackTicket, now: Moment) -> Option<HeldBackUntil> {
        let limiter = self.limiter.get();
        let mut queue = limiter.queue();
        let (turn, is_first) = queue.held_back_turn(ticket)?;
        if !is_first {
            return Some(HeldBackUntil { first: None, turn });
        }
        // A thread that gives units back sees that there is a queue, or these units are seen here.
        limiter.record.spent.update(|spent| spent);
        // No lease is published while the queue is locked.
        let at = limiter.view(now);
        let mut spent = limiter.record.spent.load();
        let range = loop {
            let range = at.view.next(spent, self.cost.get());
            let band = self.lower_band();
            let reserve = band.map_or(0.0, |band| band.reserve(self.unit, spent));
            if !at.view.admits_beside(range, reserve) {
                let first = Some((at.view.with_reserve(range, reserve), at));
                return Some(HeldBackUntil { first, turn });
            }
            match limiter.record.spent.replace(spent, range.end()) {
                Ok(()) => break range,
                Err(actual) => spent = actual,
            }
        };
        self.use_units(range.cost);
        queue.end_held_back(ticket);
        // A slot locks the queue when it is dropped.
        drop(queue);
        if let Some(band) = self.band() {
            band.end_to_hold_back();
        }
        self.state = Stage::Taken {
            range,
            runs_low: at.view.runs_low(range.end()),
            delayed: true,
        };
        None
    }

    /// The request is no longer held back.
    fn end_held_back(&self, ticket: HeldBackTicket) {
        self.limiter.get().queue().end_held_back(ticket);
        if let Some(band) = self.band() {
            band.end_to_hold_back();
        }
    }

    /// Rejects a request that has waited long enough, and returns its tokens.
    pub(crate) fn give_up(&mut self, now: Moment) -> Rejected {
        let limiter = self.limiter.get();
        let at = limiter.view(now);
        let queued = match self.state {
            Stage::Queued { ticket, .. } => limiter.queue().range(ticket),
            Stage::Idle
            | Stage::Taken { .. }
            | Stage::HeldBack { .. }
            | Stage::AwaitingLargerLease { .. }
            | Stage::Committed { .. } => None,
        };
        let spent = limiter.record.spent.load();
        let range = queued.unwrap_or_else(|| {
            let band = self.lower_band();
            let reserve = band.map_or(0.0, |band| band.reserve(self.unit, spent));
            let range = at.view.next(spent, self.cost.get());
            at.view.with_reserve(range, reserve)
        });
        let rejected = self.reject(range, &at, at.reach(range, now), now);
        self.clear_pending();
        self.release(now);
        rejected
    }

    async fn wait_larger_lease(&mut self) -> Result<(), Rejected> {
        if !matches!(self.state, Stage::AwaitingLargerLease { .. }) {
            return Ok(());
        }
        let changes = self.limiter.get().queue().changes();
        loop {
            let mut changed = pin!(changes.notified());
            changed.as_mut().enable();
            let now = clock::now();
            self.retry(now)?;
            let Stage::AwaitingLargerLease { until, .. } = self.state else {
                return Ok(());
            };
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep(until.since(now)) => {}
            }
        }
    }

    /// Waits for the first lease, until `timeout` after the limiter was created, unless `queue`
    /// requests wait already. Cancel safe: it takes nothing.
    pub(crate) async fn wait_first_lease(&self, timeout: Duration, queue: u32) {
        let Some(_slot) = WaitSlot::acquire(&self.limiter, queue, self.priority) else {
            return;
        };
        let changes = self.limiter.get().queue().changes();
        loop {
            let mut changed = pin!(changes.notified());
            changed.as_mut().enable();
            let now = clock::now();
            let deadline = self.first_lease_deadline(timeout);
            let Some(deadline) = deadline.filter(|&moment| now < moment) else {
                return;
            };
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep(deadline.since(now)) => {}
            }
        }
    }

    /// Until when to wait for a first lease; `None` when the resource has had one.
    pub(crate) fn first_lease_deadline(&self, timeout: Duration) -> Option<Moment> {
        let created_at = self.limiter.get().created_at()?;
        Some(created_at.after(timeout))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if matches!(
            self.state,
            Stage::Queued { .. } | Stage::HeldBack { .. } | Stage::Taken { .. }
        ) {
            self.release(clock::now());
        }
        if self.pending {
            self.limiter.get().queue().cancel_pending(self.cost.get());
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
        if self.unit() == Unit::Gauge {
            self.leave_queue(range.cost, &queue);
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

#[derive(Debug)]
struct WaitSlot(LimiterHandle);

impl WaitSlot {
    /// `None` when `max` requests wait already.
    fn acquire(limiter: &LimiterHandle, max: u32, priority: i32) -> Option<Self> {
        let acquired = limiter.get().queue().acquire_slot(max, priority);
        acquired.then(|| Self(limiter.clone()))
    }
}

impl Drop for WaitSlot {
    fn drop(&mut self) {
        self.0.get().queue().release_slot();
    }
}
