//! Numbers that many threads share without a lock.

use super::sync::{AtomicU32, AtomicU64, Ordering, fence, spin_loop};

/// A float that is changed in place.
#[derive(Debug, Default)]
pub(super) struct AtomicF64(AtomicU64);

impl AtomicF64 {
    #[inline]
    pub(super) fn load(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Acquire))
    }

    /// Replaces `current`; else says what is there instead.
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

    /// Changes the number by a pure function.
    pub(super) fn update(&self, change: impl Fn(f64) -> f64) {
        let mut current = self.load();
        while let Err(actual) = self.replace(current, change(current)) {
            current = actual;
        }
    }
}

/// Some words that are read together and written together, seldom: a sequence lock.
///
/// A reader never waits for another reader and takes no lock; it reads again when a writer was at work meanwhile.
#[derive(Debug)]
pub(super) struct SeqLock<const N: usize> {
    /// Odd while a writer is at work.
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
            // The words must have been read before the sequence is looked at again.
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == before {
                return words;
            }
            spin_loop();
        }
    }

    /// Replaces the words by a pure function of what they are; writers go one after the other.
    pub(super) fn update<T>(&self, change: impl FnOnce([u64; N]) -> ([u64; N], T)) -> T {
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
        // Whoever sees one of the new words must also see the odd sequence.
        fence(Ordering::Release);
        let (new, result) = change(
            self.words
                .each_ref()
                .map(|word| word.load(Ordering::Relaxed)),
        );
        for (word, new) in self.words.iter().zip(new) {
            word.store(new, Ordering::Relaxed);
        }
        self.sequence.store(even.wrapping_add(2), Ordering::Release);
        result
    }
}
