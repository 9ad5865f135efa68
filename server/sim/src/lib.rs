//! Deterministic simulation of elections, the ledger and the client state machine.
//!
//! The real [`election`](doorman_core::election), [`Master`](doorman_core::master::Master) with its
//! reign, ledger and parent, and [`Holder`](tower_doorman::lease::Holder) run in virtual time. A
//! seed decides every delay and every fault. After each event the simulation checks that the
//! holders of a resource may together use no more than its capacity.
//!
//! `event_loop` is the simulation itself. `client`, `server` and `etcd` are the processes, and
//! `network` carries their messages. `server` executes the effects of its election and of its
//! requests to the parent node as the server's tasks do, and has a simulated disk. `etcd` is a
//! model. `tree` has the nodes, their servers and their parents.
//!
//! All runs execute a script (`scenario::steps`): faults, and changes of demands and documents, at
//! their seconds. `event_loop::faults` alone executes it. Which fault affects which process, and
//! when, is drawn when the script is made; the executor draws details, such as how long each server
//! of a crashed node is down. A step may wait for the end of a lease, a bound or an election, which
//! only the run knows. Scripts have two sources:
//!
//! - `scenario` is the format of `doorman simulate`, with demands over time (`scenario::wave`).
//!   `run` executes one and samples what clients hold. A [`Fleet`] is a scenario without faults,
//!   whose demands the caller changes.
//! - `random` draws faults for [`simulate`], a third of them in chains at the ends of leases,
//!   bounds and elections. A plan adds further kinds of faults and holders ([`Extras`]). A run
//!   without them draws no random numbers for them, so that a seed means the same.
//!
//! A [`Rule`] of `ablation` disables one safety rule at a time: an invariant must then break.

#![expect(
    clippy::indexing_slicing,
    reason = "indices are chosen from the processes and resources that exist"
)]

pub mod ablation;
mod aimd;
mod chart;
mod client;
mod clock;
mod data_dir;
mod etcd;
mod event_loop;
mod event_queue;
mod extras;
mod fleet;
mod limits;
mod network;
mod operations;
mod parallel;
mod phases;
mod random;
mod report;
mod run;
mod scenario;
mod server;
mod target;
mod totals;
mod tree;

pub use self::{
    ablation::{Rule, UnknownRule},
    chart::{ChartError, draw_chart},
    extras::{Extra, Extras, UnknownExtra},
    fleet::{Fleet, FleetPlan},
    limits::Limit,
    parallel::on_all_cores,
    phases::Phase,
    report::{Invariant, Plan, Stats, Violation},
    run::{
        Amounts, MeanAndWorst, Overshoot, Run, RunReport, Sample, Summary, TargetSummary,
        check_scenario, run_scenario, trace_scenario,
    },
    scenario::{InvalidScenario, PollMode, Resource, Scenario, ScenarioHolder},
    target::TargetFigures,
};

/// Runs one simulation. The same seed and plan always give the same result.
///
/// # Errors
/// [`Violation`] if an invariant breaks.
pub fn simulate(seed: u64, plan: &Plan) -> Result<Stats, Box<Violation>> {
    event_loop::Simulation::new(seed, *plan).run()
}
