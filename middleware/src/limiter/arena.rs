//! Values of one type that never move and are never freed, found by number without a lock.
//!
//! A reader needs no guard. What it finds may have become the value of another key meanwhile, which
//! the value itself must tell.

use std::{fmt, iter::repeat_with, sync::OnceLock};

/// The first values are allocated so many at a time, and so often.
const SMALL: usize = 256;
const SMALL_CHUNKS: usize = 256;
/// Further values are allocated so many at a time, and so often.
const LARGE: usize = 1 << 14;
const LARGE_CHUNKS: usize = 1 << 14;

type Chunk<T> = OnceLock<Box<[T]>>;

pub(super) struct Arena<T> {
    small: Box<[Chunk<T>]>,
    large: OnceLock<Box<[Chunk<T>]>>,
    /// In place of values that were never used.
    spare: T,
}

impl<T: Default> Default for Arena<T> {
    fn default() -> Self {
        Self {
            small: all(SMALL_CHUNKS),
            large: OnceLock::new(),
            spare: T::default(),
        }
    }
}

impl<T: Default> Arena<T> {
    /// The value with this number; `None` if it was never [used](Self::get_or_allocate).
    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&T> {
        let number = index(number);
        if let Some(chunk) = self.small.get(number / SMALL) {
            return chunk.get()?.get(number % SMALL);
        }
        let number = number.checked_sub(SMALL * SMALL_CHUNKS)?;
        self.large
            .get()?
            .get(number / LARGE)?
            .get()?
            .get(number % LARGE)
    }

    /// The value with this number. That of a number that was never used is a default one.
    #[inline]
    pub(super) fn at(&self, number: u32) -> &T {
        self.get(number).unwrap_or(&self.spare)
    }

    /// The value with this number, a default one at first. `None` beyond some 260 million.
    pub(super) fn get_or_allocate(&self, number: u32) -> Option<&T> {
        let number = index(number);
        if let Some(chunk) = self.small.get(number / SMALL) {
            return chunk.get_or_init(|| all(SMALL)).get(number % SMALL);
        }
        let number = number.checked_sub(SMALL * SMALL_CHUNKS)?;
        let large = self.large.get_or_init(|| all(LARGE_CHUNKS));
        let chunk = large.get(number / LARGE)?;
        chunk.get_or_init(|| all(LARGE)).get(number % LARGE)
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
