//! Those who wait for a limiter's tokens, in their order.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use super::{
    bucket::Take,
    sync::{MutexGuard, Notify},
};

/// Those who wait. Touched only by them, by who gives something back, and when the leasing side publishes.
///
/// Nobody ever waits for most of very many keys: what takes room comes with the first who does.
#[derive(Debug, Default)]
pub(super) struct WaitQueue(Option<Box<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    places: BTreeMap<Ticket, Take>,
    /// Wakes them after a publication.
    bell: Arc<Notify>,
}

/// Names a place in the line: a later one is further behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

impl WaitQueue {
    /// The bell to listen to before looking whether anything has changed.
    pub(super) fn bell(&mut self) -> Arc<Notify> {
        Arc::clone(&self.0.get_or_insert_default().bell)
    }

    /// The bell to ring when something has changed; `None` when nobody has ever waited.
    fn known_bell(&self) -> Option<Arc<Notify>> {
        let waiting = self.0.as_ref()?;
        Some(Arc::clone(&waiting.bell))
    }

    /// Joins the line at its end.
    pub(super) fn join(&mut self, take: Take) -> Ticket {
        let places = &mut self.0.get_or_insert_default().places;
        let last = places.last_key_value();
        let ticket = Ticket(last.map_or(0, |(last, _)| last.0.saturating_add(1)));
        places.insert(ticket, take);
        ticket
    }

    /// Where a place is by now; `None` when it has left.
    pub(super) fn place(&self, ticket: Ticket) -> Option<Take> {
        self.0.as_ref()?.places.get(&ticket).copied()
    }

    /// What all who wait have taken together.
    pub(super) fn cost(&self) -> f64 {
        let waiting = self.0.iter();
        let places = waiting.flat_map(|waiting| waiting.places.values());
        places.map(|take| take.cost).sum()
    }

    /// Leaves the line, and says from where. Those behind stay where they are.
    pub(super) fn leave(&mut self, ticket: Ticket) -> Option<Take> {
        self.0.as_mut()?.places.remove(&ticket)
    }

    /// Pulls those behind a place forward, or everybody, by tokens that were given back; says whether there were any. If they stayed,
    /// who comes next would be given tokens that are promised to them.
    pub(super) fn pull(&mut self, behind: Option<Ticket>, tokens: f64) -> bool {
        let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
        let mut moved = false;
        let Some(waiting) = &mut self.0 else {
            return moved;
        };
        for (_, take) in waiting.places.range_mut((from, Bound::Unbounded)) {
            take.start -= tokens;
            moved = true;
        }
        moved
    }

    /// Forgives those who wait what is owed before the first of them, beyond `at_most`; gives the most that may count as spent
    /// then: nobody who comes later gets a place that is theirs.
    pub(super) fn forgive(&mut self, at_most: f64) -> f64 {
        let first = self.0.as_ref();
        if let Some((_, first)) = first.and_then(|waiting| waiting.places.first_key_value()) {
            let beyond = first.start - at_most;
            if beyond > 0.0 {
                self.pull(None, beyond);
            }
        }
        let last = self.0.as_ref();
        let last = last.and_then(|waiting| waiting.places.last_key_value());
        last.map_or(at_most, |(_, last)| last.end().max(at_most))
    }
}

/// Wakes who waits. Whoever takes the bell after this has let go of the line sees what has changed.
pub(super) fn ring(line: MutexGuard<'_, WaitQueue>) {
    let bell = line.known_bell();
    drop(line);
    if let Some(bell) = bell {
        bell.notify_waiters();
    }
}
