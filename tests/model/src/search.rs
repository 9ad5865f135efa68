//! Breadth-first search: the first violation has a shortest trace.
//!
//! Of each state that was seen only a hash of 64 bits is kept, so two states in about 10¹⁹ pairs
//! may be taken for one.

use std::{
    collections::HashSet,
    hash::{BuildHasher, Hasher},
    time::{Duration, Instant},
};

use foldhash::fast::FixedState;

use crate::{
    machine::Broken,
    model::{Action, Model, State},
};

/// When a search ends without a violation.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The most steps of a trace.
    pub depth: usize,
    /// The most states.
    pub states: usize,
    /// The most time.
    pub time: Duration,
}

/// The result of a search.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The number of states that were met.
    pub states: usize,
    /// The number of steps after which all states were tried; of a violation, those of its trace.
    pub depth: usize,
    /// Whether there are no further states.
    pub is_complete: bool,
    /// The steps to a violation.
    pub violation: Option<(Vec<Action>, Broken)>,
    /// The time that it took.
    pub time: Duration,
}

#[derive(Debug, Default, Clone, Copy)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers are hashed")
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

impl BuildHasher for Identity {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        Self(0)
    }
}

/// Tries all steps from the initial state.
#[expect(
    clippy::disallowed_methods,
    reason = "the time that a search takes is shown to people"
)]
pub fn search(
    model: &mut Model,
    limits: &Limits,
    mut progress: impl FnMut(usize, usize),
) -> Outcome {
    let started = Instant::now();
    let hasher = FixedState::with_seed(1);
    let mut seen: HashSet<u64, Identity> = HashSet::with_hasher(Identity(0));
    // The parent of each state, and the step from it.
    let mut parents: Vec<(u32, Action)> = vec![(0, Action::Tick)];
    let initial = model.initial();
    seen.insert(hasher.hash_one(initial));
    let mut frontier = vec![(initial, 0_u32)];
    let mut depth = 0;
    let outcome = |states, depth, is_complete, violation| Outcome {
        states,
        depth,
        is_complete,
        violation,
        time: started.elapsed(),
    };
    while depth < limits.depth && !frontier.is_empty() {
        let mut next: Vec<(State, u32)> = Vec::new();
        for (state, number) in &frontier {
            for step in model.steps(state) {
                if let Some(broken) = step.broken {
                    let mut actions = trace(&parents, *number);
                    actions.push(step.action);
                    let found = Some((actions, broken));
                    return outcome(seen.len(), depth + 1, false, found);
                }
                if seen.insert(hasher.hash_one(step.state)) {
                    let child = u32::try_from(parents.len()).expect("there are fewer states");
                    parents.push((*number, step.action));
                    next.push((step.state, child));
                }
            }
            if seen.len() >= limits.states || started.elapsed() >= limits.time {
                return outcome(seen.len(), depth, false, None);
            }
        }
        depth += 1;
        frontier = next;
        progress(depth, seen.len());
    }
    outcome(seen.len(), depth, frontier.is_empty(), None)
}

fn trace(parents: &[(u32, Action)], mut state: u32) -> Vec<Action> {
    let mut actions = Vec::new();
    while state != 0 {
        let (parent, action) = parents[state as usize];
        actions.push(action);
        state = parent;
    }
    actions.reverse();
    actions
}
