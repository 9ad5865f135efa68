//! Loom tests of the types that threads share: each runs in every order of its steps, up to a bound
//! on preemptions.
//!
//! They include the source files of the crate, with [`sync`] replaced by loom's primitives. Writers
//! run on the test's own thread and readers on another: loom explores other orders from the last
//! access to a word, so a reader that runs first is never run again after the writer.

#![cfg(test)]

#[expect(dead_code, reason = "not all of it is tested here")]
#[path = "../../src/limiter/atomics.rs"]
mod atomics;
#[expect(dead_code, reason = "not all of it is tested here")]
#[path = "../../src/limiter/index.rs"]
mod index;
#[expect(dead_code, reason = "not all of it is tested here")]
#[path = "../../src/limiter/open_charges.rs"]
mod open_charges;
#[expect(dead_code, reason = "not all of it is tested here")]
#[path = "../../src/limiter/retention.rs"]
mod retention;
mod sync;
#[expect(dead_code, reason = "not all of it is tested here")]
#[path = "../../src/limiter/wait_queue.rs"]
mod wait_queue;

/// As many values as the index needs here.
mod arena {
    #[derive(Debug, Default)]
    pub(super) struct Arena<T>([T; 2]);

    impl<T: Default> Arena<T> {
        pub(super) fn with_near(_: usize) -> Self {
            Self::default()
        }

        pub(super) fn get(&self, number: u32) -> Option<&T> {
            self.0.get(number as usize)
        }

        pub(super) fn at(&self, number: u32) -> &T {
            &self.0[number as usize]
        }

        pub(super) fn get_or_allocate(&self, number: u32) -> Option<&T> {
            self.get(number)
        }
    }
}

/// The part of the bucket that the queue uses.
mod bucket {
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct TokenRange {
        pub(crate) start: f64,
        pub(crate) cost: f64,
    }

    impl TokenRange {
        pub(crate) fn end(self) -> f64 {
            self.start + self.cost
        }
    }
}

use std::sync::atomic::{AtomicUsize, Ordering};

use loom::{
    model::Builder,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64},
    },
    thread,
};

use self::{
    atomics::{AtomicF64, DemandSignal, Guard, Shortage},
    bucket::TokenRange,
    index::{Absent, Index},
    retention::{Freed, KeySlots, Purpose, Retention},
    wait_queue::{WaitQueue, unlock_and_wake},
};

/// More take too long and find hardly more.
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
    assert!(orders > 1, "only one order was run");
}

/// Two words that are written together, as those of a record are.
#[derive(Debug, Default)]
struct Guarded {
    guard: Guard,
    words: [AtomicU64; 2],
}

impl Guarded {
    fn read(&self) -> [u64; 2] {
        self.guard.read(|_| {
            self.words
                .each_ref()
                .map(|word| word.load(Ordering::Relaxed))
        })
    }

    /// Adds one to each word, and to the upper half of the guard's.
    fn increment(&self) {
        self.guard.write(|head| {
            for word in &self.words {
                word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            }
            head + (1 << 32)
        });
    }
}

#[test]
fn guarded_words_are_read_together() {
    in_every_order(|| {
        let guarded = Arc::new(Guarded::default());
        let reader = {
            let guarded = Arc::clone(&guarded);
            thread::spawn(move || {
                let [one, other] = guarded.read();
                assert_eq!(one, other, "half written");
            })
        };
        for _ in 0..2 {
            guarded.increment();
        }
        reader.join().unwrap();
        assert_eq!(guarded.read(), [2; 2]);
    });
}

#[test]
fn guarded_words_never_go_back() {
    in_every_order(|| {
        let guarded = Arc::new(Guarded::default());
        let reader = {
            let guarded = Arc::clone(&guarded);
            thread::spawn(move || {
                let [first, second] = [guarded.read(), guarded.read()];
                assert!(second >= first, "{second:?} after {first:?}");
            })
        };
        guarded.increment();
        reader.join().unwrap();
    });
}

/// As a decision finds the limiter of a name: what it reads between two equal heads is one
/// resource's.
#[test]
fn record_that_is_reused_is_told_apart() {
    in_every_order(|| {
        let guarded = Arc::new(Guarded::default());
        let reader = {
            let guarded = Arc::clone(&guarded);
            thread::spawn(move || {
                let head = guarded.guard.load();
                let name = guarded.words[1].load(Ordering::Relaxed);
                if guarded.guard.is_unchanged(head) {
                    assert_eq!(name, head >> 32, "the name of another generation");
                }
            })
        };
        guarded.increment();
        reader.join().unwrap();
    });
}

