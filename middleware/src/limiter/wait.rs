//! Waiting: for the turn of a place, and for the first lease of a resource.

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use doorman_openapi::Moment;

use super::{
    Limiter, Refused,
    bucket::{Take, View},
    published::Published,
    reservation::{Reservation, State},
};
use crate::clock;

impl Reservation {
    /// Waits for its turn, until its deadline at the latest, and looks again whenever the lease changes. Who waits goes in the
    /// order of the places.
    ///
    /// As long as nothing is known of when its turn comes, it waits only while `hope` lasts. If its turn comes too late under this lease,
    /// and a larger one may come, it waits for that first.
    ///
    /// # Errors
    /// [`Refused`], and counted so, when its turn does not come in time.
    ///
    /// # Cancel safety
    /// Safe: the place stays what it is.
    pub(crate) async fn turn(&mut self, hope: impl Future<Output = ()>) -> Result<(), Refused> {
        self.larger_lease().await?;
        let State::Queued {
            ticket, deadline, ..
        } = self.state
        else {
            return Ok(());
        };
        let mut hope = pin!(hope);
        let bell = self.limiter.line().bell();
        loop {
            let mut changed = pin!(bell.notified());
            // From here on no publication is missed.
            changed.as_mut().enable();
            let now = clock::now();
            // Those before it may have left meanwhile.
            let Some(take) = self.limiter.line().place(ticket) else {
                return Ok(());
            };
            let published = self.limiter.read();
            let view = self.limiter.view(&published, now);
            if view.admits(take) {
                return Ok(());
            }
            let burst = self.limiter.settings.burst.get();
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
                            return Err(self.turn_away(take, &published, &view, now));
                        }
                    }
                }
                Some(_) | None => {
                    return Err(self.turn_away(take, &published, &view, now));
                }
            }
        }
    }

    /// Waits for a larger lease, if that is what it hopes for, until it has a place or there is nothing to hope for any more.
    async fn larger_lease(&mut self) -> Result<(), Refused> {
        if !matches!(self.state, State::Hopes { .. }) {
            return Ok(());
        }
        let bell = self.limiter.line().bell();
        loop {
            let mut changed = pin!(bell.notified());
            // What was published before this is seen by the try after it.
            changed.as_mut().enable();
            let now = clock::now();
            self.take_if_hoping(now)?;
            let State::Hopes { until, .. } = self.state else {
                return Ok(());
            };
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep(until.since(now)) => {}
            }
        }
    }

    /// Its turn has not come.
    fn turn_away(
        &mut self,
        take: Take,
        published: &Published,
        view: &View,
        now: Moment,
    ) -> Refused {
        let refused = self.limiter.refuse(take, published, view, now);
        self.decided();
        refused
    }

    /// Waits for the first lease of its resource, until `at_most` after its limiter was made; not at all when so many
    /// wait already.
    ///
    /// # Cancel safety
    /// Safe: it takes nothing.
    pub(crate) async fn first_lease(&self, at_most: Duration, queue: u32) {
        let Some(_waits) = Waits::join(&self.limiter, queue) else {
            return;
        };
        let bell = self.limiter.line().bell();
        loop {
            let mut changed = pin!(bell.notified());
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
        (!terms.ever_leased()).then(|| self.limiter.made_at.after(at_most))
    }
}

/// One of those who wait for something of a limiter.
#[derive(Debug)]
pub(super) struct Waits(Arc<Limiter>);

impl Waits {
    /// Joins those who wait, unless so many wait already.
    pub(super) fn join(limiter: &Arc<Limiter>, room: u32) -> Option<Self> {
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
