//! Latency of the operators' reads over 100,000 resources with three holders each, and what a
//! constant reader costs lease requests.
//!
//! The server is a process with its own listener, checks and tokens. It shares all cores with the
//! readers and the clients. Lease requests run alternately with and without a reader, and their
//! 99th percentiles are compared.

mod clients;
mod compare;
mod reader;
mod server;

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    match server::home_of_this_process() {
        Some(home) => server::serve(&home),
        None => compare::run(doorman_bench::Options::from_args()),
    }
}