#[test]
fn token_is_taken_once() {
    in_every_order(|| {
        let spent = Arc::new(AtomicF64::default());
        let taker = || {
            let spent = Arc::clone(&spent);
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
fn demand_signal_is_raised_once_until_cleared() {
    in_every_order(|| {
        let signal = Arc::new(DemandSignal::default());
        let request = || {
            let signal = Arc::clone(&signal);
            thread::spawn(move || u32::from(signal.raise(Shortage::RunningLow)))
        };
        let requests = [request(), request()];
        let raised: u32 = requests.into_iter().map(|it| it.join().unwrap()).sum();
        assert_eq!(raised, 1);
        assert!(signal.raise(Shortage::Denied), "more urgent");
        assert!(!signal.raise(Shortage::RunningLow), "less urgent");
        signal.clear();
        assert!(signal.raise(Shortage::RunningLow));
    });
}

#[test]
fn limiter_is_pinned_or_forgotten_and_frees_its_slot_once() {
    in_every_order(|| {
        let retention = Arc::new(Retention::default());
        retention.begin(Purpose::Key);
        let slots = Arc::new(KeySlots::new(1));
        assert!(slots.acquire());
        let forget = || {
            let (retention, slots) = (Arc::clone(&retention), Arc::clone(&slots));
            thread::spawn(move || {
                let freed = retention.forget();
                if freed == Some(Freed::KeySlot) {
                    slots.release();
                }
                freed.is_some()
            })
        };
        let forgotten = [forget(), forget()];
        let pinned = retention.pin(Purpose::Code);
        if pinned == Some(Freed::KeySlot) {
            slots.release();
        }
        let forgotten: usize = forgotten
            .into_iter()
            .map(|it| usize::from(it.join().unwrap()))
            .sum();
        assert_eq!(forgotten + usize::from(pinned.is_some()), 1);
        assert_eq!(retention.is_permanent(), pinned.is_some());
        assert_eq!(slots.used(), 0);
    });
}

#[test]
fn key_slots_never_exceed_their_limit() {
    in_every_order(|| {
        let slots = Arc::new(KeySlots::new(1));
        let key = || {
            let slots = Arc::clone(&slots);
            thread::spawn(move || {
                let acquired = slots.acquire();
                assert!(slots.used() <= 1);
                acquired
            })
        };
        let keys = [key(), key()];
        let acquired = keys.map(|key| key.join().unwrap());
        assert_ne!(acquired[0], acquired[1]);
        slots.release();
        assert!(slots.acquire());
    });
}

/// Waits as `acquisition/wait.rs` does, without timers.
fn wait(queue: &Mutex<WaitQueue>, done: impl Fn() -> bool) {
    let changes = queue.lock().unwrap().changes();
    loop {
        let changed = changes.notified();
        if done() {
            return;
        }
        changed.wait();
    }
}

#[test]
fn waiting_request_misses_no_publication() {
    in_every_order(|| {
        let shared = Arc::new((Mutex::new(WaitQueue::default()), Guarded::default()));
        let waiting = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (queue, published) = &*shared;
                wait(queue, || published.read() == [1; 2]);
            })
        };
        let (queue, published) = &*shared;
        let queue = queue.lock().unwrap();
        published.increment();
        unlock_and_wake(queue);
        // A missed wake-up would deadlock.
        waiting.join().unwrap();
    });
}

#[test]
fn waiting_request_advances_when_one_ahead_leaves() {
    in_every_order(|| {
        let mut queue = WaitQueue::default();
        let range = |start| TokenRange { start, cost: 1.0 };
        let [first, second] = [queue.push(range(0.0)), queue.push(range(1.0))];
        let queue = Arc::new(Mutex::new(queue));
        let waiting = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                let range = || queue.lock().unwrap().range(second);
                wait(&queue, || range().is_some_and(|range| range.start <= 0.0));
            })
        };
        let mut queue = queue.lock().unwrap();
        let removed = queue.remove(first).unwrap();
        queue.advance(removed.cost, |it| it.start > removed.start);
        unlock_and_wake(queue);
        waiting.join().unwrap();
    });
}

/// Hashes of the two lines that the index grows to, in turn.
fn hash_of(number: u32) -> u64 {
    u64::from(number % 2) | (u64::from(number) << 48)
}

fn find(index: &Index, number: u32) -> Result<u32, Absent> {
    index.find(hash_of(number), |it| (it == number).then_some(it))
}

