//! The open connections, and eviction when the connection limit is reached.
//!
//! When the last slot is taken, long polls end, and the connections that have waited longest for
//! their peers are closed. So a new connection finds a slot unless requests in progress take all.

use std::{collections::HashMap, future::Future, sync::Arc};

use doorman_openapi::Moment;
use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};
use tokio::task::{Id, JoinSet};

use super::{activity::Activity, supervisor::Closed};
use crate::util::{clock, log_throttle::LogThrottle, peer::PeerAddr};

/// One slot in this many is freed at a time: each search looks at every connection.
const EVICTION_FRACTION: usize = 64;

#[derive(Debug)]
pub(super) struct Connections {
    limit: usize,
    tasks: JoinSet<Closed>,
    activities: HashMap<Id, Arc<Activity>>,
    metrics: ConnectionMetrics,
    full_log: LogThrottle,
    flood_log: LogThrottle,
}

impl Connections {
    pub(super) fn new(limit: usize, metrics: ConnectionMetrics) -> Self {
        metrics.limit.set(gauge_value(limit));
        Self {
            limit,
            tasks: JoinSet::new(),
            activities: HashMap::new(),
            metrics,
            full_log: LogThrottle::per_minute(),
            flood_log: LogThrottle::per_minute(),
        }
    }

    /// Spawns the task of a new connection, even beyond the limit.
    pub(super) fn add<F>(&mut self, peer: Option<PeerAddr>, serve: impl FnOnce(Arc<Activity>) -> F)
    where
        F: Future<Output = Closed> + Send + 'static,
    {
        let activity = Arc::new(Activity::new(peer));
        let task = self.tasks.spawn(serve(Arc::clone(&activity)));
        self.activities.insert(task.id(), activity);
        self.metrics.open.set(gauge_value(self.len()));
    }

    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.limit
    }

    /// Waits until a connection is closed; `None` when there is none.
    ///
    /// # Cancel safety
    /// Nothing is lost when it is dropped.
    pub(super) async fn closed(&mut self) -> Option<()> {
        let id = match self.tasks.join_next_with_id().await? {
            Ok((id, Closed::Done)) => id,
            Ok((id, Closed::Evicted)) => {
                self.metrics.evicted.inc();
                id
            }
            Ok((id, Closed::Flooded { evicted })) => {
                self.on_flooded(id);
                self.metrics.evicted.inc_by(u64::from(evicted));
                id
            }
            Err(error) => {
                tracing::error!(%error, "connection task failed");
                error.id()
            }
        };
        self.activities.remove(&id);
        self.metrics.open.set(gauge_value(self.len()));
        Some(())
    }

    fn on_flooded(&self, id: Id) {
        self.metrics.flooded.inc();
        if let Some(suppressed) = self.flood_log.admit(clock::now()) {
            let peer = self.activities.get(&id).and_then(|it| it.peer);
            tracing::warn!(
                ?peer,
                suppressed,
                "too many HTTP/2 control frames; connection closed"
            );
        }
    }

    /// Asks connections to close, several at a time: those with long polls, by `end_polls`, which
    /// returns how many it ends; then those that have waited longest for their peers, then those
    /// whose peers have been slowest to send a body or to take a response.
    pub(super) fn evict(&mut self, end_polls: impl Fn(usize) -> usize) {
        let now = clock::now();
        let wanted = (self.limit / EVICTION_FRACTION).max(1);
        let wanted = wanted.saturating_sub(end_polls(wanted));
        let mut waiting = Vec::new();
        let mut slow = Vec::new();
        for activity in self.activities.values() {
            let since = activity.waiting_since();
            if since != Moment::NEVER {
                waiting.push((since, activity));
                continue;
            }
            let since = activity.slow_since(now);
            if since != Moment::NEVER {
                slow.push((since, activity));
            }
        }
        let waiting = longest(waiting, wanted);
        let slow = longest(slow, wanted.saturating_sub(waiting.len()));
        for (_, activity) in waiting.iter().chain(&slow) {
            activity.evict();
        }
        if let Some(suppressed) = self.full_log.admit(now) {
            tracing::warn!(
                limit = self.limit,
                suppressed,
                "connection limit reached; closing connections that waited longest for their peers"
            );
        }
    }

    pub(super) async fn abort(mut self) {
        self.tasks.shutdown().await;
        self.metrics.open.set(0);
    }
}

/// The `count` connections that have waited longest.
fn longest(mut all: Vec<(Moment, &Arc<Activity>)>, count: usize) -> Vec<(Moment, &Arc<Activity>)> {
    if count < all.len() {
        all.select_nth_unstable_by_key(count, |(since, _)| *since);
        all.truncate(count);
    }
    all
}

/// Metrics of all connections of a listener; clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConnectionMetrics {
    open: Gauge,
    limit: Gauge,
    evicted: Counter,
    flooded: Counter,
}

impl ConnectionMetrics {
    #[cfg(test)]
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted.get()
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register("connections", "Open connections", self.open.clone());
        registry.register("connections_most", "Connection limit", self.limit.clone());
        registry.register(
            "connections_gave_way",
            "Connections closed while waiting for their peers because the limit was reached",
            self.evicted.clone(),
        );
        registry.register(
            "connections_flooded",
            "HTTP/2 connections closed because of too many control frames",
            self.flooded.clone(),
        );
    }
}

fn gauge_value(connections: usize) -> i64 {
    i64::try_from(connections).unwrap_or(i64::MAX)
}
