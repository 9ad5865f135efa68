//! State of the lease worker, shared between the worker and its handles.

use std::sync::atomic::{AtomicU8, Ordering};

use serde::Serialize;

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
pub(crate) struct Status(AtomicU8);

const STATES: [WorkerState; 5] = [
    WorkerState::NotNeeded,
    WorkerState::NotStarted,
    WorkerState::Running,
    WorkerState::Stopped,
    WorkerState::Died,
];

impl Status {
    pub(crate) fn new(state: WorkerState) -> Self {
        Self(AtomicU8::new(state as u8))
    }

    pub(crate) fn set(&self, state: WorkerState) {
        self.0.store(state as u8, Ordering::Release);
    }

    pub(crate) fn get(&self) -> WorkerState {
        let index = usize::from(self.0.load(Ordering::Acquire));
        STATES.get(index).copied().unwrap_or(WorkerState::Died)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_round_trips() {
        for state in STATES {
            assert_eq!(Status::new(state).get(), state);
        }
    }
}
