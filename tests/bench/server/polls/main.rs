//! Open polls for hints: their memory, compared with a plain axum handler that waits, and what they
//! cost the lease requests beside them.
//!
//! Each server is a process. Resident memory is read before the polls are opened, and when they
//! have been open for a while. Lease requests alternate between a server with polls and one
//! without, and their 99th percentiles are compared.

mod compare;
mod leases;
mod polls;
mod server;

use std::error::Error;

use rustix::process::{Resource, getrlimit, setrlimit};

fn main() -> Result<(), Box<dyn Error>> {
    // Connections are files, for their server and for their peers.
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    setrlimit(Resource::Nofile, files)?;
    match server::Kind::of_this_process() {
        Some(kind) => server::serve(kind),
        None => compare::run(doorman_bench::Options::from_args()),
    }
}
