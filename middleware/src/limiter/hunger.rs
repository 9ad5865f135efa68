//! Whether the leasing side must hear that a limiter runs low.

use super::sync::{AtomicBool, Ordering};

/// Whether it has been told, and has not looked yet.
#[derive(Debug, Default)]
pub(super) struct Hunger(AtomicBool);

impl Hunger {
    /// Whether it must be told now: at most once until it is [heard](Self::heard).
    pub(super) fn tell(&self) -> bool {
        !self.0.load(Ordering::Relaxed) && !self.0.swap(true, Ordering::AcqRel)
    }

    /// The leasing side has looked.
    pub(super) fn heard(&self) {
        self.0.store(false, Ordering::Release);
    }
}
