//! What a run has seen, and what it has found.

use std::{fmt, ops::AddAssign};

use super::Plan;

/// How much happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests that reached a server, those of nodes included.
    pub requests: u64,
    /// Answers with leases that reached a holder.
    pub answers: u64,
    /// Crashes, pauses, partitions, restarts, reloads and the like.
    pub mishaps: u64,
    /// Reigns that began.
    pub reigns: u64,
    /// Capacities cut by an operator.
    pub cuts: u64,
    /// How often more than the capacity was believed after such a cut: the named exception.
    pub excused: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        let Self {
            requests,
            answers,
            mishaps,
            reigns,
            cuts,
            excused,
        } = other;
        self.requests += requests;
        self.answers += answers;
        self.mishaps += mishaps;
        self.reigns += reigns;
        self.cuts += cuts;
        self.excused += excused;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} requests, {} answers, {} mishaps, {} reigns, {} cuts after which more than the capacity was believed {} times",
            self.requests, self.answers, self.mishaps, self.reigns, self.cuts, self.excused
        )
    }
}

/// What may never be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// More is believed than there is.
    Limit,
    /// A holder that held a part, and could have kept some of it, is left nothing.
    Part,
    /// Without faults and with constant demand, not everyone has come to their exact share.
    Rest,
}

/// Something that may never be, and how to see it again.
#[derive(Debug, Clone)]
pub struct Violation {
    /// The seed of the run.
    pub seed: u64,
    /// What was run.
    pub plan: Plan,
    /// Seconds from the beginning.
    pub at: f64,
    /// What is broken.
    pub broken: Broken,
    /// The same with names and numbers.
    pub what: String,
    /// What happened before it, when that was asked for.
    pub trace: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.trace {
            writeln!(f, "{line}")?;
        }
        let Self { seed, at, what, .. } = self;
        let minutes = self.plan.seconds / 60.0;
        writeln!(f, "seed {seed}, second {at:.3}: {what}")?;
        write!(
            f,
            "replay: cargo run --release -p doorman-tests --bin simulate -- --seed {seed} --minutes {minutes}"
        )?;
        self.plan
            .without
            .map_or(Ok(()), |rule| write!(f, " --without {rule}"))
    }
}

impl std::error::Error for Violation {}
