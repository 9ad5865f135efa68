//! What is due when: heaps of moments.

use std::{cmp::Reverse, collections::BinaryHeap};

use doorman_openapi::Moment;

/// So many alarms may always lie about.
const SPARE: usize = 64;

/// How many alarms are looked at each time that they are pruned: more than are set meanwhile, so that it comes to an end.
const LOOKED_AT: usize = 4;

/// Moments at which something has to be looked at again, earliest first.
///
/// Alarms are never taken back: whoever set one keeps the moment it waits for, and ignores an alarm that rings at another. A lease
/// that is renewed leaves its alarm where it is, and is looked at once more when the old end comes; so a renewal costs nothing here.
/// Those that nobody waits for any more are thrown away when they have become many, a few at a time.
#[derive(Debug)]
pub(super) struct Alarms<K: Ord> {
    set: Heap<K>,
    /// What was set before a pruning began, and has not been looked at yet.
    unpruned: Heap<K>,
}

type Heap<K> = BinaryHeap<Reverse<(Moment, K)>>;

impl<K: Ord> Default for Alarms<K> {
    fn default() -> Self {
        Self {
            set: BinaryHeap::new(),
            unpruned: BinaryHeap::new(),
        }
    }
}

impl<K: Ord> Alarms<K> {
    /// Rings at `at`.
    pub(super) fn set(&mut self, at: Moment, key: K) {
        self.set.push(Reverse((at, key)));
    }

    /// Goes on to throw away the alarms that nobody waits for, while there are more of them than of the `waiting`. To be called for each
    /// alarm that is set, or that nobody waits for any longer; a single call does not take long, however many there are.
    pub(super) fn prune(&mut self, waiting: usize, is_waited_for: impl Fn(Moment, &K) -> bool) {
        if self.unpruned.is_empty() {
            if self.set.len() <= waiting.saturating_mul(2).saturating_add(SPARE) {
                return;
            }
            self.unpruned = std::mem::take(&mut self.set);
        }
        for _ in 0..LOOKED_AT {
            let Some(Reverse((at, key))) = self.unpruned.pop() else {
                break;
            };
            if is_waited_for(at, &key) {
                self.set(at, key);
            }
        }
        if self.unpruned.is_empty() {
            // It keeps no room for what does not come again.
            self.unpruned = BinaryHeap::new();
        }
    }

    /// The earliest alarm that is still to ring.
    pub(super) fn next(&self) -> Option<Moment> {
        let earliest = |heap: &Heap<K>| heap.peek().map(|Reverse((at, _))| *at);
        let both = [earliest(&self.set), earliest(&self.unpruned)];
        both.into_iter().flatten().min()
    }

    /// Takes the earliest alarm that is due.
    pub(super) fn ring(&mut self, now: Moment) -> Option<(Moment, K)> {
        // The earlier is the greater in this order, and none at all is the least.
        let heap = if self.set.peek() <= self.unpruned.peek() {
            &mut self.unpruned
        } else {
            &mut self.set
        };
        let Reverse((at, _)) = heap.peek()?;
        if *at > now {
            return None;
        }
        heap.pop().map(|Reverse(alarm)| alarm)
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, cmp::Ordering, collections::BTreeMap};

    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u32) -> Moment {
        Moment::ORIGIN.after_seconds(f64::from(seconds))
    }

    fn length<K: Ord>(alarms: &Alarms<K>) -> usize {
        alarms.set.len() + alarms.unpruned.len()
    }

    #[test]
    fn what_nobody_waits_for_does_not_pile_up() {
        let mut alarms = Alarms::default();
        for seconds in 0..10_000 {
            alarms.set(at(seconds), 7);
            alarms.prune(1, |waited_for, _| waited_for == at(seconds));
            assert!(length(&alarms) <= 2 * SPARE, "{}", length(&alarms));
        }
        while let Some((rung, key)) = alarms.ring(Moment::NEVER) {
            assert!(rung <= at(9_999) && key == 7);
        }
    }

    thread_local! {
        static COMPARED: Cell<usize> = const { Cell::new(0) };
    }

    /// A key that counts how often it is compared: whoever sorts many has to.
    #[derive(PartialEq, Eq)]
    struct Counted(u32);

    impl PartialOrd for Counted {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    impl Ord for Counted {
        fn cmp(&self, other: &Self) -> Ordering {
            COMPARED.set(COMPARED.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    #[test]
    fn no_call_looks_at_many() {
        const MANY: u32 = 100_000;
        let mut alarms = Alarms::default();
        let mut most = 0;
        // All at one time, so that it is the keys that are compared. One in eight is waited for.
        for key in (0..MANY).chain(0..MANY) {
            COMPARED.set(0);
            alarms.set(at(0), Counted(key));
            alarms.prune(MANY as usize / 4, |_, key| {
                COMPARED.set(COMPARED.get() + 1);
                key.0 % 8 == 0
            });
            most = most.max(COMPARED.get());
        }
        assert!(length(&alarms) <= MANY as usize, "{}", length(&alarms));
        // A few times from the root of a heap to its leaves, and back.
        assert!(most <= 500, "{most}");
    }

    proptest! {
        #[test]
        fn whatever_is_waited_for_rings_in_its_time(
            changes in prop::collection::vec((0u32..40, 0u32..1000, 0u8..8), 1..800)
        ) {
            let mut alarms = Alarms::default();
            let mut waiting = BTreeMap::new();
            let mut now = 0;
            for (key, seconds, change) in changes {
                match change {
                    0 => {
                        waiting.remove(&key);
                    }
                    1 => {
                        now += seconds / 10;
                        while let Some((rung, key)) = alarms.ring(at(now)) {
                            prop_assert!(rung <= at(now));
                            if waiting.get(&key) == Some(&rung) {
                                waiting.remove(&key);
                            }
                        }
                        prop_assert!(waiting.values().all(|due| *due > at(now)));
                        prop_assert!(alarms.next() > Some(at(now)) || alarms.next().is_none());
                    }
                    _ => {
                        let due = at(now + 1 + seconds);
                        waiting.insert(key, due);
                        alarms.set(due, key);
                    }
                }
                alarms.prune(waiting.len(), |due, key| waiting.get(key) == Some(&due));
                prop_assert!(length(&alarms) <= 4 * 40 + 2 * SPARE);
                prop_assert!(waiting.is_empty() || alarms.next() <= waiting.values().min().copied());
            }
        }
    }
}
