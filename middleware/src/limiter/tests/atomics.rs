use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use crate::limiter::atomics::{AtomicF64, Guard};

/// A bit of the guard's word that is the caller's.
const FLAG: u64 = 1 << 16;

#[test]
fn guarded_words_are_read_together() {
    const WRITES: u64 = 10_000;
    let guard = Guard::default();
    let words = [const { AtomicU64::new(0) }; 8];
    let writers = Mutex::new(());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..WRITES {
                    let _lock = writers.lock();
                    guard.write(|head| {
                        for word in &words {
                            word.fetch_add(1, Ordering::Relaxed);
                        }
                        head ^ FLAG
                    });
                }
            });
        }
        scope.spawn(|| {
            let mut last = 0;
            while last < 2 * WRITES {
                let (head, [first, rest @ ..]) = guard.read(|head| {
                    (
                        head,
                        words.each_ref().map(|word| word.load(Ordering::Relaxed)),
                    )
                });
                assert!(rest.iter().all(|&word| word == first), "{first}: {rest:?}");
                assert_eq!(head & FLAG != 0, first % 2 == 1);
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