#[test]
fn entry_is_not_missed_while_the_index_grows() {
    in_every_order(|| {
        let index = Arc::new(Index::new(0));
        for number in 1..=5 {
            assert!(index.insert(hash_of(number), number, hash_of));
        }
        let reader = {
            let index = Arc::clone(&index);
            // It moves to the new line.
            thread::spawn(move || assert_ne!(find(&index, 5), Err(Absent::Certainly)))
        };
        assert!(index.insert(hash_of(6), 6, hash_of));
        reader.join().unwrap();
        for number in 1..=6 {
            assert_eq!(find(&index, number), Ok(number));
        }
    });
}

#[test]
fn new_entry_is_found_or_may_be_missing() {
    in_every_order(|| {
        let index = Arc::new(Index::new(0));
        let reader = {
            let index = Arc::clone(&index);
            thread::spawn(move || {
                let first = find(&index, 1);
                let second = find(&index, 1);
                assert!(
                    first.is_err() || second.is_ok(),
                    "an entry that was found is lost"
                );
            })
        };
        assert!(index.insert(hash_of(1), 1, hash_of));
        reader.join().unwrap();
        assert_eq!(find(&index, 1), Ok(1));
    });
}

/// The words of a gauge with a lease of one unit.
#[derive(Debug)]
struct GaugeWords {
    published: Guarded,
    spent: AtomicF64,
    has_queue: AtomicBool,
    queue: Mutex<WaitQueue>,
}

impl GaugeWords {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            published: Guarded::default(),
            spent: AtomicF64::default(),
            has_queue: AtomicBool::new(false),
            queue: Mutex::default(),
        })
    }

    /// As `Limiter::give_back`.
    fn give_back(&self) {
        self.spent.update(|spent| spent - 1.0);
        if self.has_queue.load(Ordering::Acquire) {
            self.queue.lock().unwrap().wake_first();
        }
    }

    /// As a reservation that waits for its turn.
    fn wait(&self) {
        let mut queue = self.queue.lock().unwrap();
        self.has_queue.store(true, Ordering::Release);
        self.spent.update(|spent| spent + 1.0);
        let ticket = queue.push(TokenRange {
            start: 0.0,
            cost: 1.0,
        });
        let turn = queue.turn(ticket).unwrap();
        drop(queue);
        loop {
            let has_turn = turn.notified();
            let mut queue = self.queue.lock().unwrap();
            let in_use = self.spent.load() - queue.cost();
            if queue.first(ticket).is_some_and(|cost| in_use + cost <= 1.0) {
                queue.remove(ticket);
                queue.wake_first();
                return;
            }
            drop(queue);
            has_turn.wait();
        }
    }
}

impl GaugeWords {
    /// As a reservation that is held back behind higher priorities.
    fn wait_held_back(&self, priority: i32) {
        let mut queue = self.queue.lock().unwrap();
        self.has_queue.store(true, Ordering::Release);
        let ticket = queue.hold_back(priority, 1.0);
        let (turn, _) = queue.held_back_turn(ticket).unwrap();
        drop(queue);
        loop {
            let has_turn = turn.notified();
            let mut queue = self.queue.lock().unwrap();
            let (_, is_first) = queue.held_back_turn(ticket).unwrap();
            self.spent.update(|spent| spent);
            if is_first && self.spent.replace(0.0, 1.0).is_ok() {
                queue.end_held_back(ticket);
                return;
            }
            drop(queue);
            has_turn.wait();
        }
    }
}

#[test]
fn returned_unit_is_not_missed_by_requests_held_back() {
    in_every_order(|| {
        let gauge = GaugeWords::new();
        gauge.spent.update(|_| 1.0);
        let waiting = |priority| {
            let gauge = Arc::clone(&gauge);
            thread::spawn(move || {
                gauge.wait_held_back(priority);
                gauge.give_back();
            })
        };
        let waiting = [waiting(1), waiting(2)];
        gauge.give_back();
        // A missed wake-up would deadlock.
        for waiting in waiting {
            waiting.join().unwrap();
        }
        assert_eq!(gauge.spent.load(), 0.0);
    });
}

#[test]
fn unit_that_is_given_back_is_not_missed_by_the_next() {
    in_every_order(|| {
        let gauge = GaugeWords::new();
        gauge.spent.update(|_| 1.0);
        let waiting = {
            let gauge = Arc::clone(&gauge);
            thread::spawn(move || gauge.wait())
        };
        gauge.give_back();
        // A missed wake-up would deadlock.
        waiting.join().unwrap();
        assert_eq!(gauge.spent.load(), 1.0);
    });
}

