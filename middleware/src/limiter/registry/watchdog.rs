//! Detects a leasing worker that was built but never spawned.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
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
    /// When it was first missed.
    missed_since: OnceLock<Moment>,
    logged: AtomicBool,
}

impl WorkerWatchdog {
    pub(crate) fn new(status: Arc<Status>) -> Self {
        Self {
            status,
            missed_since: OnceLock::new(),
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
        let since = self.missed_since.get_or_init(|| now);
        if since.after(GRACE) <= now && !self.logged.swap(true, Ordering::Relaxed) {
            tracing::error!("leasing worker is not running; fallbacks apply; spawn `Worker::run`");
        }
    }
}
