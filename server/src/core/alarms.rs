//! What is due when: a heap of moments.

use std::{cmp::Reverse, collections::BinaryHeap};

use doorman_openapi::Moment;

/// Moments at which something has to be looked at again, earliest first.
///
/// Alarms are never taken back: whoever set one keeps the moment it waits for, and ignores an alarm that rings at another. A lease
/// that is renewed leaves its alarm where it is, and is looked at once more when the old end comes; so a renewal costs nothing here.
#[derive(Debug)]
pub(super) struct Alarms<K: Ord>(BinaryHeap<Reverse<(Moment, K)>>);

/// So many alarms may always lie about.
const SPARE: usize = 64;

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

    /// Throws away the alarms that nobody waits for, when there are more of them than of those `waited_for` tells of. What that costs
    /// was paid for by setting as many.
    pub(super) fn prune<I: Iterator<Item = (Moment, K)>>(
        &mut self,
        waiting: usize,
        waited_for: impl FnOnce() -> I,
    ) {
        if self.0.len() > 2 * waiting + SPARE {
            self.0 = waited_for().map(Reverse).collect();
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_waits_for_does_not_pile_up() {
        let at = |seconds: u32| Moment::ORIGIN.after_seconds(f64::from(seconds));
        let mut alarms = Alarms::default();
        for seconds in 0..10_000 {
            alarms.set(at(seconds), 7);
            alarms.prune(1, || [(at(seconds), 7)].into_iter());
        }
        assert!(alarms.0.len() <= SPARE + 3, "{}", alarms.0.len());
        assert_eq!(alarms.ring(Moment::NEVER).map(|(_, key)| key), Some(7));
    }
}
