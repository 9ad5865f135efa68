//! Detects a leasing worker that was built but never spawned.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use doorman_openapi::Moment;

use crate::status::{Status, WorkerState};

/// A service may receive requests shortly before it spawns its worker.
pub(super) const GRACE: Duration = Duration::from_secs(3);

/// Logs once that the worker is missing.
#[derive(Debug)]
pub(crate) struct WorkerWatchdog {
    status: Arc<Status>,
    /// When it was first missed, in nanoseconds; 0 until then.
    missed_since: AtomicU64,
    logged: AtomicBool,
}

impl WorkerWatchdog {
    pub(crate) fn new(status: Arc<Status>) -> Self {
        Self {
            status,
            missed_since: AtomicU64::new(0),
            logged: AtomicBool::new(false),
        }
    }

    /// A request needs a lease. Costs one load while the worker runs.
    pub(super) fn check(&self, now: Moment) {
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
        if Moment::from_nanos(since).after(GRACE) <= now
            && !self.logged.swap(true, Ordering::Relaxed)
        {
            tracing::error!("leasing worker is not running; fallbacks apply; spawn `Worker::run`");
        }
    }
}