#[test]
fn requests_that_wait_wake_each_other() {
    in_every_order(|| {
        let gauge = GaugeWords::new();
        gauge.spent.update(|_| 1.0);
        let waiting = || {
            let gauge = Arc::clone(&gauge);
            thread::spawn(move || {
                gauge.wait();
                gauge.give_back();
            })
        };
        let waiting = [waiting(), waiting()];
        gauge.give_back();
        for waiting in waiting {
            waiting.join().unwrap();
        }
        assert_eq!(gauge.spent.load(), 0.0);
    });
}

#[test]
fn unit_taken_under_an_old_lease_is_outstanding() {
    in_every_order(|| {
        let gauge = GaugeWords::new();
        let taker = {
            let gauge = Arc::clone(&gauge);
            // As a reservation: the lease is read, and nothing was published until it is taken.
            thread::spawn(move || {
                let head = gauge.published.guard.load();
                let is_old = gauge.published.words[0].load(Ordering::Relaxed) == 0;
                gauge.spent.update(|spent| spent + 1.0);
                if gauge.published.guard.is_unchanged(head) {
                    return is_old;
                }
                gauge.give_back();
                false
            })
        };
        // As a publication, which changes *spent* while it writes.
        gauge.published.guard.write(|head| {
            gauge.spent.update(|spent| spent);
            gauge.published.words[0].store(1, Ordering::Relaxed);
            head
        });
        let outstanding = gauge.spent.load();
        let taken = taker.join().unwrap();
        assert!(!taken || outstanding == 1.0, "taken, and not reported");
    });
}

/// The words of a rate of one token a tick. Its bucket holds two tokens, and one under the next
/// lease.
#[derive(Debug)]
struct RateWords {
    clock: AtomicU64,
    published: Guarded,
    spent: AtomicF64,
    queue: Mutex<WaitQueue>,
}

impl RateWords {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            clock: AtomicU64::new(0),
            published: Guarded::default(),
            spent: AtomicF64::default(),
            queue: Mutex::default(),
        })
    }

    /// *Issued* and the minimum of *spent*, now.
    fn view(&self) -> (f64, f64) {
        let clock = self.clock.load(Ordering::Acquire);
        let [leases, _] = self.published.read();
        let issued = 2 + clock;
        (issued as f64, (issued + leases - 2) as f64)
    }

    /// As `Limiter::try_acquire`. Returns how many of so many requests are admitted.
    fn take(&self, requests: u32) -> u32 {
        let take = || {
            let (issued, floor) = self.view();
            let mut spent = self.spent.load();
            loop {
                let end = spent.max(floor) + 1.0;
                if end > issued {
                    return false;
                }
                match self.spent.replace(spent, end) {
                    Ok(()) => return true,
                    Err(actual) => spent = actual,
                }
            }
        };
        (0..requests).map(|_| u32::from(take())).sum()
    }

    /// As `Limiter::publish`.
    fn publish(&self) {
        let queue = self.queue.lock().unwrap();
        let (_, floor) = self.view();
        self.published.guard.write(|head| {
            self.spent.update(|spent| spent.max(floor));
            self.published.words[0].store(1, Ordering::Relaxed);
            head
        });
        unlock_and_wake(queue);
    }

    /// As `Limiter::open_charge`, of the tokens that were taken last.
    fn open_charge(&self) -> u64 {
        let mut queue = self.queue.lock().unwrap();
        let spent = self.spent.load();
        let (_, floor) = self.view();
        queue.charges().open(spent, spent, floor)
    }

    /// As `Limiter::refund`.
    fn refund(&self, charge: u64, tokens: f64) {
        let mut queue = self.queue.lock().unwrap();
        loop {
            let spent = self.spent.load();
            let (_, floor) = self.view();
            queue.charges().note_room(spent, floor);
            let returned = tokens.min(queue.charges().room(charge));
            if self.spent.replace(spent, spent - returned).is_ok() {
                queue.charges().refund(charge, returned);
                return;
            }
        }
    }
}

#[test]
fn refund_beside_an_admission_and_a_lease_creates_no_tokens() {
    in_every_order(|| {
        let rate = RateWords::new();
        assert_eq!(rate.take(2), 2);
        let charge = rate.open_charge();
        let refund = {
            let rate = Arc::clone(&rate);
            thread::spawn(move || rate.refund(charge, 2.0))
        };
        rate.clock.store(1, Ordering::Release);
        rate.publish();
        let mut admitted = rate.take(2);
        refund.join().unwrap();
        admitted += rate.take(2);
        assert_eq!(admitted, 1, "one bucket of the lease");
    });
}

