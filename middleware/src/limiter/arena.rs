//! Values of one type that never move and are never freed, found by number without a lock.
//!
//! A reader needs no guard. Meanwhile the value may have become that of another key, which the
//! value itself must tell.

use std::{array::from_fn, fmt, iter::repeat_with, sync::OnceLock};

/// Near values in a chunk.
const NEAR: usize = 256;
/// The fewest and the most chunks of near values.
const MIN_CHUNKS: usize = 256;
const MAX_CHUNKS: usize = 1 << 13;
/// Further values in a chunk, and the most of their chunks.
const FAR: usize = 1 << 14;
const FAR_CHUNKS: usize = 1 << 14;

type NearChunk<T> = OnceLock<Box<[T; NEAR]>>;
type FarChunk<T> = OnceLock<Box<[T]>>;

pub(super) struct Arena<T> {
    /// The first values. Where most values are near, the processor predicts the way to them.
    near: Box<[NearChunk<T>]>,
    far: OnceLock<Box<[FarChunk<T>]>>,
    /// In place of values that were never used.
    spare: T,
}

impl<T: Default> Default for Arena<T> {
    fn default() -> Self {
        Self::with_near(0)
    }
}

impl<T: Default> Arena<T> {
    /// An arena for about so many values, and room for more.
    pub(super) fn with_near(values: usize) -> Self {
        let chunks = values.div_ceil(NEAR).clamp(MIN_CHUNKS, MAX_CHUNKS);
        Self {
            near: repeat_with(OnceLock::new).take(chunks).collect(),
            far: OnceLock::new(),
            spare: T::default(),
        }
    }

    /// The value with this number; `None` if it was never [used](Self::get_or_allocate).
    #[expect(
        clippy::inline_always,
        reason = "measured: the state stays in registers"
    )]
    #[inline(always)]
    pub(super) fn get(&self, number: u32) -> Option<&T> {
        let number = index(number);
        match self.near.get(number / NEAR) {
            Some(chunk) => chunk.get()?.get(number % NEAR),
            None => self.get_far(number),
        }
    }

    #[cold]
    #[inline(never)]
    fn get_far(&self, number: usize) -> Option<&T> {
        let number = number.checked_sub(self.near.len() * NEAR)?;
        self.far.get()?.get(number / FAR)?.get()?.get(number % FAR)
    }

    /// The value with this number. That of a number that was never used is a default one.
    #[inline]
    pub(super) fn at(&self, number: u32) -> &T {
        self.get(number).unwrap_or(&self.spare)
    }

    /// The value with this number, a default one at first. `None` beyond some 260 million.
    pub(super) fn get_or_allocate(&self, number: u32) -> Option<&T> {
        let number = index(number);
        if let Some(chunk) = self.near.get(number / NEAR) {
            let values = chunk.get_or_init(|| Box::new(from_fn(|_| T::default())));
            return values.get(number % NEAR);
        }
        let number = number.checked_sub(self.near.len() * NEAR)?;
        let far = self.far.get_or_init(|| all(FAR_CHUNKS));
        let chunk = far.get(number / FAR)?;
        chunk.get_or_init(|| all(FAR)).get(number % FAR)
    }
}

impl<T> fmt::Debug for Arena<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").finish_non_exhaustive()
    }
}

fn all<T: Default>(values: usize) -> Box<[T]> {
    repeat_with(T::default).take(values).collect()
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn values_stay_where_they_are() {
        let arena = Arena::<AtomicU32>::default();
        let numbers = [0, 1, 255, 256, 65_535, 65_536, 65_537, 81_920, 1_000_000];
        for number in numbers {
            assert!(arena.get(number + 1_000_000).is_none());
            let value = arena.get_or_allocate(number).unwrap();
            value.store(number, Ordering::Relaxed);
        }
        for number in numbers {
            assert_eq!(arena.at(number).load(Ordering::Relaxed), number);
        }
        assert!(arena.get_or_allocate(u32::MAX).is_none());
        assert_eq!(arena.at(u32::MAX).load(Ordering::Relaxed), 0);
    }
}
