//! Situations in which no request may be rejected while capacity is free, each measured with real
//! processes.
//!
//! `cargo run --release -p doorman-tests --bin situations -- list` names them, `-- NAME` measures
//! one, and `-- all` measures all of them.
//!
//! A [`Situation`] runs the program `doorman` and services, each a process of its own, and compares
//! the outcome with its targets. `process` starts the processes, `node` several control planes with
//! etcd, `service` is the code in the service processes, `load` says when they send requests,
//! `traffic` counts the responses, and `table` prints the results. The situations themselves are in
//! `rows`.
//!
//! Everything counts from the first request on: there is no time to settle, unless a situation
//! changes the load after a while. Then it counts from the change on.

mod load;
mod node;
mod outcome;
mod plan;
mod process;
mod rows;
mod service;
mod table;
mod traffic;

use std::{error, time::Duration};

use rustix::time::{ClockId, clock_gettime};

pub use outcome::Outcome;
pub use process::Programs;
pub use rows::{SITUATIONS, Situation};
pub use service::serve;
pub use table::Table;

/// Why a situation could not be measured.
pub type Error = Box<dyn error::Error + Send + Sync>;

/// Monotonic time, the same in every process of the machine.
fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}
