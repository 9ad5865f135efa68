//! What operators look at, over 100,000 live resources with three holders each: how long a page takes, and what lease requests pay for a
//! reader that never stops.
//!
//! The server is a process of its own with its own listener, checks and tokens, and has all cores, as the readers and those who lease have:
//! they take turns with and without a reader, and the 99th percentiles of the same minute are compared.

mod connection;
mod leases;
mod measure;
mod pages;
mod server;

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    match server::home_of_this_process() {
        Some(home) => server::serve(&home),
        None => measure::run(doorman_bench::Effort::asked()),
    }
}
