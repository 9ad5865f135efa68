//! Whether the worker is there: leases come only while it runs.

use std::sync::atomic::{AtomicU8, Ordering};

use serde::Serialize;

/// What became of the worker that a handle was built with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkerState {
    /// None is needed: the limits are [unlimited](crate::Doorman::unlimited) or [fixed](crate::Doorman::fixed).
    NotNeeded,
    /// It has not been run yet. Until it is, no lease comes, and the fallbacks count.
    NotStarted,
    /// It runs.
    Running,
    /// It gave its leases back and ended, as it was told.
    Stopped,
    /// It was dropped, or panicked, while it was needed. No lease comes any more, and the fallbacks count.
    Died,
}

/// Shared between the worker and the handles.
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
    fn tells_what_was_set() {
        for state in STATES {
            assert_eq!(Status::new(state).get(), state);
        }
    }
}
