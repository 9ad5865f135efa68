//! The parts that threads share, in every order that their steps and their view of memory can take: loom runs each of these tests once
//! for every one of them, up to so many preemptions.
//!
//! They are the very files of the crate; only what they are made of is another, which loom can see into. What is written goes first, on
//! the test's own thread, and what only reads on another: loom looks for another order at the last step that was made on a word, and
//! a thread that reads it and then changes it hides by its own reading what others have read before. (So a reader that goes first is
//! never run again behind the writer.)

#![cfg(test)]

#[path = "../../src/limiter/atomics.rs"]
mod atomics;
#[path = "../../src/limiter/demand_signal.rs"]
mod demand_signal;
#[expect(dead_code, reason = "what is not looked at here")]
#[path = "../../src/limiter/retention.rs"]
mod retention;
mod sync;
#[expect(dead_code, reason = "what is not looked at here")]
#[path = "../../src/limiter/wait_queue.rs"]
mod wait_queue;

/// All that the line knows of the tokens that somebody waits for.
mod bucket {
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct Take {
        pub(crate) start: f64,
        pub(crate) cost: f64,
    }

    impl Take {
        pub(crate) fn end(self) -> f64 {
            self.start + self.cost
        }
    }
}

use std::sync::atomic::{AtomicUsize, Ordering};

use loom::{
    model::Builder,
    sync::{Arc, Mutex},
    thread,
};

use self::{
    atomics::{AtomicF64, SeqLock},
    bucket::Take,
    demand_signal::{DemandSignal, Shortage},
    retention::{FIXED, KEYED, Retention, Room},
    wait_queue::{WaitQueue, ring},
};

/// More than three in one run show hardly anything, and take for ever.
const PREEMPTIONS: usize = 3;

fn in_every_order(run: impl Fn() + Sync + Send + 'static) {
    let mut model = Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    let orders = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&orders);
    model.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        run();
    });
    let orders = orders.load(Ordering::Relaxed);
    println!("{orders} orders");
    assert!(orders > 1, "one order shows nothing");
}

#[test]
fn words_are_read_as_they_were_written_together() {
    in_every_order(|| {
        let words = Arc::new(SeqLock::new([0; 2]));
        let reader = {
            let words = Arc::clone(&words);
            thread::spawn(move || {
                let [one, other] = words.read();
                assert_eq!(one, other, "half written");
            })
        };
        for _ in 0..2 {
            words.update(|old| (old.map(|word| word + 1), ()));
        }
        reader.join().unwrap();
        assert_eq!(words.read(), [2; 2]);
    });
}

#[test]
fn words_never_go_back_to_what_they_were() {
    in_every_order(|| {
        let words = Arc::new(SeqLock::new([0; 2]));
        let reader = {
            let words = Arc::clone(&words);
            thread::spawn(move || {
                let [first, second] = [words.read(), words.read()];
                assert!(second >= first, "{second:?} after {first:?}");
            })
        };
        words.update(|old| (old.map(|word| word + 1), ()));
        reader.join().unwrap();
    });
}

#[test]
fn writers_of_words_go_one_after_the_other() {
    in_every_order(|| {
        let words = Arc::new(SeqLock::new([0; 2]));
        let writer = || {
            let words = Arc::clone(&words);
            thread::spawn(move || words.update(|old| (old.map(|word| word + 1), old[0])))
        };
        let writers = [writer(), writer()];
        let mut seen = writers.map(|writer| writer.join().unwrap());
        seen.sort_unstable();
        assert_eq!(seen, [0, 1]);
        assert_eq!(words.read(), [2; 2]);
    });
}

#[test]
fn no_token_is_taken_twice() {
    in_every_order(|| {
        let spent = Arc::new(AtomicF64::default());
        let taker = || {
            let spent = Arc::clone(&spent);
            // As a place is taken: only where it was seen free.
            thread::spawn(move || {
                let mut seen = spent.load();
                loop {
                    match spent.replace(seen, seen + 1.0) {
                        Ok(()) => return seen,
                        Err(actual) => seen = actual,
                    }
                }
            })
        };
        let takers = [taker(), taker()];
        spent.update(|spent| spent + 1.0);
        let taken = takers.map(|taker| taker.join().unwrap());
        assert_ne!(taken[0], taken[1]);
        assert_eq!(spent.load(), 3.0);
    });
}

