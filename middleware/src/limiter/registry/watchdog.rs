//! Whether there is anybody who leases. A worker that is built and never run is silent by itself: the requests that need it notice.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use doorman_openapi::Moment;

use crate::{WorkerState, status::Status};

/// A service may take its first requests a little before it runs its worker.
pub(super) const GRACE: Duration = Duration::from_secs(3);

/// Sees, and says once, that the worker is missing.
#[derive(Debug)]
pub(crate) struct WorkerWatchdog {
    status: Arc<Status>,
    /// When it was missed first, in the nanoseconds of a [`Moment`]; 0 until then.
    missed_since: AtomicU64,
    said: AtomicBool,
}

impl WorkerWatchdog {
    pub(crate) fn new(status: Arc<Status>) -> Self {
        Self {
            status,
            missed_since: AtomicU64::new(0),
            said: AtomicBool::new(false),
        }
    }

    /// Somebody needs a lease. Where the worker has been run this is one look at a word that hardly ever changes.
    pub(super) fn needed(&self, now: Moment) {
        if self.status.get() == WorkerState::NotStarted {
            self.missed(now);
        }
    }

    #[cold]
    fn missed(&self, now: Moment) {
        let first = self.missed_since.compare_exchange(
            0,
            now.as_nanos(),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        let Err(since) = first else { return };
        if Moment::from_nanos(since).after(GRACE) <= now && !self.said.swap(true, Ordering::Relaxed)
        {
            tracing::error!(
                "requests need leases, and the leasing worker is not run: no lease comes, and the fallbacks count; `Worker::run` is a future to be spawned"
            );
        }
    }
}
