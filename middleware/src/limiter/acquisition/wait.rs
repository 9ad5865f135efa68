//! The loop in which a request waits at a limiter, whatever it waits for.

use std::{
    future::{Future, pending},
    ops::ControlFlow,
    pin::pin,
    sync::Arc,
};

use doorman_openapi::Moment;

use crate::limiter::{
    Limiter, LimiterHandle, View, bucket::TokenRange, sync::Notify, wait_queue::WaitQueue,
};

/// Whether a request may wait.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WaitLimit {
    NoWait,
    /// Until a deadline, if at most `queue` others wait.
    Until {
        deadline: Moment,
        queue: u32,
    },
    /// The same, but only for a larger lease that comes on request.
    LargerLease {
        deadline: Moment,
        queue: u32,
    },
}

impl WaitLimit {
    pub(crate) const UNBOUNDED: Self = Self::Until {
        deadline: Moment::NEVER,
        queue: u32::MAX,
    };
}

/// When to check again, unless the lease changes before.
#[derive(Debug)]
pub(super) struct Pause {
    pub(super) until: Moment,
    /// Notifies when others give back what the request waits for.
    pub(super) turn: Option<Arc<Notify>>,
    /// Whether only another lease can end the wait.
    pub(super) needs_lease: bool,
}

impl Pause {
    pub(super) fn until(until: Moment) -> Self {
        Self {
            until,
            turn: None,
            needs_lease: until == Moment::NEVER,
        }
    }

    /// Until a range is available or, with a `turn`, others give back what it needs.
    pub(super) fn before(
        range: TokenRange,
        at: &View,
        turn: Option<Arc<Notify>>,
        now: Moment,
    ) -> Self {
        let reach = at.reach(range, now);
        let later = reach.filter(|&moment| turn.is_none() || now < moment);
        Self {
            until: later.unwrap_or(Moment::NEVER),
            turn,
            needs_lease: reach.is_none() && !at.awaits_returns(range.cost),
        }
    }
}

/// Calls `check` whenever the lease changes, and after each pause. `None` if `no_lease_can_come`
/// resolves while only a lease can end the wait. Cancel safe if `check` is called any number of
/// times.
pub(super) async fn wait<T>(
    limiter: Limiter<'_>,
    no_lease_can_come: impl Future<Output = ()>,
    mut check: impl FnMut(Moment) -> ControlFlow<T, Pause>,
) -> Option<T> {
    let changes = limiter.changes();
    let mut no_lease_can_come = pin!(no_lease_can_come);
    loop {
        let mut changed = pin!(changes.notified());
        // No publication after this is missed.
        changed.as_mut().enable();
        let now = limiter.now();
        let pause = match check(now) {
            ControlFlow::Break(outcome) => return Some(outcome),
            ControlFlow::Continue(pause) => pause,
        };
        // A lease may end without being renewed, or a publication.
        let until = limiter
            .lease_end(now)
            .map_or(pause.until, |end| end.min(pause.until));
        let turn = async {
            match &pause.turn {
                Some(turn) => turn.notified().await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            () = changed => {}
            () = turn => {}
            () = tokio::time::sleep(until.since(now)), if until < Moment::NEVER => {}
            () = &mut no_lease_can_come, if pause.needs_lease => return None,
        }
    }
}

/// One of the requests that may wait at a limiter, which is neither forgotten nor put to sleep
/// meanwhile.
#[derive(Debug)]
pub(super) struct WaitSlot(LimiterHandle);

impl WaitSlot {
    /// In the locked queue of the limiter. `None` when `max` requests wait already.
    pub(super) fn acquire(
        limiter: &LimiterHandle,
        queue: &mut WaitQueue,
        max: u32,
        priority: i32,
    ) -> Option<Self> {
        let acquired = queue.acquire_slot(max, priority);
        acquired.then(|| Self(limiter.clone()))
    }
}

impl Drop for WaitSlot {
    fn drop(&mut self) {
        self.0.get().queue().release_slot();
    }
}
