//! Runs by which the constants of `tuning` were chosen: `docs/TUNING.md`.
//!
//! Real workers, limiters and ledger, in virtual time. `load` makes the requests, `runs` counts
//! what becomes of them, and `tables` varies one constant at a time.

mod crash;
mod load;
mod page;
mod runs;
mod tables;

use doorman_core::ledger;

use crate::tuning::Tuning;

/// Everything that is varied.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Setting {
    layer: Tuning,
    ledger: ledger::Tuning,
    /// `None`: that of the program.
    surplus: Option<f64>,
    lease_length: u32,
    refresh_interval: u32,
}

impl Setting {
    /// As in a document without these parameters.
    const DEFAULT: Self = Self {
        layer: Tuning::DEFAULT,
        ledger: ledger::Tuning::DEFAULT,
        surplus: None,
        lease_length: 60,
        refresh_interval: 5,
    };
}

/// The page has the values of the program, and its figures are those of the runs.
#[test]
fn defaults_of_the_docs_are_current() {
    page::check_defaults();
}

/// The table of crashes has the promised figures.
#[test]
fn crash_costs_its_successor_little() {
    crash::check_promises();
}

#[test]
#[ignore = "takes minutes: tests/tuning runs it"]
fn crashes_of_the_docs_are_current() {
    crash::check_or_update();
}

/// All figures. `tests/tuning` runs this in release mode, because it takes minutes.
#[test]
#[ignore = "takes minutes: tests/tuning runs it"]
fn tables_of_the_docs_are_current() {
    page::check_or_update();
}
