use std::thread;

use crate::limiter::atomics::{AtomicF64, SeqLock};

#[test]
fn seq_lock_reads_are_consistent() {
    let words = SeqLock::new([0; 8]);
    const WRITES: u64 = 100_000;
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..WRITES {
                    words.update(|old| old.map(|word| word + 1));
                }
            });
        }
        scope.spawn(|| {
            let mut last = 0;
            while last < 2 * WRITES {
                let [first, rest @ ..] = words.read();
                assert!(rest.iter().all(|&word| word == first), "{first}: {rest:?}");
                assert!(first >= last, "{first} after {last}");
                last = first;
            }
        });
    });
}

#[test]
fn concurrent_updates_are_not_lost() {
    let total = AtomicF64::default();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..10_000).for_each(|_| total.update(|total| total + 0.5)));
        }
    });
    assert_eq!(total.load(), 20_000.0);
}
