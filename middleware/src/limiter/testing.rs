//! A leasing side made by hand.

use std::{sync::Arc, time::Duration};

use doorman_openapi::ResourceId;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::{
    LeaseState, Limiter, LimiterSettings, Nudge, Policy, Registry, SafeRate, Source, WorkerWatchdog,
};
use crate::{WorkerState, clock, lease::Sharing, status::Status};

/// A registry whose worker is the test.
pub(crate) fn leased_registry(max_keys: usize) -> (Arc<Registry>, UnboundedReceiver<Nudge>) {
    let (nudges, received) = unbounded_channel();
    let registry = Registry::new(
        max_keys,
        Source::Worker {
            nudges,
            watchdog: WorkerWatchdog::new(Arc::new(Status::new(WorkerState::Running))),
        },
    );
    (registry, received)
}

/// A registry that needs no worker.
pub(crate) fn static_registry(
    standing: impl Fn(&ResourceId) -> LeaseState + Send + Sync + 'static,
) -> Arc<Registry> {
    Registry::new(1_000, Source::Static(Box::new(standing)))
}

/// A lease of so many tokens a second for so long, of a whole limit of 1,000 a second; the next refresh is in 2 s, and nothing is
/// known of a safe capacity.
pub(crate) fn leased(rate: f64, length: Duration) -> LeaseState {
    lease_of(Some(rate), length, false)
}

/// The same, on all that was asked for: there may be more.
pub(crate) fn leased_as_requested(rate: f64, length: Duration) -> LeaseState {
    lease_of(Some(rate), length, true)
}

/// A lease on a resource of which there is nothing.
pub(crate) fn blocked(length: Duration) -> LeaseState {
    lease_of(None, length, false)
}

fn lease_of(rate: Option<f64>, length: Duration, may_grow: bool) -> LeaseState {
    let now = clock::now();
    LeaseState::Leased {
        rate,
        ends: now.after(length),
        safe: None,
        refresh_at: now.after(Duration::from_secs(2)),
        policy: Some(Policy {
            limit: 1_000.0,
            per: 1.0,
        }),
        sharing: Sharing::Divided,
        may_grow,
    }
}

/// No lease, of a whole limit of 1,000 a second; the next refresh is in 2 s.
pub(crate) fn no_lease(safe: Option<SafeRate>) -> LeaseState {
    LeaseState::NoLease {
        safe,
        refresh_at: clock::now().after(Duration::from_secs(2)),
        policy: Some(Policy {
            limit: 1_000.0,
            per: 1.0,
        }),
        answered: false,
    }
}

impl Registry {
    /// The limiter of a key, for longer than a decision takes.
    pub(crate) fn key(
        &self,
        resource: &str,
        settings: &Arc<LimiterSettings>,
    ) -> Option<Arc<Limiter>> {
        self.keyed(&self.found(), resource.as_bytes(), settings)
            .cloned()
    }

    /// The limiter of the keys without room, for longer than a decision takes.
    pub(crate) fn spare(
        &self,
        resource: &ResourceId,
        settings: &Arc<LimiterSettings>,
    ) -> Arc<Limiter> {
        Arc::clone(self.overflow(&self.found(), resource, settings))
    }

    /// Publishes for a resource that is there.
    pub(crate) fn publish(&self, resource: &str, standing: LeaseState) {
        self.known(resource).publish(standing, clock::now());
    }

    /// The limiter of a resource that is there.
    pub(crate) fn known(&self, resource: &str) -> Arc<Limiter> {
        let limiters = self.limiters();
        limiters
            .into_iter()
            .find(|limiter| limiter.resource().as_str() == resource)
            .unwrap_or_else(|| panic!("no limiter for {resource}"))
    }
}
