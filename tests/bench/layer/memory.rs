//! What a key costs in memory, beside governor's: by an allocator that counts.
//!
//! Ours is everything that a leased key costs the process: the limiter, its id and its place in the map, and what the worker keeps to
//! renew its lease and to measure what is wanted.

mod leased;

use std::{alloc::System, borrow::Cow, cell::RefCell};

use cap::Cap;
use doorman_bench::{Effort, Figures, Row, Table, Target};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use http::Request;
use tower_doorman::{Key, Limit};

use crate::leased::Leased;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// A resource id of 32 bytes, `k/` included.
fn value(number: usize) -> String {
    format!("{number:030x}")
}

thread_local! {
    static KEY: RefCell<String> = const { RefCell::new(String::new()) };
}

fn main() {
    let effort = Effort::asked();
    let mut table = Table::new("Memory, ids of 32 bytes included", "bytes a key");
    // Maps double when they are full, so that what a key costs depends on how many there are: 1.5 × 2^16 and 2^19 lie in between.
    for count in effort.pick(&[98_304, 786_432][..], &[98_304][..]) {
        let (ours, theirs) = (ours(*count), theirs(*count));
        let what = format!("layer, {count} leased keys");
        table.add(Row::figure(&what, &ours, Target::AtMost(200.0)));
        table.add(Row::ratio(&what, &ours, "governor", &theirs, Target::None));
    }
    table.print();
}

fn ours(count: usize) -> Figures {
    let process = Leased::new(1e6);
    let key = Key::from_fn("k", |_| Some(Cow::Owned(KEY.with_borrow(String::clone))));
    let layer = process
        .doorman
        .layer([Limit::rate(key.expect("a short name"))]);
    let request = |number| {
        KEY.set(value(number));
        Request::new(())
    };
    // What there is once a process, and what the first request leaves behind.
    process.lease(&layer, (0..1_000).map(request));
    let before = ALLOCATOR.allocated();
    process.lease(&layer, (1_000..1_000 + count).map(request));
    a_key(before, count)
}

fn theirs(count: usize) -> Figures {
    let before = ALLOCATOR.allocated();
    let limiter: DefaultKeyedRateLimiter<String> = RateLimiter::keyed(Quota::per_second(
        1_000_000_u32.try_into().expect("not zero"),
    ));
    for number in 0..count {
        let key = format!("k/{}", value(number));
        assert!(limiter.check_key(&key).is_ok());
    }
    a_key(before, count)
}

/// What has been allocated since, for each of so many keys.
fn a_key(before: usize, count: usize) -> Figures {
    Figures::constant((ALLOCATOR.allocated() as f64 - before as f64) / count as f64)
}
