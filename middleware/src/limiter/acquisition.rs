//! A request at one limiter, until it has its tokens: taken, queued, or waiting for a larger lease.

mod attempt;
mod request;
mod turn;
mod wait;

use std::{
    future::{Future, pending},
    mem,
    ops::ControlFlow,
    time::Duration,
};

use doorman_openapi::Moment;

pub(super) use self::request::Request;
pub(crate) use self::wait::WaitLimit;
use self::{
    turn::Turn,
    wait::{Pause, WaitSlot, wait},
};
use super::{
    Limiter, LimiterHandle, Rejected, Shortage,
    reservation::{Committed, Reservation},
    wait_queue::{HeldBackTicket, Ticket},
};
use crate::{cost::Cost, refusal::RefusalReason};

/// Acquires the tokens of one request at one limiter. They are released on drop unless
/// [committed](Self::commit).
#[derive(Debug)]
pub(crate) struct Acquisition {
    request: Request,
    state: State,
}

/// `Idle` → `Waiting` | `Taken`; `Waiting` → `Waiting` | `Taken`. Each of them → `Idle`.
#[derive(Debug, Default)]
enum State {
    #[default]
    Idle,
    Waiting(Waiting),
    Taken {
        reservation: Reservation,
        runs_low: bool,
        /// It waited here before.
        delayed: bool,
    },
}

#[derive(Debug)]
struct Waiting {
    kind: WaitKind,
    deadline: Moment,
    slot: WaitSlot,
}

/// How a request waits.
#[derive(Debug, Clone, Copy)]
enum WaitKind {
    /// In the queue: its tokens are taken ahead of their turn.
    Queued(Ticket),
    /// Behind requests of higher priorities. It takes its tokens when they are available.
    HeldBack(HeldBackTicket),
    /// Outside of the queue: others would wait behind tokens that are seldom used. It tries again
    /// when a lease is published.
    LargerLease(WaitLimit),
}

impl Acquisition {
    pub(crate) fn new(limiter: LimiterHandle, priority: i32, cost: Cost) -> Self {
        Self {
            request: Request::new(limiter, priority, cost),
            state: State::Idle,
        }
    }

