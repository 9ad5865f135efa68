//! Tests of the whole system: with real processes in `it/`, in virtual time in `sim/`, and with
//! hostile input in `fuzz/`. `situations/` counts rejected requests. The script `run` runs every
//! test of the workspace.

pub mod connection;
#[path = "fuzz/mod.rs"]
pub mod fuzz;
#[path = "sim/mod.rs"]
pub mod sim;
#[path = "situations/mod.rs"]
pub mod situations;
