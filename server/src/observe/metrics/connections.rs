//! Connections: how many are open, and how many made room for others.

use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};

/// What is known of all connections so far; clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Connections {
    open: Gauge,
    most: Gauge,
    gave_way: Counter,
}

impl Connections {
    /// There is room for so many.
    pub(crate) fn most(&self, most: usize) {
        self.most.set(amount(most));
    }

    /// So many are open.
    pub(crate) fn open(&self, open: usize) {
        self.open.set(amount(open));
    }

    /// One was closed to make room for others.
    pub(crate) fn one_gave_way(&self) {
        self.gave_way.inc();
    }

    #[cfg(test)]
    pub(crate) fn gave_way(&self) -> u64 {
        self.gave_way.get()
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("connections", "Open connections", self.open.clone());
        registry.register(
            "connections_most",
            "The most connections that may be open at one time",
            self.most.clone(),
        );
        registry.register(
            "connections_gave_way",
            "Connections that were closed while they waited for their peers, since all were taken",
            self.gave_way.clone(),
        );
    }
}

fn amount(connections: usize) -> i64 {
    i64::try_from(connections).unwrap_or(i64::MAX)
}
