//! The whole system, tested through its public doors: with real processes in `it/`, in virtual time in `sim/`. `run` runs every test of
//! the workspace.

#[path = "sim/mod.rs"]
pub mod sim;
