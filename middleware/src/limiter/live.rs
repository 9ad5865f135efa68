//! A setting that may change while limiters live by it.

use std::{
    fmt,
    marker::PhantomData,
    sync::atomic::{AtomicU64, Ordering},
};

/// A small value that is read on the request path and seldom changed. All limiters of one limit share it, so that a change reaches
/// them all at once, however many keys there are.
pub(crate) struct Live<T>(AtomicU64, PhantomData<T>);

/// What fits into a word.
pub(crate) trait Word: Copy {
    fn into_word(self) -> u64;
    fn from_word(word: u64) -> Self;
}

impl<T: Word> Live<T> {
    pub(crate) fn get(&self) -> T {
        T::from_word(self.0.load(Ordering::Relaxed))
    }

    /// Nothing else is told by it: who reads the old value a moment longer has read it just before.
    pub(crate) fn set(&self, value: T) {
        self.0.store(value.into_word(), Ordering::Relaxed);
    }
}

impl<T: Word> From<T> for Live<T> {
    fn from(value: T) -> Self {
        Self(AtomicU64::new(value.into_word()), PhantomData)
    }
}

impl<T: Word + Default> Default for Live<T> {
    fn default() -> Self {
        T::default().into()
    }
}

/// The clone changes by itself.
impl<T: Word> Clone for Live<T> {
    fn clone(&self) -> Self {
        self.get().into()
    }
}

impl<T: Word + fmt::Debug> fmt::Debug for Live<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl Word for i32 {
    fn into_word(self) -> u64 {
        u64::from(self.cast_unsigned())
    }

    fn from_word(word: u64) -> Self {
        // It was an i32.
        u32::try_from(word).unwrap_or_default().cast_signed()
    }
}
