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
use crate::clock;

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
    /// The server stops: answer what is under way, and end. This is said once.
    Drain,
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
    /// Ready when the server stops; `None` when that is known.
    drain: Option<Pin<&'a mut D>>,
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
            drain: Some(drain),
        }
    }

    /// What was waited for has come, and something else is due from now on.
    pub(super) fn begins_anew(&mut self) {
        self.patience = Patience::new(clock::now());
    }

    /// What is to happen, as things stand now. Ask after everything that has come in has been looked at: it is under way when the drain
    /// begins, and when others need room. `rests_after` says after how long without a request the connection rests, if it can.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        rests_after: Option<Duration>,
    ) -> Poll<Verdict> {
        self.activity.calls(cx.waker());
        if let Some(drain) = &mut self.drain
            && drain.as_mut().poll(cx).is_ready()
        {
            self.drain = None;
            return Poll::Ready(Verdict::Drain);
        }
        let now = clock::now();
        let until = self.patience.until(&self.activity, now);
        if until <= now {
            return Poll::Ready(Verdict::End(Ended::Over));
        }
        if self.activity.was_asked_to_give_way() && self.may_give_way(now) {
            return Poll::Ready(Verdict::End(Ended::GaveWay));
        }
        let rests_at = match rests_after {
            Some(after) if self.drain.is_some() => self.patience.rests_at(&self.activity, after),
            _ => Moment::NEVER,
        };
        if rests_at <= now {
            return Poll::Ready(Verdict::Rest);
        }
        self.wait(cx, until.min(rests_at), now);
        Poll::Pending
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
