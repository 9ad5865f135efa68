//! Min-heap of deadlines with lazy deletion.

use std::{cmp::Reverse, collections::BinaryHeap};

use doorman_openapi::Moment;

/// Stale deadlines that are always tolerated.
const SLACK: usize = 64;

/// A smaller allocation is kept.
const MIN_CAPACITY: usize = 1024;

/// Deadlines examined per [`ExpiryHeap::compact`]. More than one call adds, so compaction ends.
const COMPACTED_PER_CALL: usize = 4;

/// Deadlines, earliest first.
///
/// A deadline is never removed early. Its owner remembers which deadline is current and ignores
/// the others when they are popped, so renewing a lease does not touch the heap. Stale deadlines
/// are dropped a few at a time once they outnumber the current ones.
#[derive(Debug, Clone)]
pub(in crate::ledger) struct ExpiryHeap<K: Ord> {
    heap: Heap<K>,
    /// Deadlines that the running compaction has not examined yet.
    uncompacted: Heap<K>,
}

type Heap<K> = BinaryHeap<Reverse<(Moment, K)>>;

impl<K: Ord> Default for ExpiryHeap<K> {
    fn default() -> Self {
        Self {
            heap: BinaryHeap::new(),
            uncompacted: BinaryHeap::new(),
        }
    }
}

impl<K: Ord> ExpiryHeap<K> {
    pub(in crate::ledger) fn push(&mut self, at: Moment, key: K) {
        self.heap.push(Reverse((at, key)));
    }

    /// Drops stale deadlines while there are more of them than of the `current` ones, in constant
    /// time per call. Call it whenever a deadline is pushed or becomes stale.
    pub(in crate::ledger) fn compact(
        &mut self,
        current: usize,
        is_current: impl Fn(Moment, &K) -> bool,
    ) {
        if self.uncompacted.is_empty() {
            if self.heap.len() <= current.saturating_mul(2).saturating_add(SLACK) {
                return;
            }
            self.uncompacted = std::mem::take(&mut self.heap);
        }
        for _ in 0..COMPACTED_PER_CALL {
            let Some(Reverse((at, key))) = self.uncompacted.pop() else {
                break;
            };
            if is_current(at, &key) {
                self.push(at, key);
            }
        }
        if self.uncompacted.is_empty() {
            // Frees the allocation.
            self.uncompacted = BinaryHeap::new();
        }
    }

    pub(in crate::ledger) fn next_at(&self) -> Option<Moment> {
        let earliest = |heap: &Heap<K>| heap.peek().map(|Reverse((at, _))| *at);
        let both = [earliest(&self.heap), earliest(&self.uncompacted)];
        both.into_iter().flatten().min()
    }

    pub(in crate::ledger) fn pop_due(&mut self, now: Moment) -> Option<(Moment, K)> {
        // `Reverse` orders the earlier deadline as the greater one; `None` is the least.
        let heap = if self.heap.peek() <= self.uncompacted.peek() {
            &mut self.uncompacted
        } else {
            &mut self.heap
        };
        let Reverse((at, _)) = heap.peek()?;
        if *at > now {
            return None;
        }
        let popped = heap.pop();
        if heap.capacity() > MIN_CAPACITY && heap.len() < heap.capacity() / 8 {
            heap.shrink_to(heap.len().saturating_mul(2));
        }
        popped.map(|Reverse(deadline)| deadline)
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

    fn len<K: Ord>(expiries: &ExpiryHeap<K>) -> usize {
        expiries.heap.len() + expiries.uncompacted.len()
    }

    #[test]
    fn stale_deadlines_do_not_accumulate() {
        let mut expiries = ExpiryHeap::default();
        for seconds in 0..10_000 {
            expiries.push(at(seconds), 7);
            expiries.compact(1, |current, _| current == at(seconds));
            assert!(len(&expiries) <= 2 * SLACK, "{}", len(&expiries));
        }
        while let Some((due, key)) = expiries.pop_due(Moment::NEVER) {
            assert!(due <= at(9_999) && key == 7);
        }
    }

    thread_local! {
        static COMPARISONS: Cell<usize> = const { Cell::new(0) };
    }

    #[derive(PartialEq, Eq)]
    struct CountingKey(u32);

    impl PartialOrd for CountingKey {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    impl Ord for CountingKey {
        fn cmp(&self, other: &Self) -> Ordering {
            COMPARISONS.set(COMPARISONS.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    #[test]
    fn each_call_does_bounded_work() {
        const MANY: u32 = 100_000;
        let mut expiries = ExpiryHeap::default();
        let mut most = 0;
        // Equal deadlines, so that the keys are compared. One in eight is current.
        for key in (0..MANY).chain(0..MANY) {
            COMPARISONS.set(0);
            expiries.push(at(0), CountingKey(key));
            expiries.compact(MANY as usize / 4, |_, key| {
                COMPARISONS.set(COMPARISONS.get() + 1);
                key.0 % 8 == 0
            });
            most = most.max(COMPARISONS.get());
        }
        assert!(len(&expiries) <= MANY as usize, "{}", len(&expiries));
        // A few walks between the root of a heap and its leaves.
        assert!(most <= 500, "{most}");
    }

    proptest! {
        #[test]
        fn current_deadlines_are_popped_when_due(
            changes in prop::collection::vec((0u32..40, 0u32..1000, 0u8..8), 1..800)
        ) {
            let mut expiries = ExpiryHeap::default();
            let mut current = BTreeMap::new();
            let mut now = 0;
            for (key, seconds, change) in changes {
                match change {
                    0 => {
                        current.remove(&key);
                    }
                    1 => {
                        now += seconds / 10;
                        while let Some((due, key)) = expiries.pop_due(at(now)) {
                            prop_assert!(due <= at(now));
                            if current.get(&key) == Some(&due) {
                                current.remove(&key);
                            }
                        }
                        prop_assert!(current.values().all(|due| *due > at(now)));
                        prop_assert!(expiries.next_at().is_none_or(|next| next > at(now)));
                    }
                    _ => {
                        let due = at(now + 1 + seconds);
                        current.insert(key, due);
                        expiries.push(due, key);
                    }
                }
                expiries.compact(current.len(), |due, key| current.get(key) == Some(&due));
                prop_assert!(len(&expiries) <= 4 * 40 + 2 * SLACK);
                if let Some(earliest) = current.values().min() {
                    prop_assert!(expiries.next_at().is_some_and(|next| next <= *earliest));
                }
            }
        }
    }
}