    #[inline]
    pub(crate) fn limiter(&self) -> Limiter<'_> {
        self.request.limiter()
    }

    /// Takes the next tokens, or waits for them within this limit; [`Rejected`] if they come too
    /// late.
    pub(crate) fn reserve(&mut self, limit: WaitLimit, now: Moment) -> Result<(), Rejected> {
        self.release(now);
        self.attempt(limit, None, now)
    }

    /// `slot` is that of a request that already waits.
    fn attempt(
        &mut self,
        limit: WaitLimit,
        slot: Option<WaitSlot>,
        now: Moment,
    ) -> Result<(), Rejected> {
        let attempted = self.request.attempt(limit, slot, now);
        let state = attempted.inspect_err(|_| self.request.clear_pending())?;
        self.set(state);
        if self.is_waiting() && self.limiter().has_other_unit() {
            return Err(self.give_up(now));
        }
        Ok(())
    }

    fn set(&mut self, state: State) {
        self.state = state;
        if self.is_waiting() {
            self.request.mark_pending();
        } else if self.has_units() {
            self.request.clear_pending();
        }
    }

    /// Whether units of a gauge are in use, so that the request does not wait for them.
    fn has_units(&self) -> bool {
        let State::Taken { reservation, .. } = &self.state else {
            return false;
        };
        matches!(reservation, Reservation::Gauge(_))
    }

    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waiting(_))
    }

    /// Whether the request waits, or waited before its tokens were taken.
    pub(crate) fn is_delayed(&self) -> bool {
        self.is_waiting() || matches!(self.state, State::Taken { delayed: true, .. })
    }

    /// The shortage that the last [`reserve`](Self::reserve) showed.
    pub(crate) fn shortage(&self) -> Option<Shortage> {
        match self.state {
            State::Taken { runs_low, .. } => runs_low.then_some(Shortage::RunningLow),
            State::Idle | State::Waiting(_) => Some(match self.request.band() {
                Some(band) if band.is_higher() => Shortage::HigherDenied,
                Some(_) | None => Shortage::Denied,
            }),
        }
    }

    /// Counts the request as admitted if it has its tokens.
    pub(crate) fn commit(&mut self) -> Option<Committed> {
        match mem::take(&mut self.state) {
            State::Taken { reservation, .. } => Some(reservation.commit(&mut self.request)),
            other @ (State::Idle | State::Waiting(_)) => {
                self.state = other;
                None
            }
        }
    }

    /// Adds the cost to the demand while the request waits, here or at another limit.
    pub(crate) fn mark_pending(&mut self) {
        if !self.has_units() {
            self.request.mark_pending();
        }
    }

    /// The earliest moment at which a retry could succeed; `None` when unknown.
    pub(crate) fn retry_at(&self, now: Moment) -> Option<Moment> {
        let limiter = self.limiter();
        let at = limiter.view(now);
        let needed = self.request.needed(&at, limiter.record.spent.load());
        at.retry_at(needed, at.reach(needed, now), now)
    }

    /// Returns the tokens, first to the requests queued behind.
    pub(crate) fn release(&mut self, now: Moment) {
        match mem::take(&mut self.state) {
            State::Idle => {}
            State::Waiting(waiting) => self.request.leave(waiting.kind, now),
            State::Taken {
                reservation,
                delayed,
                ..
            } => {
                reservation.release(&self.request, now);
                if !delayed {
                    // It waited elsewhere only.
                    self.request.clear_pending();
                }
            }
        }
    }

    /// Waits until the request has its tokens. Without a deadline it gives up when
    /// `no_lease_can_come` resolves and the turn is not known. [`Rejected`] when the turn does not
    /// come in time. Cancel safe: the request stays where it waits.
    pub(crate) async fn wait_turn(
        &mut self,
        no_lease_can_come: impl Future<Output = ()>,
    ) -> Result<(), Rejected> {
        if !self.is_waiting() {
            return Ok(());
        }
        let limiter = self.request.handle.clone();
        let turn = wait(limiter.get(), no_lease_can_come, |now| self.try_turn(now)).await;
        turn.unwrap_or_else(|| Err(self.give_up(self.limiter().now())))
    }

    /// Takes the tokens of a request that waits if its turn has come.
    fn try_turn(&mut self, now: Moment) -> ControlFlow<Result<(), Rejected>, Pause> {
        if let Err(rejected) = self.retry(now) {
            return ControlFlow::Break(Err(rejected));
        }
        let State::Waiting(Waiting { kind, deadline, .. }) = self.state else {
            return ControlFlow::Break(Ok(()));
        };
        match self.request.take_turn(kind, deadline, now) {
            Turn::Come(reservation) => {
                self.set(State::Taken {
                    reservation,
                    runs_low: false,
                    delayed: true,
                });
                ControlFlow::Break(Ok(()))
            }
            Turn::After(_) if self.limiter().has_other_unit() => {
                ControlFlow::Break(Err(self.give_up(now)))
            }
            Turn::After(pause) => ControlFlow::Continue(pause),
            Turn::Outgrown => {
                if let State::Waiting(waiting) = &mut self.state {
                    let queue = u32::MAX;
                    waiting.kind = WaitKind::LargerLease(WaitLimit::Until { deadline, queue });
                }
                self.try_turn(now)
            }
            Turn::TooLate => ControlFlow::Break(Err(self.give_up(now))),
        }
    }

    /// Tries again, if the request waits for a larger lease.
    fn retry(&mut self, now: Moment) -> Result<(), Rejected> {
        match mem::take(&mut self.state) {
            State::Waiting(Waiting {
                kind: WaitKind::LargerLease(limit),
                slot,
                ..
            }) => self.attempt(limit, Some(slot), now),
            other => {
                self.state = other;
                Ok(())
            }
        }
    }

    /// Rejects a request that has waited long enough, and returns its tokens.
    pub(crate) fn give_up(&mut self, now: Moment) -> Rejected {
        let limiter = self.request.limiter();
        let at = limiter.view(now);
        let queued = match &self.state {
            State::Waiting(Waiting {
                kind: WaitKind::Queued(ticket),
                ..
            }) => limiter.queue().range(*ticket),
            State::Idle | State::Waiting(_) | State::Taken { .. } => None,
        };
        let needed =
            queued.unwrap_or_else(|| self.request.needed(&at, limiter.record.spent.load()));
        let rejected = self.request.reject(needed, &at, at.reach(needed, now), now);
        self.request.clear_pending();
        self.release(now);
        rejected
    }

    /// Waits for the first lease, until `timeout` after the limiter was created. [`Rejected`] if
    /// `queue` requests wait already. Cancel safe: it takes nothing.
    pub(crate) async fn wait_first_lease(
        &self,
        timeout: Duration,
        queue: u32,
    ) -> Result<(), Rejected> {
        let request = &self.request;
        let slot = {
            let locked = &mut self.limiter().queue();
            WaitSlot::acquire(&request.handle, locked, queue, request.priority)
        };
        if !self.limiter().is_current() {
            return Ok(());
        }
        if slot.is_none() {
            let reason = RefusalReason::QueueFull;
            return Err(self.limiter().rejection(reason, None));
        }
        wait(self.limiter(), pending(), |now| {
            match self.first_lease_deadline(timeout) {
                Some(deadline) if now < deadline => ControlFlow::Continue(Pause::until(deadline)),
                Some(_) | None => ControlFlow::Break(()),
            }
        })
        .await;
        Ok(())
    }

    /// Until when to wait for a first lease; `None` when the resource has had one, or none helps.
    pub(crate) fn first_lease_deadline(&self, timeout: Duration) -> Option<Moment> {
        if self.limiter().has_other_unit() {
            return None;
        }
        let created_at = self.limiter().created_at()?;
        Some(created_at.after(timeout))
    }
}

impl Drop for Acquisition {
    fn drop(&mut self) {
        if !matches!(self.state, State::Idle) {
            self.release(self.limiter().now());
        }
    }
}
