//! The connections that are open, and which of them make room when there are too many.
//!
//! A newcomer always finds a place, unless all are taken by requests under way: as soon as the last place is taken, the connections that
//! have waited longest for their peers are closed. Their clients lose nothing but a connection that they were not using.

use std::{collections::HashMap, future::Future, sync::Arc};

use doorman_openapi::Moment;
use tokio::task::{Id, JoinSet};

use super::{activity::Activity, keeper::Ended, patience::SLOW, seldom::Seldom};
use crate::{observe::metrics::Connections, quota::Peer, util::clock};

/// One place in so many is made free at a time. Finding who has waited longest means looking at every connection, which would be too much
/// for each newcomer.
const MAKES_ROOM: usize = 64;

/// The open connections, each with its task.
#[derive(Debug)]
pub(super) struct Crowd {
    most: usize,
    tasks: JoinSet<Ended>,
    activities: HashMap<Id, Arc<Activity>>,
    counted: Connections,
    full: Seldom,
}

impl Crowd {
    /// Nobody, with room for so many.
    pub(super) fn new(most: usize, counted: Connections) -> Self {
        counted.most(most);
        Self {
            most,
            tasks: JoinSet::new(),
            activities: HashMap::new(),
            counted,
            full: Seldom::default(),
        }
    }

    /// Takes a connection of a peer in, which `serve` serves, whether there is room for it or not.
    pub(super) fn add<F>(&mut self, peer: Peer, serve: impl FnOnce(Arc<Activity>) -> F)
    where
        F: Future<Output = Ended> + Send + 'static,
    {
        let activity = Arc::new(Activity::of(peer));
        let task = self.tasks.spawn(serve(Arc::clone(&activity)));
        self.activities.insert(task.id(), activity);
        self.counted.open(self.len());
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether all places are taken.
    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.most
    }

    /// Waits until a connection has ended; `None` when there is none.
    ///
    /// # Cancel safety
    /// Nothing is lost when it is dropped.
    pub(super) async fn one_ends(&mut self) -> Option<()> {
        let id = match self.tasks.join_next_with_id().await? {
            Ok((id, Ended::Over)) => id,
            Ok((id, Ended::GaveWay)) => {
                self.counted.one_gave_way();
                id
            }
            Err(error) => {
                tracing::error!(%error, "a connection's task failed");
                error.id()
            }
        };
        self.activities.remove(&id);
        self.counted.open(self.len());
        Some(())
    }

    /// Makes room for newcomers, several at a time: asks the connections to close that have waited longest for their peers, and, where
    /// fewer wait than are needed, those whose peers have been slowest to send a body or to take an answer.
    pub(super) fn make_room(&mut self) {
        let now = clock::now();
        let go = (self.most / MAKES_ROOM).max(1);
        let mut waiting = Vec::new();
        let mut slow = Vec::new();
        for activity in self.activities.values() {
            let since = activity.waits_since();
            if since != Moment::NEVER {
                waiting.push((since, activity));
                continue;
            }
            let since = activity.lags_since();
            if since.after(SLOW) <= now {
                slow.push((since, activity));
            }
        }
        let waiting = longest(waiting, go);
        let slow = longest(slow, go.saturating_sub(waiting.len()));
        for (_, activity) in waiting.iter().chain(&slow) {
            activity.give_way();
        }
        if self.full.is_due(now) {
            tracing::warn!(
                most = self.most,
                "all connections are taken: those that have waited longest for their peers are closed"
            );
        }
    }

    /// Cuts off all that are left.
    pub(super) async fn cut_off(mut self) {
        self.tasks.shutdown().await;
        self.counted.open(0);
    }
}

/// So many of them as have waited longest.
fn longest(mut all: Vec<(Moment, &Arc<Activity>)>, number: usize) -> Vec<(Moment, &Arc<Activity>)> {
    if number < all.len() {
        all.select_nth_unstable_by_key(number, |(since, _)| *since);
        all.truncate(number);
    }
    all
}
