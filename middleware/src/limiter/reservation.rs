//! A place in the order of a limiter's tokens: asked for, taken at once or waited for, and given back unless it is kept.

use std::sync::{Arc, MutexGuard};

use doorman_openapi::Moment;

use super::{
    Limiter, Refused,
    bucket::{Flow, Take, View},
    demand_signal::Shortage,
    published::{OVERDUE, Published},
    wait::Waits,
    wait_queue::{Ticket, WaitQueue, ring},
};
use crate::{Cost, RefusalReason, clock};

/// How long a request may wait for its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Not at all.
    Never,
    /// Until then, unless so many wait already.
    Until { deadline: Moment, queue: u32 },
    /// As long as it takes.
    Forever,
}

impl Patience {
    /// What a request waits for whose turn comes at `reach`, or perhaps sooner, as the lease may grow until `hope` ends; `None` when it
    /// does not wait.
    fn wait(self, reach: Option<Moment>, hope: Option<Moment>, now: Moment) -> Option<Wait> {
        match self {
            Self::Never => None,
            Self::Until { deadline, .. } => {
                let in_time = reach.is_some_and(|moment| moment <= deadline);
                let until = hope.map(|end| end.min(deadline)).filter(|&end| now < end);
                let hopes = until.map(|until| Wait::LargerLease { until });
                in_time.then_some(Wait::Turn { deadline }).or(hopes)
            }
            Self::Forever => Some(Wait::Turn {
                deadline: Moment::NEVER,
            }),
        }
    }

    /// How many may wait already.
    fn queue(self) -> u32 {
        match self {
            Self::Never => 0,
            Self::Until { queue, .. } => queue,
            Self::Forever => u32::MAX,
        }
    }
}

/// What a request waits for.
enum Wait {
    /// Its turn, which comes before the deadline.
    Turn { deadline: Moment },
    /// A larger lease: under this one its turn comes too late.
    LargerLease { until: Moment },
}

/// What one request asks of one limiter. Dropping it gives back what it took, unless it is [kept](Self::keep).
#[derive(Debug)]
pub(crate) struct Reservation {
    pub(super) limiter: Arc<Limiter>,
    cost: Cost,
    /// Whether it counts among those that are not decided.
    undecided: bool,
    pub(super) state: State,
}

/// `Asked` → `Taken` | `Queued` | `Hopes`; `Hopes` → `Taken` | `Queued` | `Asked`; `Taken`, `Queued` → `Kept` | `Asked`.
#[derive(Debug)]
pub(super) enum State {
    /// Nothing is taken.
    Asked,
    /// Taken, and its turn had come, perhaps after it hoped.
    Taken {
        take: Take,
        runs_low: bool,
        hoped: bool,
    },
    /// Taken ahead of its turn.
    Queued {
        ticket: Ticket,
        deadline: Moment,
        _waits: Waits,
    },
    /// Waits for a larger lease, and tries again when one is published. It has no place meanwhile: nobody has to wait behind one that will
    /// hardly be used, nor to be moved up when it is given back.
    Hopes {
        patience: Patience,
        until: Moment,
        waits: Waits,
    },
    /// The request goes.
    Kept,
}

impl Reservation {
    pub(crate) fn new(limiter: Arc<Limiter>, cost: Cost) -> Self {
        Self {
            limiter,
            cost,
            undecided: false,
            state: State::Asked,
        }
    }

    pub(crate) fn limiter(&self) -> &Arc<Limiter> {
        &self.limiter
    }

    /// Takes the next place in the order of tokens: one whose turn has come, or, with patience, one to wait for.
    ///
    /// # Errors
    /// [`Refused`], and counted so, when its turn has not come and will not within the patience.
    pub(crate) fn take(&mut self, patience: Patience, now: Moment) -> Result<(), Refused> {
        self.give_back(now);
        self.try_to_take(patience, None, now)
            .inspect_err(|_| self.decided())
    }

    /// Takes a place if it has none and hopes for one; what it waits for may have come.
    ///
    /// # Errors
    /// [`Refused`], and counted so, when there is nothing to hope for any more.
    pub(super) fn take_if_hoping(&mut self, now: Moment) -> Result<(), Refused> {
        match std::mem::replace(&mut self.state, State::Asked) {
            State::Hopes {
                patience, waits, ..
            } => self
                .try_to_take(patience, Some(waits), now)
                .inspect_err(|_| self.decided()),
            other => {
                self.state = other;
                Ok(())
            }
        }
    }

