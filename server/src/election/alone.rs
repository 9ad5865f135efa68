//! The only server of a node: always master, with its state in a data directory.

use doorman_openapi::{CLOCK_DRIFT, Epoch, Moment, Seconds};

use super::{CallId, Effect, Election, EndReason, Event, Learn, Term, Time, View};
use crate::reign::DueBound;

/// Seconds until a failed write is tried again.
const RETRY_DELAY: f64 = 1.0;

/// Writes a bound to the data directory. The reply is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskCall(pub DueBound);

/// The data directory as the last server left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundState {
    /// The last epoch; `None` in a new directory.
    pub last_epoch: Option<Epoch>,
    /// The bound of its leases.
    pub bound: FoundBound,
    /// Whether the last server took part in an election. Others may have been master since.
    pub had_election: bool,
    /// Whether a new directory means that there was no server before.
    pub is_first: bool,
}

/// A bound in a data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundBound {
    /// There is none.
    Missing,
    /// It cannot be read.
    Corrupted,
    /// It was written in this boot.
    ThisBoot {
        /// No lease is booked for longer.
        ends: Moment,
        /// The longest booking of any lease, in nanoseconds.
        longest: u64,
    },
    /// It was written before the clock began anew.
    OtherBoot {
        /// The longest booking of any lease, in nanoseconds.
        longest: u64,
    },
}

/// Until when leases of earlier servers may be outstanding; `None` when there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outstanding {
    /// Their end.
    pub until: Option<Moment>,
    /// How it is known.
    pub reason: Reason,
}

/// Why leases of earlier servers may be outstanding, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The directory is empty, and no other can have been lost.
    FirstStart,
    /// The directory is empty, but another may be lost.
    EmptyDirectory,
    /// The bound was written in this boot.
    Bound,
    /// The bound was written before the clock began anew.
    OtherBoot,
    /// The bound is missing or corrupted.
    NoBound,
    /// The last server took part in an election.
    HadElection,
}

impl FoundState {
    /// The leases that may be outstanding. `longest` is the longest lease of the document.
    #[must_use]
    pub fn outstanding(&self, longest: Seconds, now: Moment) -> Outstanding {
        let longest = now.after_seconds(longest.get() * CLOCK_DRIFT);
        let (reason, until) = match self.bound {
            _ if self.had_election => (Reason::HadElection, Some(longest)),
            FoundBound::ThisBoot { ends, .. } => (Reason::Bound, Some(ends)),
            FoundBound::OtherBoot { longest } => {
                let until = now.as_nanos().saturating_add(longest);
                (Reason::OtherBoot, Some(Moment::from_nanos(until)))
            }
            FoundBound::Missing if self.last_epoch.is_none() && self.is_first => {
                (Reason::FirstStart, None)
            }
            FoundBound::Missing if self.last_epoch.is_none() => {
                (Reason::EmptyDirectory, Some(longest))
            }
            FoundBound::Missing | FoundBound::Corrupted => (Reason::NoBound, Some(longest)),
        };
        Outstanding { until, reason }
    }
}

/// The election of a server that has no peers.
#[derive(Debug)]
pub struct Alone {
    term: Term,
    state: State,
    address: String,
    calls: u64,
    writing: Option<(CallId, DueBound)>,
    retry_at: Moment,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Starting,
    Master,
    Resigned,
}

impl Alone {
    /// Begins `epoch` on a data directory, by the server that others reach at `address`.
    /// `restored` is the end of the last lease of the ledger that the last server left, if it did.
    #[must_use]
    pub fn new(
        found: &FoundState,
        restored: Option<Moment>,
        epoch: Epoch,
        address: String,
        longest: Seconds,
        now: Moment,
    ) -> Self {
        let outstanding = found.outstanding(longest, now);
        // A restored ledger has all leases, but a bound of the same clock is never lowered.
        let ends = match restored {
            Some(ends) if outstanding.reason != Reason::Bound => Some(ends),
            _ => restored.max(outstanding.until),
        };
        let left = |until: Moment| until.as_nanos().saturating_sub(now.as_nanos());
        let left = outstanding.until.map_or(0, left);
        let longest = match found.bound {
            FoundBound::ThisBoot { longest, .. } | FoundBound::OtherBoot { longest } => {
                // Masters elected since may have granted longer leases.
                longest.max(if found.had_election { left } else { 0 })
            }
            FoundBound::Missing | FoundBound::Corrupted => left,
        };
        let learn = match (restored, outstanding.until) {
            (Some(_), _) | (None, None) => Learn::Nothing,
            (None, Some(until)) => Learn::Until(until),
        };
        let term = Term {
            epoch,
            deadline: Moment::NEVER,
            inherits: restored.is_some(),
            learn,
            // The first bound covers them.
            uncovered: Learn::Nothing,
            bound: (ends.unwrap_or(Moment::ORIGIN), longest),
        };
        Self {
            term,
            state: State::Starting,
            address,
            calls: 0,
            writing: None,
            retry_at: Moment::ORIGIN,
        }
    }

