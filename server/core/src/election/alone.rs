//! The only server of a node: always master, with its state in a data directory.

use doorman_openapi::{Epoch, Moment, Seconds};

use super::{
    CallId, Effect, Election, EndReason, Event, Learn, ReignEffect, Term, Time, View,
    longest_booking, nanos_between,
};
use crate::reign::{Bound, DueTerms, TermsGeneration};

/// Seconds until a failed write is tried again.
const RETRY_DELAY: f64 = 1.0;

/// A write to the data directory. A reply says that it is durable.
#[derive(Debug, Clone, PartialEq)]
pub enum DiskCall {
    /// Of a bound.
    Bound(Bound),
    /// Of the terms of leases.
    Terms(DueTerms),
}

/// The data directory as the last server left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundState {
    /// The last epoch; `None` in a new directory.
    pub last_epoch: Option<Epoch>,
    /// The bound of its leases.
    pub bound: FoundBound,
    /// The longest booking of any lease of the node that it has heard of, in nanoseconds; `None` if
    /// it has heard of none.
    pub longest: Option<u64>,
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
    /// Whether nothing is stored about the length of earlier leases, so that an assumption decides.
    pub is_assumed: bool,
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
    /// The leases that may be outstanding. `assumed` is the longest lease of the document, or the
    /// operator's: where no bound is known, they may be that long, even if no longer one is stored.
    #[must_use]
    pub fn outstanding(&self, assumed: Seconds, now: Moment) -> Outstanding {
        let after = |nanos: u64| Moment::from_nanos(now.as_nanos().saturating_add(nanos));
        let longest = after(longest_booking(self.longest, assumed));
        let (reason, until) = match self.bound {
            _ if self.had_election => (Reason::HadElection, Some(longest)),
            FoundBound::ThisBoot { ends, .. } => (Reason::Bound, Some(ends)),
            FoundBound::OtherBoot { longest } => (Reason::OtherBoot, Some(after(longest))),
            FoundBound::Missing if self.last_epoch.is_none() && self.is_first => {
                (Reason::FirstStart, None)
            }
            FoundBound::Missing if self.last_epoch.is_none() => {
                (Reason::EmptyDirectory, Some(longest))
            }
            FoundBound::Missing | FoundBound::Corrupted => (Reason::NoBound, Some(longest)),
        };
        let is_known = matches!(
            reason,
            Reason::FirstStart | Reason::Bound | Reason::OtherBoot
        );
        Outstanding {
            until,
            reason,
            is_assumed: !is_known && self.longest.is_none(),
        }
    }

    /// The longest booking of any lease that may be outstanding until then, in nanoseconds: what is
    /// left is an upper bound on it from now on.
    fn longest_left(&self, until: Moment, now: Moment) -> u64 {
        let left = nanos_between(now, until);
        match self.bound {
            FoundBound::ThisBoot { longest, .. } | FoundBound::OtherBoot { longest }
                if !self.had_election =>
            {
                longest.min(left)
            }
            _ => left,
        }
    }
}

/// The election of a server that has no peers.
#[derive(Debug)]
pub struct Alone {
    term: Term,
    state: Phase,
    address: String,
    calls: u64,
    bound: Write,
    terms: Write,
}

/// A kind of writes, of which one is executed at a time.
#[derive(Debug, Default)]
struct Write {
    current: Option<(CallId, DiskCall)>,
    retry_at: Moment,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Starting,
    Master,
    Resigned,
}

impl Alone {
    /// Begins `epoch` on a data directory, by the server that others reach at `address`.
    /// `restored` is the end of the last lease of the ledger that the last server left, if it did,
    /// `terms` those that it has stored.
    #[must_use]
    pub fn new(
        found: &FoundState,
        restored: Option<Moment>,
        epoch: Epoch,
        address: String,
        assumed: Seconds,
        terms: Vec<TermsGeneration>,
        now: Moment,
    ) -> Self {
        let outstanding = found.outstanding(assumed, now);
        // A restored ledger has all leases, but a bound of the same clock is never lowered.
        let ends = match restored {
            Some(ends) if outstanding.reason != Reason::Bound => Some(ends),
            _ => restored.max(outstanding.until),
        };
        let longest = ends.map_or(0, |ends| found.longest_left(ends, now));
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
            longest: found.longest,
            bound: (ends.unwrap_or(Moment::ORIGIN), longest),
            terms,
            other_terms: Vec::new(),
        };
        Self {
            term,
            state: Phase::Starting,
            address,
            calls: 0,
            bound: Write::default(),
            terms: Write::default(),
        }
    }

    /// How the reign begins. Its bound must be durable before.
    #[must_use]
    pub fn term(&self) -> &Term {
        &self.term
    }

    fn write(&mut self, call: DiskCall, now: Moment) -> Vec<Effect<DiskCall>> {
        let write = match call {
            DiskCall::Bound(_) => &mut self.bound,
            DiskCall::Terms(_) => &mut self.terms,
        };
        if self.state != Phase::Master || write.current.is_some() || now < write.retry_at {
            return Vec::new();
        }
        let id = CallId(self.calls);
        self.calls = self.calls.saturating_add(1);
        write.current = Some((id, call.clone()));
        vec![Effect::Call { id, call }]
    }

    fn on_reply(&mut self, id: CallId, result: Option<()>, now: Moment) -> Option<ReignEffect> {
        let mut writes = [&mut self.bound, &mut self.terms].into_iter();
        let (write, call) = writes.find_map(|write| {
            let (_, call) = write.current.take_if(|(current, _)| *current == id)?;
            Some((write, call))
        })?;
        if result.is_none() {
            write.retry_at = now.after_seconds(RETRY_DELAY);
        }
        Some(match (call, result) {
            (DiskCall::Bound(bound), Some(())) => ReignEffect::BoundWritten(bound),
            (DiskCall::Bound(_), None) => ReignEffect::BoundFailed,
            (DiskCall::Terms(terms), Some(())) => ReignEffect::TermsWritten(terms),
            (DiskCall::Terms(_), None) => ReignEffect::TermsFailed,
        })
    }
}

