//! Those who wait for a limiter's tokens, in their order.

use std::{collections::BTreeMap, ops::Bound};

use super::bucket::Take;

/// The places of those who wait. Touched only by them, by who gives something back, and when the leasing side publishes.
#[derive(Debug, Default)]
pub(super) struct Line(BTreeMap<Ticket, Take>);

/// Names a place in the line: a later one is further behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

impl Line {
    /// Joins the line at its end.
    pub(super) fn join(&mut self, take: Take) -> Ticket {
        let last = self.0.last_key_value();
        let ticket = Ticket(last.map_or(0, |(last, _)| last.0.saturating_add(1)));
        self.0.insert(ticket, take);
        ticket
    }

    /// Where a place is by now; `None` when it has left.
    pub(super) fn place(&self, ticket: Ticket) -> Option<Take> {
        self.0.get(&ticket).copied()
    }

    /// Leaves the line, and says from where. Those behind stay where they are.
    pub(super) fn leave(&mut self, ticket: Ticket) -> Option<Take> {
        self.0.remove(&ticket)
    }

    /// Pulls those behind a place forward, or everybody, by tokens that were given back; says whether there were any. If they stayed,
    /// who comes next would be given tokens that are promised to them.
    pub(super) fn pull(&mut self, behind: Option<Ticket>, tokens: f64) -> bool {
        let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
        let mut moved = false;
        for (_, take) in self.0.range_mut((from, Bound::Unbounded)) {
            take.start -= tokens;
            moved = true;
        }
        moved
    }

    /// Forgives those who wait what is owed before the first of them, beyond `at_most`; gives the most that may count as spent
    /// then: nobody who comes later gets a place that is theirs.
    pub(super) fn forgive(&mut self, at_most: f64) -> f64 {
        if let Some((_, first)) = self.0.first_key_value() {
            let beyond = first.start - at_most;
            if beyond > 0.0 {
                self.pull(None, beyond);
            }
        }
        let end = self.0.last_key_value().map(|(_, last)| last.end());
        end.map_or(at_most, |end| end.max(at_most))
    }
}
