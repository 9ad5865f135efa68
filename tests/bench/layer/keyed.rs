//! One keyed decision, beside governor's: what a request pays to be told that it may go.
//!
//! Ours makes the resource's id of a value of the request, finds the limiter, heeds the end of the lease and the fallback behind it, and
//! counts what is wanted; every key is leased. Governor's is `RateLimiter::keyed`: a dashmap of GCRA states, its clock quanta's.

mod leased;

use std::{borrow::Cow, cell::Cell, hint::black_box, num::NonZeroU32, thread};

use doorman_bench::{Effort, Figures, Row, Table, Target, nanos_per, take_turns};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use http::Request;
use tower_doorman::{Key, Limit, LimitLayer, RequestHead};

use crate::leased::Leased;

thread_local! {
    /// The key of the request that is being made: as cheap to come by as governor's argument.
    static KEY: Cell<&'static str> = const { Cell::new("") };
}

/// So many rounds, and so many decisions a round and thread.
struct Size {
    rounds: usize,
    decisions: usize,
}

fn main() {
    let effort = Effort::asked();
    let size = Size {
        rounds: effort.pick(21, 5),
        decisions: effort.pick(1_000_000, 200_000),
    };
    let mut table = Table::new("One keyed decision, keys in random order", "ns a decision");
    for keys in effort.pick(&[1, 10_000, 1_000_000][..], &[1, 10_000, 100_000][..]) {
        compare(*keys, &size, &mut table);
    }
    table.print();
}

fn compare(count: usize, size: &Size, table: &mut Table) {
    // They are needed until the end of the program.
    let keys: &'static [String] = (0..count)
        .map(|number| format!("{number:032x}"))
        .collect::<Vec<_>>()
        .leak();
    let ours = Ours::new(keys);
    let theirs = Theirs::new(keys);
    for threads in [1, 2] {
        let order = |_| {
            let random = (0..size.decisions).filter_map(|_| keys.get(fastrand::usize(..count)));
            random.collect()
        };
        let orders: Vec<Vec<&String>> = (0..threads).map(order).collect();
        let [ours, theirs]: [Figures; 2] = take_turns(
            size.rounds,
            [
                &mut || on_threads(&orders, |order| ours.decide(order)),
                &mut || on_threads(&orders, |order| theirs.decide(order)),
            ],
        );
        // The target is told of the size at which a cache is of little use.
        let target = if count == 1_000_000 {
            Target::AtMost(0.65)
        } else {
            Target::None
        };
        let plural = if threads == 1 { "" } else { "s" };
        table.add(Row::ratio(
            &format!("layer, {count} keys, {threads} thread{plural}"),
            &ours,
            "governor",
            &theirs,
            target,
        ));
    }
}

/// One thread an order; the mean of what a decision took each of them.
fn on_threads(orders: &[Vec<&'static String>], decide: impl Fn(&[&'static String]) + Sync) -> f64 {
    let decide = &decide;
    let nanos: Vec<f64> = thread::scope(|scope| {
        let started: Vec<_> = orders
            .iter()
            .map(|order| scope.spawn(move || nanos_per(order.len(), || decide(order))))
            .collect();
        let ended = started.into_iter().map(thread::ScopedJoinHandle::join);
        ended.map(|nanos| nanos.expect("nothing panics")).collect()
    });
    nanos.iter().sum::<f64>() / nanos.len() as f64
}

struct Ours {
    layer: LimitLayer,
    _process: Leased,
}

impl Ours {
    fn new(keys: &'static [String]) -> Self {
        let process = Leased::new(1e9);
        let key = Key::from_fn("k", |_| Some(Cow::Borrowed(KEY.get()))).expect("a short name");
        let layer = process.doorman.layer([Limit::rate(key)]);
        process.lease(
            &layer,
            keys.iter().map(|key| {
                KEY.set(key);
                Request::new(())
            }),
        );
        Self {
            layer,
            _process: process,
        }
    }

    fn decide(&self, order: &[&'static String]) {
        let request = Request::new(());
        let head = RequestHead::of(&request);
        for key in order {
            KEY.set(key);
            assert!(black_box(self.layer.try_admit(&head)).is_ok());
        }
    }
}

struct Theirs {
    limiter: DefaultKeyedRateLimiter<String>,
}

impl Theirs {
    fn new(keys: &'static [String]) -> Self {
        let quota = Quota::per_second(NonZeroU32::new(1_000_000_000).expect("not zero"));
        let limiter = RateLimiter::keyed(quota);
        for key in keys {
            assert!(limiter.check_key(key).is_ok());
        }
        Self { limiter }
    }

    fn decide(&self, order: &[&'static String]) {
        for key in order {
            assert!(black_box(self.limiter.check_key(key)).is_ok());
        }
    }
}
