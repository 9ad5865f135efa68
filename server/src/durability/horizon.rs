//! Until when a successor will know that leases last: no holder is told of a lease that ends later.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use doorman_openapi::{Capacity, Moment};
use tokio::{
    sync::{Notify, watch},
    time::{Duration, timeout},
};

use crate::ledger::Grant;

/// How far ahead of what is needed the bound is written.
const AHEAD: Duration = Duration::from_secs(3);
/// It is written anew when less than this is left of that.
const LEAST_AHEAD: Duration = Duration::from_millis(1500);
/// How long an answer may wait for the disk; then the holder is told of a shorter lease, or of none.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is needed, and what is safe on the disk. Requests raise the first, a task of its own the second.
#[derive(Debug)]
pub(crate) struct Horizon {
    /// The latest end of all leases that were granted, in nanoseconds on the clock.
    needed: AtomicU64,
    /// The longest that any of them was booked for, in nanoseconds.
    longest: AtomicU64,
    safe: watch::Sender<Moment>,
    hurry: Notify,
    written: AtomicU64,
    failed: AtomicU64,
}

/// How often the bound was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Writes {
    pub(crate) written: u64,
    pub(crate) failed: u64,
}

impl Horizon {
    /// What is on the disk, and the longest that any lease before was booked for. Nothing more is needed yet.
    pub(crate) fn new(safe: Moment, longest: u64) -> Self {
        Self {
            needed: AtomicU64::new(0),
            longest: AtomicU64::new(longest),
            safe: watch::Sender::new(safe),
            hurry: Notify::new(),
            written: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// What the holders of these leases, granted at `handled`, may be told: all of it as soon as a successor will know of it.
    ///
    /// A renewal finds that written already. Only a lease that ends later than all before it by more than some seconds, such as the
    /// first one, waits for the disk, for at most a second.
    ///
    /// # Cancel safety
    /// When it is dropped, nobody is told.
    pub(crate) async fn secure(&self, granted: Vec<Grant>, handled: Moment) -> Vec<Grant> {
        let ends = granted
            .iter()
            .filter(|granted| granted.capacity > Capacity::ZERO)
            .map(|granted| granted.booked_until)
            .max();
        let Some(ends) = ends else {
            return granted;
        };
        let length = ends.as_nanos().saturating_sub(handled.as_nanos());
        self.longest.fetch_max(length, Relaxed);
        self.needed.fetch_max(ends.as_nanos(), Relaxed);
        if ends <= self.safe() {
            return granted;
        }
        self.hurry.notify_one();
        let mut safe = self.safe.subscribe();
        // Whether it came in time or not, what is safe now counts.
        drop(timeout(PATIENCE, safe.wait_for(|safe| ends <= *safe)).await);
        let safe = self.safe();
        granted
            .into_iter()
            .map(|granted| granted.capped_at(safe, handled))
            .collect()
    }

    /// What is safe on the disk: nobody is told of a lease that ends later.
    pub(crate) fn safe(&self) -> Moment {
        *self.safe.borrow()
    }

    /// What should be written now, and the longest lease with it; `None` while what is written will do.
    pub(super) fn due(&self) -> Option<(Moment, u64)> {
        let needed = Moment::from_nanos(self.needed.load(Relaxed));
        (self.safe() < needed.after(LEAST_AHEAD))
            .then(|| (needed.after(AHEAD), self.longest.load(Relaxed)))
    }

    /// So much is safe on the disk.
    pub(super) fn is_safe(&self, bound: Moment) {
        self.written.fetch_add(1, Relaxed);
        self.safe.send_replace(bound);
    }

    /// The disk did not take what was written.
    pub(super) fn is_not_safe(&self) {
        self.failed.fetch_add(1, Relaxed);
    }

    /// How often the bound was written since the start.
    pub(crate) fn writes(&self) -> Writes {
        Writes {
            written: self.written.load(Relaxed),
            failed: self.failed.load(Relaxed),
        }
    }

    /// Ready when somebody waits.
    pub(super) async fn hurried(&self) {
        self.hurry.notified().await;
    }
}

#[cfg(test)]
mod tests;