    /// Who has hoped until now waits already.
    fn try_to_take(
        &mut self,
        patience: Patience,
        mut waits: Option<Waits>,
        now: Moment,
    ) -> Result<(), Refused> {
        let hoped = waits.is_some();
        let limiter = &self.limiter;
        let mut published = limiter.read();
        let mut view = limiter.view(&published, now);
        let mut spent = limiter.spent.load();
        if view.leased && !published.draw() {
            let take = view.next(spent, self.cost.get());
            return Err(limiter.suppress(take, &published, &view, now));
        }
        // Held by who queues, so that the line is in the order of the tokens.
        let mut line = None;
        loop {
            let take = view.next(spent, self.cost.get());
            let deadline = if view.admits(take) {
                None
            } else {
                let reach = limiter.reach(take, &published, now);
                let Some(wait) = patience.wait(reach, published.may_grow_until(now), now) else {
                    return Err(limiter.refuse(take, &published, &view, now));
                };
                let room = waits
                    .take()
                    .or_else(|| Waits::join(limiter, patience.queue()));
                let Some(joined) = room else {
                    let refused = limiter.refuse(take, &published, &view, now);
                    return Err(refused.because(RefusalReason::QueueFull));
                };
                let deadline = match wait {
                    Wait::Turn { deadline } => deadline,
                    Wait::LargerLease { until } => {
                        self.state = State::Hopes {
                            patience,
                            until,
                            waits: joined,
                        };
                        drop(line);
                        self.is_undecided();
                        return Ok(());
                    }
                };
                waits = Some(joined);
                if line.is_none() {
                    line = Some(limiter.line());
                    // What was read before may be replaced by now.
                    published = limiter.read();
                    view = limiter.view(&published, now);
                    spent = limiter.spent.load();
                    continue;
                }
                Some(deadline)
            };
            if let Err(actual) = limiter.spent.replace(spent, take.end()) {
                spent = actual;
                continue;
            }
            self.state = match (deadline, waits, line) {
                (Some(deadline), Some(waits), Some(mut line)) => State::Queued {
                    ticket: line.join(take),
                    deadline,
                    _waits: waits,
                },
                (Some(_) | None, _, _) => State::Taken {
                    take,
                    runs_low: view.runs_low(take.end()),
                    hoped,
                },
            };
            if matches!(self.state, State::Queued { .. }) {
                self.is_undecided();
            }
            return Ok(());
        }
    }

    /// Whether it waits, or has waited until it was taken.
    pub(crate) fn is_queued(&self) -> bool {
        matches!(
            self.state,
            State::Queued { .. } | State::Hopes { .. } | State::Taken { hoped: true, .. }
        )
    }

    /// Why more should be leased, once it was [taken](Self::take), or was not.
    pub(crate) fn need(&self) -> Option<Shortage> {
        match self.state {
            State::Taken { runs_low, .. } => runs_low.then_some(Shortage::RunningLow),
            State::Queued { .. } | State::Hopes { .. } | State::Asked => Some(Shortage::Denied),
            State::Kept => None,
        }
    }

    /// Goes: what it took stays taken, and counts as admitted.
    pub(crate) fn keep(&mut self) {
        if let State::Queued { ticket, .. } = std::mem::replace(&mut self.state, State::Kept) {
            self.limiter.line().leave(ticket);
        }
        self.limiter
            .admitted
            .update(|total| total + self.cost.get());
        self.decided();
    }

    /// It waits, be it for a lease or for its turn, and is wanted meanwhile: else the leasing side would ask as if nobody came.
    pub(crate) fn is_undecided(&mut self) {
        if !std::mem::replace(&mut self.undecided, true) {
            let cost = self.cost.get();
            self.limiter.undecided.update(|total| total + cost);
        }
    }

    /// What has come of it is counted elsewhere.
    pub(super) fn decided(&mut self) {
        if std::mem::take(&mut self.undecided) {
            let cost = self.cost.get();
            self.limiter.undecided.update(|total| total - cost);
        }
    }