#[test]
fn hunger_is_told_by_one_until_it_is_heard() {
    in_every_order(|| {
        let hunger = Arc::new(DemandSignal::default());
        let hungry = || {
            let hunger = Arc::clone(&hunger);
            thread::spawn(move || u32::from(hunger.tell(Shortage::RunningLow)))
        };
        let requests = [hungry(), hungry()];
        let told: u32 = requests.into_iter().map(|it| it.join().unwrap()).sum();
        assert_eq!(told, 1);
        assert!(hunger.tell(Shortage::Denied), "it is more than that");
        assert!(!hunger.tell(Shortage::RunningLow), "and that is less");
        hunger.clear();
        assert!(hunger.tell(Shortage::RunningLow), "was heard meanwhile");
    });
}

#[test]
fn a_limiter_stays_or_is_forgotten_and_gives_its_room_back_once() {
    in_every_order(|| {
        let (tenure, room) = (Arc::new(Retention::new(KEYED)), Arc::new(Room::for_keys(1)));
        assert!(room.take());
        let ends = |end: fn(&Retention) -> Option<u8>| {
            let (tenure, room) = (Arc::clone(&tenure), Arc::clone(&room));
            thread::spawn(move || {
                let before = end(&tenure);
                if before.is_some_and(|bits| bits & KEYED != 0) {
                    room.give_back();
                }
                before.is_some()
            })
        };
        let forgotten = [ends(Retention::retire), ends(Retention::retire)];
        let stays = tenure.fix(FIXED);
        if stays.is_some_and(|bits| bits & KEYED != 0) {
            room.give_back();
        }
        let forgotten: usize = forgotten
            .into_iter()
            .map(|it| usize::from(it.join().unwrap()))
            .sum();
        assert_eq!(forgotten + usize::from(stays.is_some()), 1);
        assert_eq!(tenure.stays(), stays.is_some());
        assert_eq!(room.taken(), 0);
    });
}

#[test]
fn there_is_never_more_taken_than_there_is_room_for() {
    in_every_order(|| {
        let room = Arc::new(Room::for_keys(1));
        let key = || {
            let room = Arc::clone(&room);
            thread::spawn(move || {
                let taken = room.take();
                assert!(room.taken() <= 1);
                taken
            })
        };
        let keys = [key(), key()];
        let taken = keys.map(|key| key.join().unwrap());
        assert_ne!(taken[0], taken[1]);
        room.give_back();
        assert!(room.take());
    });
}

/// Listens and looks as `wait.rs` does, but for the timers.
fn wait(line: &Mutex<WaitQueue>, come: impl Fn() -> bool) {
    let bell = line.lock().unwrap().bell();
    loop {
        let changed = bell.notified();
        if come() {
            return;
        }
        changed.come();
    }
}

#[test]
fn who_waits_misses_no_publication() {
    in_every_order(|| {
        let shared = Arc::new((Mutex::new(WaitQueue::default()), SeqLock::new([0; 2])));
        let waits = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (line, published) = &*shared;
                wait(line, || published.read() == [1; 2]);
            })
        };
        let (line, published) = &*shared;
        let line = line.lock().unwrap();
        published.update(|_| ([1; 2], ()));
        ring(line);
        // Were it missed, nobody would ever wake who waits.
        waits.join().unwrap();
    });
}

#[test]
fn who_waits_moves_up_when_one_before_it_leaves() {
    in_every_order(|| {
        let mut line = WaitQueue::default();
        let take = |start| Take { start, cost: 1.0 };
        let [first, second] = [line.join(take(0.0)), line.join(take(1.0))];
        let line = Arc::new(Mutex::new(line));
        let waits = {
            let line = Arc::clone(&line);
            thread::spawn(move || {
                let place = || line.lock().unwrap().place(second);
                wait(&line, || place().is_some_and(|take| take.start <= 0.0));
            })
        };
        let mut line = line.lock().unwrap();
        let left = line.leave(first).unwrap();
        if line.pull(Some(first), left.cost) {
            ring(line);
        }
        waits.join().unwrap();
    });
}
