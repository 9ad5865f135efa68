//! Decides when a connection is parked or closed: timeouts, eviction and graceful shutdown.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use doorman_openapi::Moment;
use tokio::time::{Sleep, sleep};

use super::activity::{Activity, HEAD_TIMEOUT, IDLE_TIMEOUT};
use crate::util::clock;

/// How long an idle connection stays open after the shutdown began. Its peer may be sending a
/// request, and learns of the shutdown by the response.
pub(super) const DRAIN_GRACE: Duration = Duration::from_secs(1);

/// Why a connection was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closed {
    /// By its peer, a timeout or the shutdown.
    Done,
    /// To free a slot for new connections.
    Evicted,
    /// For too many HTTP/2 control frames; `evicted` within [`LINGER`](super::stream::LINGER).
    Flooded { evicted: bool },
}

/// The next step for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// The shutdown begins, or a response of an HTTP/2 connection asks to close it: make the next
    /// response the last. Returned once for each.
    Drain,
    /// Close the connection if it is idle. Returned once, [`DRAIN_GRACE`] after the drain.
    CloseIdle,
    /// Take the connection out of hyper.
    Park,
    /// Close the connection now.
    Close(Closed),
}

#[derive(Debug)]
pub(super) struct Supervisor<'a, D> {
    activity: Arc<Activity>,
    timer: Pin<&'a mut Sleep>,
    timer_ends: Moment,
    shutdown: Shutdown<'a, D>,
}

#[derive(Debug)]
enum Shutdown<'a, D> {
    /// Begins when this future is ready.
    Awaited(Pin<&'a mut D>),
    /// Idle connections stay open until then.
    Grace(Moment),
    /// Idle connections are closed.
    Closing,
}

impl<'a, D: Future> Supervisor<'a, D> {
    /// `shutdown` is ready when the server shuts down; `timer` is reset.
    pub(super) fn new(
        activity: Arc<Activity>,
        mut timer: Pin<&'a mut Sleep>,
        shutdown: Pin<&'a mut D>,
    ) -> Self {
        timer.set(sleep(HEAD_TIMEOUT));
        Self {
            activity,
            timer,
            timer_ends: clock::now().after(HEAD_TIMEOUT),
            shutdown: Shutdown::Awaited(shutdown),
        }
    }

    /// The next action. Call it only when all available bytes have been read: a request that has
    /// arrived must not be closed as idle. `park_after` is the idle time after which the connection
    /// is parked, if it can be.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        park_after: Option<Duration>,
    ) -> Poll<Action> {
        self.activity.register(cx.waker());
        let now = clock::now();
        if let Some(action) = self.shutdown_action(cx, now) {
            return Poll::Ready(action);
        }
        if self.activity.take_close() {
            return Poll::Ready(Action::Drain);
        }
        let deadline = self.activity.deadline(now);
        if deadline <= now {
            return Poll::Ready(Action::Close(Closed::Done));
        }
        if self.activity.take_eviction() && self.is_evictable(now) {
            return Poll::Ready(Action::Close(Closed::Evicted));
        }
        let next = match (&self.shutdown, park_after) {
            (Shutdown::Awaited(_), Some(time)) => {
                let park_at = self.activity.park_at(time);
                if park_at <= now {
                    return Poll::Ready(Action::Park);
                }
                park_at
            }
            (Shutdown::Grace(end), _) => *end,
            (Shutdown::Awaited(_), None) | (Shutdown::Closing, _) => Moment::NEVER,
        };
        self.wait(cx, deadline.min(next), now);
        Poll::Pending
    }

    fn shutdown_action(&mut self, cx: &mut Context<'_>, now: Moment) -> Option<Action> {
        let (shutdown, action) = match &mut self.shutdown {
            Shutdown::Awaited(begins) => {
                if begins.as_mut().poll(cx).is_pending() {
                    return None;
                }
                self.activity.start_draining();
                (Shutdown::Grace(now.after(DRAIN_GRACE)), Action::Drain)
            }
            Shutdown::Grace(end) if *end <= now => (Shutdown::Closing, Action::CloseIdle),
            Shutdown::Grace(_) | Shutdown::Closing => return None,
        };
        self.shutdown = shutdown;
        Some(action)
    }

    fn is_evictable(&self, now: Moment) -> bool {
        self.activity.waiting_since() != Moment::NEVER
            || self.activity.slow_since(now) != Moment::NEVER
    }

    /// Sets the timer. It may end early, since most polls leave it as it is, but never late.
    fn wait(&mut self, cx: &mut Context<'_>, until: Moment, now: Moment) {
        if until < self.timer_ends {
            self.timer_ends = until;
            self.timer.set(sleep(until.since(now)));
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            self.timer_ends = until.min(now.after(IDLE_TIMEOUT));
            self.timer.set(sleep(self.timer_ends.since(now)));
        }
    }
}
