//! The deterministic simulation of the server, with random and with aimed faults.
//!
//! The processes, the network and the invariants are [`doorman_sim`]. `aimed` makes scenarios.

#![expect(clippy::indexing_slicing, reason = "indices are of clients that exist")]

mod aimed;

use std::path::Path;

pub use aimed::{aimed_scenario, aimed_yaml};

use doorman_sim::{Extras, Violation};

/// The runs in which a violation was found.
#[derive(Debug, Clone, Copy)]
pub enum Replay<'a> {
    /// Random faults.
    Random,
    /// The scenario of this file.
    Schedule(&'a Path),
    /// The aimed scenario of this number.
    Aimed(u64),
}

/// A violation with its trace and the command that repeats it.
#[must_use]
pub fn describe(violation: &Violation, replay: Replay<'_>) -> String {
    let (seed, minutes) = (violation.seed, violation.plan.seconds / 60.0);
    let arguments = match replay {
        Replay::Random => format!("--seed {seed} --minutes {minutes}"),
        Replay::Schedule(path) => format!("--schedule {} --seed {seed}", path.display()),
        Replay::Aimed(number) => format!("--aimed --seed {number}"),
    };
    let without = violation.plan.without;
    let without = without.map_or_else(String::new, |rule| format!(" --without {rule}"));
    let extras = match violation.plan.extras {
        Extras::NONE => String::new(),
        extras => format!(" --extras {extras}"),
    };
    format!(
        "{violation}\nreplay: cargo run --release -p doorman-tests --bin invariants -- \
         {arguments}{extras}{without}"
    )
}
