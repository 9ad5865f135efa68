//! Whether the leasing side must hear that a limiter runs low.

use super::sync::{AtomicU8, Ordering};

/// Why more should be leased; the later the more urgent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shortage {
    /// Less than half a bucket is left.
    RunningLow = 1,
    /// A request was refused, or waits.
    Denied = 2,
}

/// What it has been told, and has not looked at yet; 0 is nothing.
#[derive(Debug, Default)]
pub(super) struct DemandSignal(AtomicU8);

impl DemandSignal {
    /// Whether it must be told now: of each need at most once until it is [heard](Self::heard), and of none that is less than what was told.
    pub(super) fn tell(&self, need: Shortage) -> bool {
        let need = need as u8;
        self.0.load(Ordering::Relaxed) < need && self.0.fetch_max(need, Ordering::AcqRel) < need
    }

    /// The leasing side has looked.
    pub(super) fn clear(&self) {
        self.0.store(0, Ordering::Release);
    }
}
