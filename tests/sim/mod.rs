//! Deterministic simulation of elections, the ledger and the client state machine.
//!
//! The real [`election`](doorman_server::election), [`Reign`](doorman_server::reign::Reign),
//! [`Ledger`](doorman_server::ledger::Ledger) and [`Holder`](tower_doorman::lease::Holder) run in
//! virtual time. A seed decides every delay and every fault. After each event the simulation checks
//! that the holders of a resource may together use no more than its capacity.
//!
//! `simulation` is the event loop. `client`, `server`, `node` and `etcd` are the processes, and
//! `network` carries their messages. `server` executes the effects of its election as the server's
//! driver does, and has a simulated disk. `node` and `etcd` are models. `fleet` measures calm
//! fleets, and `herd` large ones whose master changes. `ablation` disables one safety rule at a
//! time: an invariant must then break.

#![expect(
    clippy::indexing_slicing,
    reason = "indices are chosen from the processes and resources that exist"
)]

mod ablation;
mod client;
mod clock;
mod etcd;
mod event_queue;
mod fleet;
mod herd;
mod limits;
mod network;
mod node;
mod report;
mod server;
mod simulation;

pub use ablation::{Rule, UnknownRule};
pub use fleet::{Fleet, FleetPlan};
pub use herd::{Departure, HerdPlan, HerdReport, change_master};
pub use report::{Invariant, Stats, Violation};
pub use simulation::PollMode;

/// Options of one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// Length of the run in simulated seconds.
    pub seconds: f64,
    /// The safety rule to disable.
    pub without: Option<Rule>,
    /// Whether a violation contains the events before it.
    pub trace: bool,
}

/// Runs one simulation. The same seed and plan always give the same result.
///
/// # Errors
/// [`Violation`] if an invariant breaks.
pub fn simulate(seed: u64, plan: &Plan) -> Result<Stats, Box<Violation>> {
    simulation::Simulation::new(seed, *plan).run()
}
