//! Cost of one keyed decision, compared with governor.
//!
//! The layer builds the resource id from a value of the request, finds the limiter, checks lease
//! expiry and fallback, and measures demand. Every key is leased. governor uses
//! `RateLimiter::keyed`: GCRA states in a dashmap, with the clock of quanta.

mod leased;

use std::{borrow::Cow, cell::Cell, hint::black_box, num::NonZeroU32, thread};

use doorman_bench::{Options, Row, Samples, Table, Target, alternate, nanos_per_iteration};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use http::Request;
use tower_doorman::{Key, Limit, LimitLayer, RequestHead};

use crate::leased::LeasedProcess;

thread_local! {
    /// The key of the current request. Reading it is as cheap as governor's argument.
    static KEY: Cell<&'static str> = const { Cell::new("") };
}

struct Size {
    rounds: usize,
    /// Per round and thread.
    decisions: usize,
}

fn main() {
    let options = Options::from_args();
    let size = Size {
        rounds: options.pick(21, 5),
        decisions: options.pick(1_000_000, 200_000),
    };
    let mut table = Table::new("Keyed decision, keys in random order", "ns per decision");
    for keys in options.pick(&[1, 10_000, 1_000_000][..], &[1, 10_000, 100_000][..]) {
        compare(*keys, &size, &mut table);
    }
    table.print();
}

fn compare(count: usize, size: &Size, table: &mut Table) {
    // The keys live until the program ends.
    let keys: &'static [String] = (0..count)
        .map(|number| format!("{number:032x}"))
        .collect::<Vec<_>>()
        .leak();
    let layer = Layer::new(keys);
    let governor = Governor::new(keys);
    for threads in [1, 2] {
        let order = |_| {
            let random = (0..size.decisions).filter_map(|_| keys.get(fastrand::usize(..count)));
            random.collect()
        };
        let orders: Vec<Vec<&String>> = (0..threads).map(order).collect();
        let [layer, governor]: [Samples; 2] = alternate(
            size.rounds,
            [
                &mut || on_threads(&orders, |order| layer.decide(order)),
                &mut || on_threads(&orders, |order| governor.decide(order)),
            ],
        );
        // The more keys miss the CPU caches, the more the layout of a key counts.
        let target = match count {
            1 => Target::AtMost(1.3),
            10_000 => Target::AtMost(1.1),
            1_000_000 => Target::AtMost(0.85),
            _ => Target::None,
        };
        let plural = if threads == 1 { "" } else { "s" };
        table.add(Row::ratio(
            &format!("layer, {count} keys, {threads} thread{plural}"),
            &layer,
            "governor",
            &governor,
            target,
        ));
    }
}

/// Runs each order on its own thread. Returns the mean cost of a decision.
fn on_threads(orders: &[Vec<&'static String>], decide: impl Fn(&[&'static String]) + Sync) -> f64 {
    let decide = &decide;
    let nanos: Vec<f64> = thread::scope(|scope| {
        let threads: Vec<_> = orders
            .iter()
            .map(|order| scope.spawn(move || nanos_per_iteration(order.len(), || decide(order))))
            .collect();
        let results = threads.into_iter().map(thread::ScopedJoinHandle::join);
        results.map(|nanos| nanos.expect("no panic")).collect()
    });
    nanos.iter().sum::<f64>() / nanos.len() as f64
}

struct Layer {
    layer: LimitLayer,
    _process: LeasedProcess,
}

impl Layer {
    fn new(keys: &'static [String]) -> Self {
        let process = LeasedProcess::new(1e9);
        let key = Key::from_fn("k", |_| Some(Cow::Borrowed(KEY.get()))).expect("a valid name");
        let layer = process
            .doorman
            .layer([Limit::rate(key)])
            .expect("valid limits");
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

struct Governor {
    limiter: DefaultKeyedRateLimiter<String>,
}

impl Governor {
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
