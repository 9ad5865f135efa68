//! State of the lease worker, shared between the worker and its handles.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crossbeam_utils::atomic::AtomicCell;
use doorman_openapi::Moment;
use serde::Serialize;

/// How long a failure explains why something is missing.
const FAILURE_AGE: Duration = Duration::from_secs(60);

/// State of the worker of a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkerState {
    /// No worker is needed: the limits are [unlimited](crate::Doorman::unlimited) or
    /// [fixed](crate::Doorman::fixed).
    NotNeeded,
    /// The worker has not run yet. Until it does there are no leases, and fallbacks apply.
    NotStarted,
    /// The worker runs.
    Running,
    /// The worker has released its leases and ended.
    Stopped,
    /// The worker was dropped or panicked before its end. Leases expire, then fallbacks apply.
    Died,
}

#[derive(Debug)]
pub(crate) struct Status {
    state: AtomicCell<WorkerState>,
    last_failure: Mutex<Option<(Moment, Arc<str>)>>,
}

impl Status {
    pub(crate) fn new(state: WorkerState) -> Self {
        Self {
            state: AtomicCell::new(state),
            last_failure: Mutex::default(),
        }
    }

    pub(crate) fn set(&self, state: WorkerState) {
        self.state.store(state);
    }

    pub(crate) fn get(&self) -> WorkerState {
        self.state.load()
    }

    pub(crate) fn set_last_failure(&self, reason: &str, now: Moment) {
        *self.failure() = Some((now, reason.into()));
    }

    /// The last failed request to the control plane, unless it is long ago.
    pub(crate) fn last_failure(&self, now: Moment) -> Option<Arc<str>> {
        let (at, reason) = self.failure().clone()?;
        (now < at.after(FAILURE_AGE)).then_some(reason)
    }

    fn failure(&self) -> MutexGuard<'_, Option<(Moment, Arc<str>)>> {
        // Every statement leaves it consistent.
        self.last_failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
