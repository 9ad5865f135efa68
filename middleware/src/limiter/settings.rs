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

/// Two limits on one resource differ in burst, fallback or stated demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SettingsConflict;

impl LimiterSettings {
    /// Lets a later limit with `other` settings share a limiter that has these. The higher priority
    /// applies while `other` exists.
    ///
    /// # Errors
    /// [`SettingsConflict`] when anything else differs.
    pub(crate) fn attach(&self, other: &Self) -> Result<(), SettingsConflict> {
        self.priority.hear(&other.priority);
        self.compare(other)
    }

    /// Merges the settings of a second rule of the same set on the same resource into these.
    ///
    /// # Errors
    /// [`SettingsConflict`] when anything but the priority differs.
    pub(crate) fn merge(&self, other: &Self) -> Result<(), SettingsConflict> {
        self.priority.raise(&other.priority);
        self.compare(other)
    }

    fn compare(&self, other: &Self) -> Result<(), SettingsConflict> {
        let same = self.burst.get() == other.burst.get()
            && self.fallback.get() == other.fallback.get()
            && self.wants == other.wants;
        same.then_some(()).ok_or(SettingsConflict)
    }

    /// Takes over the settings of a newer rule on the same resource. Existing limiters follow.
    pub(crate) fn update(&self, other: &Self) {
        self.burst.set(other.burst.get());
        self.fallback.set(other.fallback.get());
        self.priority.become_like(&other.priority);
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
