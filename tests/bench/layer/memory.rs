//! Memory per key, compared with governor, measured by a counting allocator.
//!
//! The figure of the layer includes everything that a leased key costs the process: the limiter,
//! its id, its entry in the map, and the worker's state for lease and demand.

mod leased;

use std::{alloc::System, borrow::Cow, cell::RefCell};

use cap::Cap;
use doorman_bench::{Options, Row, Samples, Table, Target};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use http::Request;
use tower_doorman::{Key, Limit};

use crate::leased::LeasedProcess;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// A key whose resource id has 32 bytes with the prefix `k/`.
fn key_value(number: usize) -> String {
    format!("{number:030x}")
}

thread_local! {
    static KEY: RefCell<String> = const { RefCell::new(String::new()) };
}

fn main() {
    let options = Options::from_args();
    let mut table = Table::new("Memory, 32-byte ids included", "bytes per key");
    // Maps double when they are full, so the memory per key depends on the number of keys. These
    // sizes lie between two doublings.
    for count in options.pick(&[98_304, 786_432][..], &[98_304][..]) {
        let (layer, governor) = (layer_bytes(*count), governor_bytes(*count));
        let subject = format!("layer, {count} leased keys");
        table.add(Row::figure(&subject, &layer, Target::AtMost(210.0)));
        table.add(Row::ratio(
            &subject,
            &layer,
            "governor",
            &governor,
            Target::None,
        ));
    }
    table.print();
}

fn layer_bytes(count: usize) -> Samples {
    let process = LeasedProcess::new(1e6);
    let key = Key::from_fn("k", |_| Some(Cow::Owned(KEY.with_borrow(String::clone))));
    let layer = process
        .doorman
        .layer([Limit::rate(key.expect("a valid name"))])
        .expect("valid limits");
    let request = |number| {
        KEY.set(key_value(number));
        Request::new(())
    };
    // Allocate everything that exists once per process.
    process.lease(&layer, (0..1_000).map(request));
    let before = ALLOCATOR.allocated();
    process.lease(&layer, (1_000..1_000 + count).map(request));
    per_key(before, count)
}

fn governor_bytes(count: usize) -> Samples {
    let before = ALLOCATOR.allocated();
    let limiter: DefaultKeyedRateLimiter<String> = RateLimiter::keyed(Quota::per_second(
        1_000_000_u32.try_into().expect("not zero"),
    ));
    for number in 0..count {
        let key = format!("k/{}", key_value(number));
        assert!(limiter.check_key(&key).is_ok());
    }
    per_key(before, count)
}

fn per_key(before: usize, count: usize) -> Samples {
    Samples::constant((ALLOCATOR.allocated() as f64 - before as f64) / count as f64)
}
