//! What is due when: a heap of moments.

use std::{cmp::Reverse, collections::BinaryHeap};

use doorman_openapi::Moment;

/// Moments at which something has to be looked at again, earliest first.
///
/// Alarms are never taken back: whoever set one keeps the moment it waits for, and ignores an alarm that rings at another. A lease
/// that is renewed leaves its alarm where it is, and is looked at once more when the old end comes; so a renewal costs nothing here.
#[derive(Debug)]
pub(super) struct Alarms<K: Ord>(BinaryHeap<Reverse<(Moment, K)>>);

impl<K: Ord> Default for Alarms<K> {
    fn default() -> Self {
        Self(BinaryHeap::new())
    }
}

impl<K: Ord> Alarms<K> {
    /// Rings at `at`.
    pub(super) fn set(&mut self, at: Moment, key: K) {
        self.0.push(Reverse((at, key)));
    }

    /// The earliest alarm that is still to ring.
    pub(super) fn next(&self) -> Option<Moment> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes the earliest alarm that is due.
    pub(super) fn ring(&mut self, now: Moment) -> Option<(Moment, K)> {
        if self.next()? > now {
            return None;
        }
        self.0.pop().map(|Reverse(alarm)| alarm)
    }
}
