//! What became of handshakes.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// What became of handshakes; clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Handshakes(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    completed: AtomicU64,
    failed: AtomicU64,
    abandoned: AtomicU64,
}

/// How many ended in each way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Outcomes {
    /// With a connection.
    pub(crate) completed: u64,
    /// One side refused the other, or the connection broke off.
    pub(crate) failed: u64,
    /// Time was up, others needed the place, or the server stopped.
    pub(crate) abandoned: u64,
}

impl Handshakes {
    /// One begins. It counts as abandoned when the guard is dropped.
    pub(crate) fn begins(&self) -> UnderWay {
        UnderWay(Some(Arc::clone(&self.0)))
    }

    pub(crate) fn outcomes(&self) -> Outcomes {
        let Counts {
            completed,
            failed,
            abandoned,
        } = &*self.0;
        Outcomes {
            completed: completed.load(Relaxed),
            failed: failed.load(Relaxed),
            abandoned: abandoned.load(Relaxed),
        }
    }
}

/// A handshake that is under way.
#[derive(Debug)]
pub(crate) struct UnderWay(Option<Arc<Counts>>);

impl UnderWay {
    /// It has led to a connection.
    pub(crate) fn completes(mut self) {
        if let Some(counts) = self.0.take() {
            counts.completed.fetch_add(1, Relaxed);
        }
    }

    /// It leads to none.
    pub(crate) fn fails(mut self) {
        if let Some(counts) = self.0.take() {
            counts.failed.fetch_add(1, Relaxed);
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(counts) = &self.0 {
            counts.abandoned.fetch_add(1, Relaxed);
        }
    }
}
