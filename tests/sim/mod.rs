//! The real core and the real client state machine in a world of their own: virtual time, chance from a seed, and everything that can
//! go wrong between processes. After every event the referee compares what all holders believe they may use with what there is.
//!
//! `world` lets what is in the `schedule` happen; `server`, `client` and `node` are the processes, `wire` and `etcd` what lies between
//! them, `lives` what they do by themselves, `traffic` what they do on a message, `mishaps` what befalls them; `verdict` puts it all
//! before the `referee`, who knows what may never be. `ablation` names the rules that a run can do without: each of them must
//! then be missed.

#![expect(
    clippy::indexing_slicing,
    reason = "a simulation that is mistaken in what there is has failed"
)]

mod ablation;
mod bend;
mod client;
mod clock;
mod etcd;
mod lives;
mod mishaps;
mod node;
mod referee;
mod report;
mod schedule;
mod server;
mod terms;
mod traffic;
mod verdict;
mod wire;
mod world;

pub use ablation::{Rule, UnknownRule};
pub use report::{Broken, Tally, Violation};

/// What is run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// Simulated seconds.
    pub seconds: f64,
    /// The rule to do without.
    pub without: Option<Rule>,
    /// Whether a violation tells what happened before it.
    pub traced: bool,
}

/// Runs one world. The same seed and plan always run the same.
///
/// # Errors
/// [`Violation`]: the limit was broken, or the system did not come to rest as it must.
pub fn play(seed: u64, plan: &Plan) -> Result<Tally, Box<Violation>> {
    world::World::new(seed, *plan).run()
}
