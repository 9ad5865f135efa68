//! What a limiter is told once, when its first user creates it.

use std::time::Duration;

use doorman_openapi::Capacity;

use super::{
    live::{Live, Word},
    priority::Priority,
};
use crate::Fallback;

/// The settings of a limiter: those of the limit that first used its resource, shared by all the limiters that it makes.
#[derive(Debug, Clone, Default)]
pub(crate) struct LimiterSettings {
    /// How much of the rate may be saved up.
    pub(crate) burst: Live<Burst>,
    /// What counts without a lease; a change counts from the next publication on.
    pub(crate) fallback: Live<Fallback>,
    /// The demand as stated; `None` when it is measured.
    pub(crate) wants: Option<Capacity>,
    pub(crate) priority: Priority,
}

impl LimiterSettings {
    /// A later limit, with `other` settings, spends a resource whose limiter lives by these. Says whether the two agree, so that the
    /// limiter can serve both. The priority of the later one counts as long as its settings exist.
    pub(crate) fn agree(&self, other: &Self) -> bool {
        self.priority.hear(&other.priority);
        self.are_like(other)
    }

    /// Takes these for the settings of a second rule of the same set, too, on the same resource. Says whether the two agree.
    pub(crate) fn stand_for(&self, other: &Self) -> bool {
        self.priority.raise(&other.priority);
        self.are_like(other)
    }

    fn are_like(&self, other: &Self) -> bool {
        let Self {
            burst,
            fallback,
            wants,
            // The highest counts, so that none is at odds with another.
            priority: _,
        } = self;
        burst.get() == other.burst.get()
            && fallback.get() == other.fallback.get()
            && *wants == other.wants
    }

    /// Changes these to those of a newer rule on the same resource: limiters that live by them follow.
    pub(crate) fn become_like(&self, other: &Self) {
        let Self {
            burst,
            fallback,
            // Nobody states it for a limit that may change.
            wants: _,
            priority,
        } = self;
        burst.set(other.burst.get());
        fallback.set(other.fallback.get());
        priority.become_like(&other.priority);
    }

    /// The rule is gone, though limiters made for it may still be there: its priority counts no more.
    pub(crate) fn withdraw(&self) {
        self.priority.withdraw();
    }
}

impl Word for Fallback {
    fn into_word(self) -> u64 {
        self as u64
    }

    fn from_word(word: u64) -> Self {
        const ALL: [Fallback; 3] = [Fallback::Safe, Fallback::Optimistic, Fallback::Pessimistic];
        let index = usize::try_from(word).unwrap_or_default();
        ALL.get(index).copied().unwrap_or_default()
    }
}

impl Word for Burst {
    fn into_word(self) -> u64 {
        self.0.to_bits()
    }

    fn from_word(word: u64) -> Self {
        Self(f64::from_bits(word))
    }
}

/// The size of a bucket, in seconds of its rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Burst(f64);

impl Burst {
    pub(crate) fn new(time: Duration) -> Self {
        Self(time.as_secs_f64())
    }

    /// The tokens that a bucket of this rate holds: at least one, so that a rate below one request a burst still admits.
    #[inline]
    pub(crate) fn tokens(self, rate: f64) -> f64 {
        (rate * self.0).max(1.0)
    }
}

impl Default for Burst {
    /// One second.
    fn default() -> Self {
        Self(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_what_it_was_set_to() {
        for fallback in [Fallback::Safe, Fallback::Optimistic, Fallback::Pessimistic] {
            assert_eq!(Live::from(fallback).get(), fallback);
        }
        for priority in [0, -1, i32::MIN, i32::MAX] {
            assert_eq!(Live::from(priority).get(), priority);
        }
        let burst = Live::from(Burst::default());
        let half = Burst::new(Duration::from_millis(500));
        burst.set(half);
        assert_eq!(burst.get(), half);
    }
}
