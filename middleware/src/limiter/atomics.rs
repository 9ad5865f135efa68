//! Lock-free values shared between the request path and the leasing worker.

use super::sync::{AtomicU8, AtomicU64, Ordering, fence, spin_loop};

#[derive(Debug, Default)]
pub(super) struct AtomicF64(AtomicU64);

impl AtomicF64 {
    #[inline]
    pub(super) fn load(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Acquire))
    }

    /// For values that nobody else changes at the same time.
    pub(super) fn store(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
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

    #[inline]
    pub(super) fn update(&self, change: impl Fn(f64) -> f64) {
        let mut current = self.load();
        while let Err(actual) = self.replace(current, change(current)) {
            current = actual;
        }
    }
}

/// A word that guards others, which are read together often and written together seldom. Its
/// lowest bits are the sequence of a sequence lock: odd while a writer is active. The others are
/// the caller's, and are written with the guarded words. Readers take no lock; one that overlaps
/// with a writer reads again. It is fooled by 32,768 writes during one read.
#[derive(Debug, Default)]
pub(super) struct Guard(AtomicU64);

impl Guard {
    /// The bits of the sequence.
    pub(super) const SEQUENCE: u64 = 0xFFFF;

    /// The word, whether a writer is active or not.
    #[inline]
    pub(super) fn load(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Whether the words that were read since `seen` was loaded are consistent.
    #[inline]
    pub(super) fn is_unchanged(&self, seen: u64) -> bool {
        // Orders the reads of the words before the second read of the guard.
        fence(Ordering::Acquire);
        seen & 1 == 0 && self.0.load(Ordering::Relaxed) == seen
    }

    /// Reads the guarded words with `read`, which is called with the guard's word.
    #[inline]
    pub(super) fn read<T>(&self, mut read: impl FnMut(u64) -> T) -> T {
        loop {
            let seen = self.load();
            let words = read(seen);
            if self.is_unchanged(seen) {
                return words;
            }
            spin_loop();
        }
    }

    /// Writes the guarded words with `write`, which turns the guard's old word into the new one.
    /// Writers must not overlap.
    pub(super) fn write(&self, write: impl FnOnce(u64) -> u64) {
        let old = self.0.load(Ordering::Relaxed);
        let sequence =
            |word: u64, sequence: u64| (word & !Self::SEQUENCE) | (sequence & Self::SEQUENCE);
        self.0
            .store(sequence(old, old.wrapping_add(1)), Ordering::Relaxed);
        // A reader that sees one of the new words also sees the odd sequence.
        fence(Ordering::Release);
        let new = write(old);
        self.0
            .store(sequence(new, old.wrapping_add(2)), Ordering::Release);
    }
}

/// Why a limiter needs more capacity, by increasing urgency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shortage {
    /// Less than three quarters of the bucket are left.
    RunningLow = 1,
    /// A request was rejected, or waits.
    Denied = 2,
    /// The same of a request of which others have a lower priority.
    HigherDenied = 3,
}

/// The most urgent [`Shortage`] reported to the worker since it last looked, 0 for none; whether
/// units of a gauge were given back since it last looked at those; and whether there was an
/// overload since it last reported, if it is to hear of the first one.
#[derive(Debug, Default)]
pub(super) struct DemandSignal(AtomicU8);

/// The bits of the shortage.
const SHORTAGE: u8 = 0x03;
/// The bit of returned units.
const RETURNED: u8 = 0x80;
/// The bit of an overload.
const OVERLOADED: u8 = 0x40;
/// The worker is to hear of overloads.
const HEARS_OVERLOADS: u8 = 0x20;

impl DemandSignal {
    /// Raises the signal. Returns whether the worker must be notified: once for each increase.
    pub(super) fn raise(&self, shortage: Shortage) -> bool {
        let level = shortage as u8;
        let raised = |signal: u8| {
            let is_higher = signal & SHORTAGE < level;
            is_higher.then_some((signal & !SHORTAGE) | level)
        };
        raised(self.0.load(Ordering::Relaxed)).is_some()
            && self
                .0
                .fetch_update(Ordering::AcqRel, Ordering::Relaxed, raised)
                .is_ok()
    }

    /// Clears the shortage.
    pub(super) fn clear(&self) {
        self.0.fetch_and(!SHORTAGE, Ordering::AcqRel);
    }

    /// Signals that units were given back. Returns whether the worker must be notified: if not, it
    /// has yet to clear the signal, and sees these units then. A plain load could see the signal
    /// from before it was cleared.
    pub(super) fn raise_returned(&self) -> bool {
        self.0.fetch_or(RETURNED, Ordering::AcqRel) & RETURNED == 0
    }

    pub(super) fn clear_returned(&self) {
        self.0.fetch_and(!RETURNED, Ordering::AcqRel);
    }

    /// Signals an overload that was just counted. Returns whether the worker must be notified.
    pub(super) fn raise_overloaded(&self) -> bool {
        let hears = self.0.load(Ordering::Relaxed) & HEARS_OVERLOADS != 0;
        hears && self.0.fetch_or(OVERLOADED, Ordering::AcqRel) & OVERLOADED == 0
    }

    /// Before the worker reads what it reports.
    pub(super) fn clear_overloaded(&self) {
        self.0.fetch_and(!OVERLOADED, Ordering::AcqRel);
    }

    pub(super) fn set_hears_overloads(&self, hears: bool) {
        if hears {
            self.0.fetch_or(HEARS_OVERLOADS, Ordering::AcqRel);
        } else {
            self.0.fetch_and(!HEARS_OVERLOADS, Ordering::AcqRel);
        }
    }

    /// Starts anew, for another resource.
    pub(super) fn begin(&self) {
        self.0.store(0, Ordering::Release);
    }
}
