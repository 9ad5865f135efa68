//! A place in the order of a limiter's tokens: taken at once, or waited for, and given back unless it is kept.

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, atomic::Ordering},
};

use doorman_openapi::Moment;

use super::{
    Limiter, Refused, Why,
    bucket::{Flow, Take, View},
    published::Published,
};
use crate::{Cost, clock};

/// How long a request may wait for its place's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Not at all.
    Never,
    /// Until then, unless so many wait already.
    Until { deadline: Moment, queue: u32 },
    /// As long as it takes.
    Forever,
}

impl Limiter {
    /// Takes the next place in the order of tokens: one whose turn has come, or, with patience, one to wait for.
    ///
    /// # Errors
    /// [`Refused`], and counted so, when its turn has not come and will not within the patience.
    pub(crate) fn take(
        self: &Arc<Self>,
        cost: Cost,
        patience: Patience,
        now: Moment,
    ) -> Result<Place, Refused> {
        let published = self.read();
        let view = self.view(&published, now);
        let mut spent = self.spent.load();
        let mut queued = None;
        loop {
            let take = view.next(spent, cost.get());
            if view.admits(take) {
                queued = None;
            } else if queued.is_none() {
                queued = Some(self.queue(take, patience, &published, &view, now)?);
            }
            match self.spent.replace(spent, take.end()) {
                Ok(()) => {
                    return Ok(Place {
                        limiter: Arc::clone(self),
                        take,
                        runs_low: view.runs_low(take.end()),
                        queued,
                        kept: false,
                    });
                }
                Err(actual) => spent = actual,
            }
        }
    }

    /// Joins the queue for a place whose turn has not come.
    fn queue(
        self: &Arc<Self>,
        take: Take,
        patience: Patience,
        published: &Published,
        view: &View,
        now: Moment,
    ) -> Result<Queued, Refused> {
        let room = match patience {
            Patience::Never => return Err(self.refuse(take, published, view, now)),
            Patience::Until { deadline, queue } => {
                let reach = published.terms.reach(take, now, self.settings.burst);
                if reach.is_none_or(|moment| moment > deadline) {
                    return Err(self.refuse(take, published, view, now));
                }
                queue
            }
            Patience::Forever => u32::MAX,
        };
        Queued::join(self, room).ok_or_else(|| Refused {
            why: Why::QueueFull,
            ..self.refuse(take, published, view, now)
        })
    }

    /// The refusal of a place, counted.
    fn refuse(&self, take: Take, published: &Published, view: &View, now: Moment) -> Refused {
        self.refused.update(|total| total + take.cost);
        let reach = published.terms.reach(take, now, self.settings.burst);
        let refresh_at = Some(published.refresh_at).filter(|&moment| moment < Moment::NEVER);
        match (view.leased, view.flow) {
            (true, Flow::Shut) => Refused {
                why: Why::Blocked,
                until: refresh_at,
            },
            (true, Flow::At(_) | Flow::Open) => Refused {
                why: Why::Spent,
                until: reach.or(refresh_at),
            },
            // A lease may come with the next refresh, or the fallback lets the request pass before.
            (false, _) => Refused {
                why: Why::NoLease,
                until: reach.into_iter().chain(refresh_at).min(),
            },
        }
    }
}

/// A place in the order of a limiter's tokens. Dropping it gives it back; [`keep`](Self::keep) it to go.
#[derive(Debug)]
#[must_use = "a place that is dropped is given back"]
pub(crate) struct Place {
    limiter: Arc<Limiter>,
    take: Take,
    runs_low: bool,
    /// Set when its turn had not come yet.
    queued: Option<Queued>,
    kept: bool,
}

impl Place {
    pub(crate) fn limiter(&self) -> &Arc<Limiter> {
        &self.limiter
    }

    /// Whether its turn has not come yet.
    pub(crate) fn waits(&self) -> bool {
        self.queued.is_some()
    }

    /// Whether it leaves little of the lease, or had to wait.
    pub(crate) fn runs_low(&self) -> bool {
        self.runs_low
    }

    /// Goes: what it took stays taken, and counts as admitted.
    pub(crate) fn keep(mut self) {
        self.kept = true;
        let cost = self.take.cost;
        self.limiter.admitted.update(|total| total + cost);
    }

    /// Waits for its turn, until `deadline` at the latest, and looks again whenever the lease changes. Who waits goes in the order
    /// of the places.
    ///
    /// When nothing is known of when its turn comes, the end of `hope` ends the wait too.
    ///
    /// # Errors
    /// [`Refused`], and counted so, when its turn does not come in time.
    ///
    /// # Cancel safety
    /// Safe: the place stays what it is.
    pub(crate) async fn turn(
        &self,
        deadline: Moment,
        hope: impl Future<Output = ()>,
    ) -> Result<(), Refused> {
        let mut hope = pin!(hope);
        loop {
            let mut changed = pin!(self.limiter.bell().notified());
            // From here on no publication is missed.
            changed.as_mut().enable();
            let now = clock::now();
            let published = self.limiter.read();
            let view = self.limiter.view(&published, now);
            if view.admits(self.take) {
                return Ok(());
            }
            let burst = self.limiter.settings.burst;
            let reach = published.terms.reach(self.take, now, burst);
            match reach {
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
                            return Err(self.limiter.refuse(self.take, &published, &view, now));
                        }
                    }
                }
                Some(_) | None => {
                    return Err(self.limiter.refuse(self.take, &published, &view, now));
                }
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        let now = clock::now();
        let view = self.limiter.view(&self.limiter.read(), now);
        let returned = self.take.returnable(&view);
        self.limiter.spent.update(|spent| spent - returned);
    }
}

/// One of those who wait.
#[derive(Debug)]
struct Queued(Arc<Limiter>);

impl Queued {
    /// Joins those who wait, unless so many wait already.
    fn join(limiter: &Arc<Limiter>, room: u32) -> Option<Self> {
        let waiting = limiter.waiting.fetch_add(1, Ordering::Relaxed);
        let queued = Self(Arc::clone(limiter));
        (waiting < room).then_some(queued)
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits for the first lease of a resource, until `deadline` at the latest; not at all when so many wait already.
///
/// # Cancel safety
/// Safe: it takes nothing.
pub(crate) async fn first_lease(limiter: &Arc<Limiter>, deadline: Moment, room: u32) {
    let Some(_queued) = Queued::join(limiter, room) else {
        return;
    };
    loop {
        let mut changed = pin!(limiter.bell().notified());
        changed.as_mut().enable();
        let now = clock::now();
        if limiter.unleased_since().is_none() || now >= deadline {
            return;
        }
        tokio::select! {
            () = changed => {}
            () = tokio::time::sleep(deadline.since(now)) => {}
        }
    }
}
