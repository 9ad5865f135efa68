//! Benchmarks that compare each figure with an alternative measured in the same run.
//!
//! `cargo bench -p doorman-bench` runs all, `--bench NAME` runs one, and `-- --quick` runs smaller
//! sizes for fewer rounds.
//!
//! Absolute times depend on the machine and on its other load; ratios hardly do. So the sides of a
//! comparison alternate ([`alternate`]), and the result is the median of the ratios of single
//! rounds, printed beside its target ([`Table`]). A missed target does not fail the benchmark.
//!
//! Criterion and divan measure one side after the other. tango-bench alternates, but only between
//! two builds of the same function. None of them measures the throughput of a process, or memory.

mod paced;
mod process;
mod response;
mod samples;
mod table;

use clap::Parser;

pub use self::{
    paced::{Connection, PacedRequests},
    process::{ServerProcess, announce, wait_for_stdin_end},
    response::read_response,
    samples::{Samples, Side, alternate, alternate_results, nanos_per_iteration},
    table::{Row, Table, Target},
};

/// Measure the implementation and its alternatives, and print their ratios.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Parser)]
pub struct Options {
    /// Measure smaller sizes for fewer rounds.
    #[arg(long)]
    quick: bool,
    /// Passed by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    /// Parses the command line. Exits on an unknown argument.
    #[must_use]
    pub fn from_args() -> Self {
        Self::parse()
    }

    /// Returns `quick` with `--quick`, otherwise `full`.
    #[must_use]
    pub fn pick<T>(self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}