#[test]
fn refunds_at_once_share_the_room() {
    in_every_order(|| {
        let rate = RateWords::new();
        let charges = [(), ()].map(|()| {
            assert_eq!(rate.take(1), 1);
            rate.open_charge()
        });
        let refunds = charges.map(|charge| {
            let rate = Arc::clone(&rate);
            thread::spawn(move || rate.refund(charge, 1.0))
        });
        rate.clock.store(1, Ordering::Release);
        let mut admitted = rate.take(1);
        for refund in refunds {
            refund.join().unwrap();
        }
        admitted += rate.take(3);
        assert_eq!(admitted, 2);
    });
}

#[test]
fn request_that_waits_takes_no_unit_of_an_old_lease() {
    in_every_order(|| {
        let gauge = GaugeWords::new();
        let waiting = {
            let gauge = Arc::clone(&gauge);
            // As a reservation that looks for its turn once: a lease of one unit, then of none.
            thread::spawn(move || {
                let mut queue = gauge.queue.lock().unwrap();
                gauge.has_queue.store(true, Ordering::Release);
                gauge.spent.update(|spent| spent + 1.0);
                let cost = 1.0;
                let ticket = queue.push(TokenRange { start: 0.0, cost });
                drop(queue);
                let mut queue = gauge.queue.lock().unwrap();
                let is_old = gauge.published.read()[0] == 0;
                if is_old {
                    queue.remove(ticket);
                }
                is_old
            })
        };
        let queue = gauge.queue.lock().unwrap();
        gauge.published.increment();
        unlock_and_wake(queue);
        // As the worker, which reads what is in use after the publication.
        let queue = gauge.queue.lock().unwrap();
        let outstanding = gauge.spent.load() - queue.cost();
        drop(queue);
        let has_turn = waiting.join().unwrap();
        assert_eq!(has_turn, outstanding == 1.0);
    });
}

#[test]
fn unit_is_taken_or_the_gauge_sleeps() {
    const CLOSED: f64 = f64::INFINITY;
    const ASLEEP: u64 = 1;
    in_every_order(|| {
        let gauge = GaugeWords::new();
        let state = |gauge: &GaugeWords| gauge.published.words[0].load(Ordering::Relaxed);
        // As `Limiter::sleep` and `Limiter::wake`, with the queue locked.
        let set = |gauge: &GaugeWords, state: u64| {
            gauge.published.guard.write(|head| {
                gauge.published.words[0].store(state, Ordering::Relaxed);
                let closed = |spent: f64| if spent == CLOSED { 0.0 } else { spent };
                gauge.spent.update(closed);
                head + (1 << 32)
            });
        };
        let request = {
            let gauge = Arc::clone(&gauge);
            // As a reservation, which wakes a gauge that sleeps.
            thread::spawn(move || {
                loop {
                    let head = gauge.published.guard.load();
                    let seen = gauge.spent.load();
                    if state(&gauge) == ASLEEP || seen == CLOSED {
                        let _queue = gauge.queue.lock().unwrap();
                        if state(&gauge) == ASLEEP {
                            set(&gauge, 0);
                        }
                        continue;
                    }
                    if gauge.spent.replace(seen, seen + 1.0).is_err() {
                        continue;
                    }
                    if gauge.published.guard.is_unchanged(head) {
                        return;
                    }
                    gauge.give_back();
                }
            })
        };
        let queue = gauge.queue.lock().unwrap();
        let closed = gauge.spent.replace(0.0, CLOSED).is_ok();
        if closed {
            set(&gauge, ASLEEP);
        }
        drop(queue);
        request.join().unwrap();
        assert_eq!(gauge.spent.load(), 1.0);
        assert_eq!(state(&gauge), 0, "a gauge in use sleeps");
    });
}

#[test]
fn returned_units_are_seen_or_signalled_again() {
    in_every_order(|| {
        let shared = Arc::new((DemandSignal::default(), AtomicF64::default()));
        let (signal, spent) = &*shared;
        spent.update(|_| 1.0);
        assert!(signal.raise_returned(), "an earlier return");
        let returning = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (signal, spent) = &*shared;
                spent.update(|spent| spent - 1.0);
                signal.raise_returned()
            })
        };
        // As the worker, which reports what is in use.
        signal.clear_returned();
        let reported = spent.load();
        let signalled = returning.join().unwrap();
        assert!(signalled || reported == 0.0, "stale report");
    });
}
