//! `memory KEYS` prints the bytes that each leased key takes in the process of the layer.

#[path = "../bench/layer/leased.rs"]
mod leased;

use std::{env, ops::Range};

use http::{HeaderValue, Request};
use tower_doorman::{Key, Limit};

use crate::leased::LeasedProcess;

const HEADER: &str = "x-tenant";

#[expect(clippy::print_stdout, reason = "the result of the program")]
fn main() {
    let keys = env::args().nth(1).expect("the number of keys");
    let keys: usize = keys.parse().expect("a number");
    let process = LeasedProcess::new(1e9);
    let key = Key::header(HEADER).expect("a valid header name");
    let layer = process.doorman.layer([Limit::rate(key)]);
    let layer = layer.expect("valid limits");
    let lease = |numbers: Range<usize>| process.lease(&layer, numbers.map(request));
    // Allocate everything that exists once per process.
    lease(0..1_000);
    let leased = allocation_counter::measure(|| lease(1_000..1_000 + keys));
    println!("{}", leased.bytes_current as f64 / keys as f64);
}

/// A request with a key of 32 bytes.
fn request(number: usize) -> Request<()> {
    let mut request = Request::new(());
    let key = HeaderValue::try_from(format!("{number:032x}"));
    let key = key.expect("digits are a valid value");
    request.headers_mut().insert(HEADER, key);
    request
}
