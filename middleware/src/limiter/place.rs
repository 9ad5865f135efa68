//! A place in the order of a limiter's tokens: asked for, taken at once or waited for, and given back unless it is kept.

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use doorman_openapi::Moment;

use super::{
    Limiter, Refused, Why,
    bucket::{Flow, Take, View},
    published::Published,
};
use crate::{Cost, clock};

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

/// What one request asks of one limiter. Dropping it gives back what it took, unless it is [kept](Self::keep).
#[derive(Debug)]
pub(crate) struct Place {
    limiter: Arc<Limiter>,
    cost: Cost,
    state: State,
}

/// `Asked` → `Taken` | `Queued`; `Taken`, `Queued` → `Kept` | `Asked`.
#[derive(Debug)]
enum State {
    /// Nothing is taken.
    Asked,
    /// Taken, and its turn had come.
    Taken { take: Take, runs_low: bool },
    /// Taken ahead of its turn.
    Queued {
        take: Take,
        deadline: Moment,
        _waits: Waits,
    },
    /// The request goes.
    Kept,
}

impl Place {
    pub(crate) fn new(limiter: Arc<Limiter>, cost: Cost) -> Self {
        Self {
            limiter,
            cost,
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
        let limiter = &self.limiter;
        let published = limiter.read();
        let view = limiter.view(&published, now);
        let mut spent = limiter.spent.load();
        let mut queued = None;
        loop {
            let take = view.next(spent, self.cost.get());
            let turn = view.admits(take);
            if !turn && queued.is_none() {
                queued = Some(join(limiter, take, patience, &published, &view, now)?);
            }
            if let Err(actual) = limiter.spent.replace(spent, take.end()) {
                spent = actual;
                continue;
            }
            self.state = match queued {
                Some((deadline, waits)) if !turn => State::Queued {
                    take,
                    deadline,
                    _waits: waits,
                },
                Some(_) | None => State::Taken {
                    take,
                    runs_low: view.runs_low(take.end()),
                },
            };
            return Ok(());
        }
    }

    /// Whether it was taken ahead of its turn.
    pub(crate) fn is_queued(&self) -> bool {
        matches!(self.state, State::Queued { .. })
    }

    /// Whether more should be leased: it had to wait, or leaves little.
    pub(crate) fn runs_low(&self) -> bool {
        match self.state {
            State::Taken { runs_low, .. } => runs_low,
            State::Queued { .. } => true,
            State::Asked | State::Kept => false,
        }
    }

    /// Goes: what it took stays taken, and counts as admitted.
    pub(crate) fn keep(&mut self) {
        self.state = State::Kept;
        self.limiter
            .admitted
            .update(|total| total + self.cost.get());
    }

    /// Gives back what it took.
    pub(crate) fn give_back(&mut self, now: Moment) {
        match std::mem::replace(&mut self.state, State::Asked) {
            State::Asked => {}
            State::Kept => self.state = State::Kept,
            State::Taken { take, .. } | State::Queued { take, .. } => {
                let view = self.limiter.view(&self.limiter.read(), now);
                let returned = take.returnable(&view);
                self.limiter.spent.update(|spent| spent - returned);
            }
        }
    }

    /// Waits for its turn, until its deadline at the latest, and looks again whenever the lease changes. Who waits goes in the
    /// order of the places.
    ///
    /// As long as nothing is known of when its turn comes, it waits only while `hope` lasts.
    ///
    /// # Errors
    /// [`Refused`], and counted so, when its turn does not come in time.
    ///
    /// # Cancel safety
    /// Safe: the place stays what it is.
    pub(crate) async fn turn(&self, hope: impl Future<Output = ()>) -> Result<(), Refused> {
        let State::Queued { take, deadline, .. } = self.state else {
            return Ok(());
        };
        let mut hope = pin!(hope);
        loop {
            let mut changed = pin!(self.limiter.bell().notified());
            // From here on no publication is missed.
            changed.as_mut().enable();
            let now = clock::now();
            let published = self.limiter.read();
            let view = self.limiter.view(&published, now);
            if view.admits(take) {
                return Ok(());
            }
            let burst = self.limiter.settings.burst;
            match published.terms.reach(take, now, burst) {
                Some(moment) if moment <= deadline => {
                    tokio::select! {
                        () = changed => {}
                        () = tokio::time::sleep(moment.since(now)) => {}
                    }
                }
                None if deadline == Moment::NEVER => {
                    tokio::select! {
                        biased;
                        () = changed => {}
                        () = &mut hope => {
                            return Err(self.limiter.refuse(take, &published, &view, now));
                        }
                    }
                }
                Some(_) | None => {
                    return Err(self.limiter.refuse(take, &published, &view, now));
                }
            }
        }
    }

    /// Waits for the first lease of its resource, until `at_most` after the resource was first asked for; not at all when so many
    /// wait already.
    ///
    /// # Cancel safety
    /// Safe: it takes nothing.
    pub(crate) async fn first_lease(&self, at_most: Duration, queue: u32) {
        let Some(_waits) = Waits::join(&self.limiter, queue) else {
            return;
        };
        loop {
            let mut changed = pin!(self.limiter.bell().notified());
            changed.as_mut().enable();
            let now = clock::now();
            let Some(deadline) = self.lease_deadline(at_most).filter(|&moment| now < moment) else {
                return;
            };
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep(deadline.since(now)) => {}
            }
        }
    }

