//! The deterministic simulation of the server, with random faults and with large fleets.
//!
//! The processes, the network and the invariants are [`doorman_server::simulation`]. `herd`
//! measures a large fleet whose master changes.

#![expect(clippy::indexing_slicing, reason = "indices are of clients that exist")]

mod herd;

pub use herd::{Departure, HerdPlan, HerdReport, change_master};

use doorman_server::simulation::Violation;

/// A violation with its trace and the command that repeats it.
#[must_use]
pub fn describe(violation: &Violation) -> String {
    let (seed, minutes) = (violation.seed, violation.plan.seconds / 60.0);
    let without = violation.plan.without;
    let without = without.map_or_else(String::new, |rule| format!(" --without {rule}"));
    format!(
        "{violation}\nreplay: cargo run --release -p doorman-tests --bin invariants -- \
         --seed {seed} --minutes {minutes}{without}"
    )
}
