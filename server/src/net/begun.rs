//! When the things began that are under way, so that it is known how long the first of them has taken.

use std::sync::{Mutex, MutexGuard, PoisonError};

use doorman_openapi::Moment;

/// When each of the things began that are under way.
#[derive(Debug, Default)]
pub(super) struct Begun(Mutex<Vec<Moment>>);

impl Begun {
    /// One begins. Call [`Self::ends`] with the same moment when it has ended.
    pub(super) fn begins(&self, now: Moment) {
        self.all().push(now);
    }

    /// One has ended that began then.
    pub(super) fn ends(&self, since: Moment) {
        let mut all = self.all();
        // Of several that began at the same moment each stands for the others.
        if let Some(at) = all.iter().position(|it| *it == since) {
            all.swap_remove(at);
        }
    }

    /// How many are under way.
    pub(super) fn number(&self) -> usize {
        self.all().len()
    }

    /// Since when the one has been under way that began first; [`Moment::NEVER`] when none is.
    pub(super) fn first(&self) -> Moment {
        self.all().iter().min().copied().unwrap_or(Moment::NEVER)
    }

    fn all(&self) -> MutexGuard<'_, Vec<Moment>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