impl Election for Alone {
    type Call = DiskCall;
    type Reply = ();

    fn handle(&mut self, event: Event<()>, time: Time) -> Vec<Effect<DiskCall>> {
        match event {
            Event::Wake if self.state == Phase::Starting => {
                self.state = Phase::Master;
                vec![ReignEffect::Begin(self.term.clone()).into()]
            }
            Event::BoundDue(due) => self.write(DiskCall::Bound(due), time.now),
            Event::TermsDue(due) => self.write(DiskCall::Terms(due), time.now),
            Event::Reply { call, result } => {
                let effect = self.on_reply(call, result, time.now);
                effect.into_iter().map(Effect::Reign).collect()
            }
            Event::Resign { .. } => {
                // The ledger goes to the data directory, not to a peer.
                let was_master = std::mem::replace(&mut self.state, Phase::Resigned);
                let end = ReignEffect::End(EndReason::Resigned);
                let end = (was_master == Phase::Master).then(|| end.into());
                end.into_iter()
                    .chain([Effect::Resigned { offered: None }])
                    .collect()
            }
            Event::Wake | Event::LedgerFetched { .. } => Vec::new(),
        }
    }

    fn wake_at(&self) -> Moment {
        match self.state {
            Phase::Starting => Moment::ORIGIN,
            Phase::Master | Phase::Resigned => Moment::NEVER,
        }
    }

    fn view(&self) -> View {
        View {
            address: (self.state != Phase::Resigned).then(|| self.address.clone()),
            epoch: self.last_epoch(),
            longest: self.term.longest,
            unread_since: None,
            has_read: true,
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
    fn longest_lease_that_is_stored_counts_where_no_bound_does() {
        let assumed = Seconds::saturating(10.0);
        let found = |bound, had_election, longest: Option<u64>| FoundState {
            last_epoch: Epoch::new(1).ok(),
            bound,
            longest: longest.map(|seconds| seconds * 1_000_000_000),
            had_election,
            is_first: false,
        };
        for (bound, had_election) in [
            (FoundBound::Missing, false),
            (FoundBound::Corrupted, false),
            (FoundBound::Missing, true),
        ] {
            for (longest, seconds) in [(None, 10.5), (Some(630), 630.0), (Some(5), 10.5)] {
                let found = found(bound, had_election, longest);
                let outstanding = found.outstanding(assumed, NOW);
                let until = Some(NOW.after_seconds(seconds));
                assert_eq!(outstanding.until, until, "{found:?}");
                assert_eq!(outstanding.is_assumed, longest.is_none(), "{found:?}");
            }
        }
    }

    #[test]
    fn stored_longest_lease_shrinks_to_what_is_left_of_earlier_leases() {
        let longest = 630_000_000_000;
        let new = |until: f64, had_election| {
            let found = FoundState {
                last_epoch: Epoch::new(1).ok(),
                bound: FoundBound::ThisBoot {
                    ends: Moment::ORIGIN.after_seconds(until),
                    longest,
                },
                longest: Some(longest),
                had_election,
                is_first: false,
            };
            let (epoch, assumed) = (Epoch::new(2).unwrap(), Seconds::saturating(10.0));
            Alone::new(&found, None, epoch, String::new(), assumed, Vec::new(), NOW)
        };
        assert_eq!(new(1633.0, false).term().bound.1, longest);
        assert_eq!(new(1100.0, false).term().bound.1, 100_000_000_000);
        assert_eq!(new(999.0, false).term().bound.1, 0);
        // Others may have granted leases since.
        assert_eq!(new(999.0, true).term().bound.1, longest);
    }

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
                        longest: None,
                        had_election: false,
                        is_first,
                    };
                    let outstanding = found.outstanding(Seconds::saturating(100.0), NOW);
                    let until = until.map(at);
                    assert_eq!((outstanding.reason, outstanding.until), (reason, until));
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
