//! Lock-free values shared between the request path and the leasing worker.

use super::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence, spin_loop};

#[derive(Debug, Default)]
pub(super) struct AtomicF64(AtomicU64);

impl AtomicF64 {
    #[inline]
    pub(super) fn load(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Acquire))
    }

    /// Replaces `current`, or returns the actual value. May fail spuriously.
    #[inline]
    pub(super) fn replace(&self, current: f64, new: f64) -> Result<(), f64> {
        self.0
            .compare_exchange_weak(
                current.to_bits(),
                new.to_bits(),
                Ordering::AcqRel,
                Ordering::Acquire,
            )
            .map(drop)
            .map_err(f64::from_bits)
    }

    pub(super) fn update(&self, change: impl Fn(f64) -> f64) {
        let mut current = self.load();
        while let Err(actual) = self.replace(current, change(current)) {
            current = actual;
        }
    }
}

/// A sequence lock: words that are read together often and written together seldom. Readers take no
/// lock; one that overlaps with a writer reads again.
#[derive(Debug)]
pub(super) struct SeqLock<const N: usize> {
    /// Odd while a writer is active.
    sequence: AtomicU32,
    words: [AtomicU64; N],
}

impl<const N: usize> SeqLock<N> {
    pub(super) fn new(words: [u64; N]) -> Self {
        Self {
            sequence: AtomicU32::new(0),
            words: words.map(AtomicU64::new),
        }
    }

    #[inline]
    pub(super) fn read(&self) -> [u64; N] {
        loop {
            let before = self.sequence.load(Ordering::Acquire);
            let words = self
                .words
                .each_ref()
                .map(|word| word.load(Ordering::Relaxed));
            // Orders the reads of the words before the second read of the sequence.
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == before {
                return words;
            }
            spin_loop();
        }
    }

    /// Replaces the words by a function of the current ones. Writers are serialized.
    pub(super) fn update(&self, change: impl FnOnce([u64; N]) -> [u64; N]) {
        let mut even = self.sequence.load(Ordering::Relaxed) & !1;
        while let Err(actual) = self.sequence.compare_exchange_weak(
            even,
            even.wrapping_add(1),
            Ordering::Acquire,
            Ordering::Relaxed,
        ) {
            even = actual & !1;
            spin_loop();
        }
        // A reader that sees one of the new words also sees the odd sequence.
        fence(Ordering::Release);
        let new = change(
            self.words
                .each_ref()
                .map(|word| word.load(Ordering::Relaxed)),
        );
        for (word, new) in self.words.iter().zip(new) {
            word.store(new, Ordering::Relaxed);
        }
        self.sequence.store(even.wrapping_add(2), Ordering::Release);
    }
}

/// Why a limiter needs more capacity, by increasing urgency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shortage {
    /// Less than three quarters of the bucket are left.
    RunningLow = 1,
    /// A request was rejected, or waits.
    Denied = 2,
}

/// The most urgent [`Shortage`] reported to the worker since it last looked; 0 is none.
#[derive(Debug, Default)]
pub(super) struct DemandSignal(AtomicU8);

impl DemandSignal {
    /// Raises the signal. Returns whether the worker must be notified: once for each increase.
    pub(super) fn raise(&self, shortage: Shortage) -> bool {
        let level = shortage as u8;
        self.0.load(Ordering::Relaxed) < level && self.0.fetch_max(level, Ordering::AcqRel) < level
    }

    pub(super) fn clear(&self) {
        self.0.store(0, Ordering::Release);
    }
}
