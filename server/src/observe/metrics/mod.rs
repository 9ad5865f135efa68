//! Metrics, exported as OpenMetrics text by `GET /metrics`.
//!
//! # To add a metric
//!
//! - A number that changes while the server works: add a counter, gauge or histogram beside the
//!   code that changes it, in the struct that has a `register` function ([`RequestMetrics`],
//!   `net::ConnectionMetrics`, `quota::Quotas`), and register it there. A new struct is registered in
//!   `http/metrics/scrape.rs`.
//! - A number that a part of the server knows anyway: read it in `http/metrics/scrape.rs`, or in
//!   `http/metrics/ledger.rs` for the ledger. It costs nothing until a scrape.
//!
//! Labels must be bounded whatever clients send. Names are a public interface:
//! `http/tests/metrics.rs` lists them. `docs/OPERATIONS.md` explains those that operators watch.

mod requests;

use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

pub(crate) use self::requests::RequestMetrics;

/// Counts how often something had each of its outcomes; clones share the counts.
#[derive(Debug, Clone)]
pub(crate) struct Outcomes(Family<[(&'static str, &'static str); 1], Counter>);

impl Outcomes {
    /// Begins with zeros, so that every outcome is exported.
    pub(crate) fn new<const N: usize>(outcomes: [&'static str; N]) -> Self {
        Self(counters("outcome", outcomes.map(|outcome| (outcome, 0))))
    }

    pub(crate) fn count(&self, outcome: &'static str) {
        self.0.get_or_create(&[("outcome", outcome)]).inc();
    }

    pub(crate) fn register(&self, registry: &mut Registry, name: &str, help: &str) {
        registry.register(name, help, self.0.clone());
    }

    #[cfg(test)]
    pub(crate) fn get(&self, outcome: &'static str) -> u64 {
        self.0.get_or_create(&[("outcome", outcome)]).get()
    }
}

/// Counters that differ in one label.
pub(crate) fn counters<const N: usize>(
    label: &'static str,
    counts: [(&'static str, u64); N],
) -> Family<[(&'static str, &'static str); 1], Counter> {
    let family = Family::<_, Counter>::default();
    for (value, count) in counts {
        family.get_or_create(&[(label, value)]).inc_by(count);
    }
    family
}