    /// How the reign begins. Its bound must be durable before.
    #[must_use]
    pub fn term(&self) -> &Term {
        &self.term
    }
}

impl Election for Alone {
    type Call = DiskCall;
    type Reply = ();

    fn handle(&mut self, event: Event<()>, time: Time) -> Vec<Effect<DiskCall>> {
        match event {
            Event::Wake if self.state == State::Starting => {
                self.state = State::Master;
                vec![Effect::Begin(self.term)]
            }
            Event::BoundDue(due)
                if self.state == State::Master
                    && self.writing.is_none()
                    && self.retry_at <= time.now =>
            {
                let id = CallId(self.calls);
                self.calls = self.calls.saturating_add(1);
                self.writing = Some((id, due));
                let call = DiskCall(due);
                vec![Effect::Call { id, call }]
            }
            Event::Reply { call, result } => {
                let Some((_, due)) = self.writing.take_if(|(id, _)| *id == call) else {
                    return Vec::new();
                };
                if result.is_some() {
                    vec![Effect::BoundWritten(due.until)]
                } else {
                    self.retry_at = time.now.after_seconds(RETRY_DELAY);
                    vec![Effect::BoundFailed]
                }
            }
            Event::Resign { .. } => {
                // The ledger goes to the data directory, not to a peer.
                let was_master = std::mem::replace(&mut self.state, State::Resigned);
                let end = (was_master == State::Master).then_some(Effect::End(EndReason::Resigned));
                end.into_iter()
                    .chain([Effect::Resigned { offered: None }])
                    .collect()
            }
            Event::Wake | Event::BoundDue(_) | Event::LedgerFetched { .. } => Vec::new(),
        }
    }

    fn wake_at(&self) -> Moment {
        match self.state {
            State::Starting => Moment::ORIGIN,
            State::Master | State::Resigned => Moment::NEVER,
        }
    }

    fn view(&self) -> View {
        View {
            address: (self.state != State::Resigned).then(|| self.address.clone()),
            epoch: self.last_epoch(),
        }
    }

    fn last_epoch(&self) -> Option<Epoch> {
        Some(self.term.epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment::from_nanos(1_000_000_000_000);

    #[test]
    fn outstanding_leases_follow_from_bound_and_directory() {
        let at = |seconds: f64| Moment::ORIGIN.after_seconds(seconds);
        let epoch = Epoch::new(1).unwrap();
        let longest = 63_000_000_000;
        for is_first in [true, false] {
            for last_epoch in [None, Some(epoch)] {
                let check = |bound, reason, until: Option<f64>| {
                    let found = FoundState {
                        last_epoch,
                        bound,
                        had_election: false,
                        is_first,
                    };
                    let outstanding = found.outstanding(Seconds::saturating(100.0), NOW);
                    let until = until.map(at);
                    assert_eq!(outstanding, Outstanding { until, reason });
                    let had_election = FoundState {
                        had_election: true,
                        ..found
                    };
                    let outstanding = had_election.outstanding(Seconds::saturating(100.0), NOW);
                    assert_eq!(outstanding.until, Some(at(1105.0)));
                };
                let ends = at(1012.0);
                let this_boot = FoundBound::ThisBoot { ends, longest };
                check(this_boot, Reason::Bound, Some(1012.0));
                let ends = at(900.0);
                let this_boot = FoundBound::ThisBoot { ends, longest };
                check(this_boot, Reason::Bound, Some(900.0));
                let other_boot = FoundBound::OtherBoot { longest };
                check(other_boot, Reason::OtherBoot, Some(1063.0));
                check(FoundBound::Corrupted, Reason::NoBound, Some(1105.0));
                let (reason, until) = match (last_epoch, is_first) {
                    (Some(_), _) => (Reason::NoBound, Some(1105.0)),
                    (None, false) => (Reason::EmptyDirectory, Some(1105.0)),
                    (None, true) => (Reason::FirstStart, None),
                };
                check(FoundBound::Missing, reason, until);
            }
        }
    }
}
