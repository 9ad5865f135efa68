//! What ends a wait: the time, the server's stop, or others who need room.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use doorman_openapi::Moment;
use tokio::time::{Sleep, sleep};

use super::{
    activity::Activity,
    patience::{HEAD_TIMEOUT, IDLE_TIMEOUT, Patience, SLOW},
};
use crate::util::clock;

/// How long a connection on which nothing is under way stays open when the server stops. Its peer may be sending a request at this moment,
/// not knowing of the stop; one that is in use sends the next within this time, and learns of the stop by the answer.
pub(super) const GRACE: Duration = Duration::from_secs(1);

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// By itself: its peer closed it, our patience was over, or what was under way when the server stopped was answered.
    Over,
    /// To make room for others.
    GaveWay,
}

/// What is to happen with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The server stops: answer what is under way and what still comes, and let it be the last. This is said once.
    Drain,
    /// A peer that has asked nothing since is not waited for any longer. This is said once, [`GRACE`] after the drain.
    Leave,
    /// Nobody has used it for a while.
    Rest,
    /// End it now.
    End(Ended),
}

/// Watches over one connection, in whatever state it is.
#[derive(Debug)]
pub(super) struct Keeper<'a, D> {
    activity: Arc<Activity>,
    patience: Patience,
    rings: Moment,
    timer: Pin<&'a mut Sleep>,
    stop: Stop<'a, D>,
}

/// What is known of the server's stop.
#[derive(Debug)]
enum Stop<'a, D> {
    /// Nothing, until this is ready.
    Awaited(Pin<&'a mut D>),
    /// It stops, and who is idle is waited for until then.
    Grace(Moment),
    /// Nobody who is idle is waited for.
    Over,
}

impl<'a, D: Future> Keeper<'a, D> {
    /// Begins with a new connection. What the timer is set to does not matter.
    pub(super) fn new(
        activity: Arc<Activity>,
        mut timer: Pin<&'a mut Sleep>,
        drain: Pin<&'a mut D>,
    ) -> Self {
        let now = clock::now();
        timer.set(sleep(HEAD_TIMEOUT));
        Self {
            activity,
            patience: Patience::new(now),
            rings: now.after(HEAD_TIMEOUT),
            timer,
            stop: Stop::Awaited(drain),
        }
    }

    /// What was waited for has come, and something else is due from now on.
    pub(super) fn begins_anew(&mut self) {
        self.patience = Patience::new(clock::now());
    }

    /// What is to happen, as things stand now. Ask only when everything that has come in has been read, since a request that has arrived
    /// counts as under way when the drain begins, and when others need room. `rests_after` says after how long without a request the
    /// connection rests, if it can.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        rests_after: Option<Duration>,
    ) -> Poll<Verdict> {
        self.activity.calls(cx.waker());
        let now = clock::now();
        if let Some(verdict) = self.of_the_stop(cx, now) {
            return Poll::Ready(verdict);
        }
        let until = self.patience.until(&self.activity, now);
        if until <= now {
            return Poll::Ready(Verdict::End(Ended::Over));
        }
        if self.activity.was_asked_to_give_way() && self.may_give_way(now) {
            return Poll::Ready(Verdict::End(Ended::GaveWay));
        }
        let (rests_at, leaves_at) = match (&self.stop, rests_after) {
            (Stop::Awaited(_), Some(after)) => {
                let rests_at = self.patience.rests_at(&self.activity, after);
                (rests_at, Moment::NEVER)
            }
            (Stop::Grace(over), _) => (Moment::NEVER, *over),
            (Stop::Awaited(_), None) | (Stop::Over, _) => (Moment::NEVER, Moment::NEVER),
        };
        if rests_at <= now {
            return Poll::Ready(Verdict::Rest);
        }
        self.wait(cx, until.min(rests_at).min(leaves_at), now);
        Poll::Pending
    }

    /// What is to be said of the server's stop, if anything.
    fn of_the_stop(&mut self, cx: &mut Context<'_>, now: Moment) -> Option<Verdict> {
        let (stop, verdict) = match &mut self.stop {
            Stop::Awaited(drain) => {
                if drain.as_mut().poll(cx).is_pending() {
                    return None;
                }
                self.activity.drains();
                (Stop::Grace(now.after(GRACE)), Verdict::Drain)
            }
            Stop::Grace(over) if *over <= now => (Stop::Over, Verdict::Leave),
            Stop::Grace(_) | Stop::Over => return None,
        };
        self.stop = stop;
        Some(verdict)
    }

    fn may_give_way(&self, now: Moment) -> bool {
        self.activity.waits_since() != Moment::NEVER
            || self.activity.lags_since().after(SLOW) <= now
    }

    /// Sets the timer. It may ring too early, since it is not set anew each time that something moves, but never too late.
    fn wait(&mut self, cx: &mut Context<'_>, until: Moment, now: Moment) {
        if until < self.rings {
            self.rings = until;
            self.timer.set(sleep(until.since(now)));
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            self.rings = until.min(now.after(IDLE_TIMEOUT));
            self.timer.set(sleep(self.rings.since(now)));
        }
    }
}
