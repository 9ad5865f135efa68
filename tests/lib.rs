//! The whole system, tested through its public doors: with real processes in `it/`, in virtual time in `sim/`, with hostile input
//! in `fuzz/`. `run` runs every test of the workspace.

#[path = "fuzz/mod.rs"]
pub mod fuzz;
#[path = "sim/mod.rs"]
pub mod sim;