    /// The earliest moment at which it could be taken if nobody else came: `now` when it could be at once, `None` when nothing is known
    /// of it.
    pub(crate) fn possible_at(&self, now: Moment) -> Option<Moment> {
        let limiter = &self.limiter;
        let published = limiter.read();
        let view = limiter.view(&published, now);
        let take = view.next(limiter.spent.load(), self.cost.get());
        let reach = limiter.reach(take, &published, now);
        Limiter::admits_at(take, reach, &published, &view, now)
    }

    /// Gives back what it took, to those who wait behind it first.
    pub(crate) fn give_back(&mut self, now: Moment) {
        match std::mem::replace(&mut self.state, State::Asked) {
            State::Asked | State::Hopes { .. } => {}
            State::Kept => self.state = State::Kept,
            // When its turn had come, all who wait were behind it, or may go already.
            State::Taken { take, .. } => {
                let line = self.limiter.line();
                self.limiter.take_back(take, line, None, now);
            }
            State::Queued { ticket, .. } => {
                let mut line = self.limiter.line();
                if let Some(take) = line.leave(ticket) {
                    self.limiter.take_back(take, line, Some(ticket), now);
                }
            }
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if matches!(self.state, State::Queued { .. } | State::Taken { .. }) {
            self.give_back(clock::now());
        }
    }
}

impl Limiter {
    /// Takes back what has not overflowed meanwhile, and lets those behind move up.
    pub(super) fn take_back(
        &self,
        take: Take,
        mut line: MutexGuard<'_, WaitQueue>,
        left: Option<Ticket>,
        now: Moment,
    ) {
        let returned = take.returnable(&self.view(&self.read(), now));
        self.spent.update(|spent| spent - returned);
        if line.pull(left, returned) {
            ring(line);
        }
    }

    /// The refusal of a place, counted.
    pub(super) fn refuse(
        &self,
        take: Take,
        published: &Published,
        view: &View,
        now: Moment,
    ) -> Refused {
        self.refused.update(|total| total + take.cost);
        let reach = self.reach(take, published, now);
        let refused = Refused {
            reason: RefusalReason::Spent,
            until: Self::admits_at(take, reach, published, view, now),
            refresh_at: published.next_refresh(),
        };
        match (view.leased, view.flow) {
            // Little was leased because little was wanted.
            (true, Flow::At(_)) if published.grows_before(reach, now) => {
                refused.because(RefusalReason::WarmingUp)
            }
            (true, Flow::At(0.0)) => refused.because(RefusalReason::NoLease),
            (true, Flow::At(_) | Flow::Open) => refused,
            (true, Flow::Shut) => refused.because(RefusalReason::Blocked),
            (false, _) => refused.because(RefusalReason::NoLease),
        }
    }

    /// The refusal of a place by chance, counted: what is suppressed is wanted all the same. The next try is as good as this one, so
    /// it makes sense when as much time has passed as one in so many takes, or when the chances may have changed.
    fn suppress(&self, take: Take, published: &Published, view: &View, now: Moment) -> Refused {
        self.refused.update(|total| total + take.cost);
        let refresh_at = published.next_refresh();
        let may_change = refresh_at
            .filter(|&refresh| refresh > now)
            .unwrap_or_else(|| now.after(OVERDUE));
        let rate = view.rate().unwrap_or_default() * published.admission;
        Refused {
            reason: RefusalReason::Suppressed,
            until: Some(now.after_seconds(1.0 / rate).min(may_change)),
            refresh_at,
        }
    }

    /// When the turn of a place comes, if nothing changes; `None` if it never does.
    fn reach(&self, take: Take, published: &Published, now: Moment) -> Option<Moment> {
        let burst = self.settings.burst.get();
        published.terms.reach(take, now, burst)
    }

    /// The earliest moment at which coming back makes sense for a place whose turn comes at `reach`; `None` when nothing is known of it.
    fn admits_at(
        take: Take,
        reach: Option<Moment>,
        published: &Published,
        view: &View,
        now: Moment,
    ) -> Option<Moment> {
        match view.flow {
            // Nothing comes before the leasing side has asked again.
            Flow::At(0.0) if !view.admits(take) => published.next_refresh().or(reach),
            Flow::At(_) if published.grows_before(reach, now) => published.next_refresh(),
            Flow::At(_) | Flow::Shut | Flow::Open => reach.or(published.next_refresh()),
        }
    }
}
