//! Registries and lease states for tests.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use doorman_holder::Sharing;
use doorman_openapi::ResourceId;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::{
    Growth, LeaseState, Limiter, LimiterSettings, Nudge, Policy, Registry, SafeRate, Source,
    WorkerWatchdog,
};
use crate::{WorkerState, clock, status::Status};

/// A registry for which the test is the worker.
pub(crate) fn leased_registry(max_keys: usize) -> (Arc<Registry>, UnboundedReceiver<Nudge>) {
    let (nudges, received) = unbounded_channel();
    let registry = Registry::new(
        max_keys,
        Source::Worker {
            nudges,
            watchdog: WorkerWatchdog::new(Arc::new(Status::new(WorkerState::Running))),
            first_state: ArcSwapOption::empty(),
        },
    );
    (registry, received)
}

pub(crate) fn static_registry(
    state: impl Fn(&ResourceId) -> LeaseState + Send + Sync + 'static,
) -> Arc<Registry> {
    Registry::new(1_000, Source::Static(Box::new(state)))
}

/// A lease of tokens a second, out of a policy of 1,000 a second, with a refresh in 2 s.
pub(crate) fn leased(rate: f64, length: Duration) -> LeaseState {
    lease(Some(rate), length, Growth::None)
}

/// A lease on all that was requested, so that a larger one may come.
pub(crate) fn leased_as_requested(rate: f64, length: Duration) -> LeaseState {
    lease(Some(rate), length, Growth::OnRequest)
}

/// A lease on a resource with a capacity of 0.
pub(crate) fn blocked(length: Duration) -> LeaseState {
    lease(None, length, Growth::None)
}

fn lease(rate: Option<f64>, length: Duration, growth: Growth) -> LeaseState {
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
        growth,
    }
}

/// No lease, with a policy of 1,000 a second and a refresh in 2 s.
pub(crate) fn no_lease(safe: Option<SafeRate>) -> LeaseState {
    LeaseState::NoLease {
        safe,
        refresh_at: clock::now().after(Duration::from_secs(2)),
        policy: Some(Policy {
            limit: 1_000.0,
            per: 1.0,
        }),
        awaits_answer: false,
    }
}

/// No answer yet, with a known policy of 1,000 a second.
pub(crate) fn awaiting_answer() -> LeaseState {
    awaiting_answer_of(1_000.0)
}

/// No answer yet, with this known limit a second.
pub(crate) fn awaiting_answer_of(limit: f64) -> LeaseState {
    LeaseState::NoLease {
        safe: Some(SafeRate::PerSecond(2.0)),
        refresh_at: clock::now(),
        policy: Some(Policy { limit, per: 1.0 }),
        awaits_answer: true,
    }
}

impl Registry {
    pub(crate) fn key(
        &self,
        resource: &str,
        settings: &Arc<LimiterSettings>,
    ) -> Option<Limiter<'_>> {
        self.find_or_create(resource.as_bytes(), &self.register(settings))
    }

    pub(crate) fn publish(&self, resource: &str, state: LeaseState) {
        self.known(resource).publish(state, clock::now());
    }

    /// The limiter of a resource that has one.
    pub(crate) fn known(&self, resource: &str) -> Limiter<'_> {
        let limiters = self.limiters();
        limiters
            .into_iter()
            .find(|limiter| limiter.resource().as_str() == resource)
            .unwrap_or_else(|| panic!("no limiter for {resource}"))
    }
}