    /// Until when a first lease is waited for; `None` when the resource has had one.
    pub(crate) fn lease_deadline(&self, at_most: Duration) -> Option<Moment> {
        let terms = self.limiter.read().terms;
        (!terms.ever_leased()).then(|| terms.since.after(at_most))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_queued() || matches!(self.state, State::Taken { .. }) {
            self.give_back(clock::now());
        }
    }
}

/// Joins those who wait for a turn that has not come; says until when at the latest.
fn join(
    limiter: &Arc<Limiter>,
    take: Take,
    patience: Patience,
    published: &Published,
    view: &View,
    now: Moment,
) -> Result<(Moment, Waits), Refused> {
    let (deadline, room) = match patience {
        Patience::Never => return Err(limiter.refuse(take, published, view, now)),
        Patience::Until { deadline, queue } => {
            let reach = published.terms.reach(take, now, limiter.settings.burst);
            if reach.is_none_or(|moment| moment > deadline) {
                return Err(limiter.refuse(take, published, view, now));
            }
            (deadline, queue)
        }
        Patience::Forever => (Moment::NEVER, u32::MAX),
    };
    let waits = Waits::join(limiter, room).ok_or_else(|| {
        let refused = limiter.refuse(take, published, view, now);
        refused.because(Why::QueueFull)
    })?;
    Ok((deadline, waits))
}

impl Limiter {
    /// The refusal of a place, counted.
    fn refuse(&self, take: Take, published: &Published, view: &View, now: Moment) -> Refused {
        self.refused.update(|total| total + take.cost);
        let refresh_at = Some(published.refresh_at).filter(|&moment| moment < Moment::NEVER);
        let reach = published.terms.reach(take, now, self.settings.burst);
        let refused = Refused {
            why: Why::Spent,
            until: reach.or(refresh_at),
            refresh_at,
        };
        match (view.leased, view.flow) {
            (true, Flow::At(_) | Flow::Open) => refused,
            (true, Flow::Shut) => refused.because(Why::Blocked),
            (false, _) => refused.because(Why::NoLease),
        }
    }
}

/// One of those who wait for something of a limiter.
#[derive(Debug)]
struct Waits(Arc<Limiter>);

impl Waits {
    /// Joins those who wait, unless so many wait already.
    fn join(limiter: &Arc<Limiter>, room: u32) -> Option<Self> {
        let before = limiter.waiting.fetch_add(1, Ordering::Relaxed);
        let waits = Self(Arc::clone(limiter));
        (before < room).then_some(waits)
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
