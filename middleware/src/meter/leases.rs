//! The leasing side: what comes of its requests, and how the leases change.

use std::collections::HashMap;

use doorman_openapi::ResourceId;
use metrics::{Counter, Gauge, SharedString, counter, describe_counter, describe_gauge, gauge};

use super::meters::MOST_NAMES;
use crate::{
    lease::{Event, Failure},
    limiter::{LeaseState, Limiter},
};

const REQUESTS: &str = "doorman_layer_lease_requests_total";
const CHANGES: &str = "doorman_layer_lease_changes_total";
const CAPACITY: &str = "doorman_layer_leased_capacity";

/// Counts for one worker.
#[derive(Debug, Default)]
pub(crate) struct LeaseMeter {
    /// Got when the first request or change is counted, so that a recorder may be installed after the worker was made.
    counters: Option<Counters>,
    /// Of what the program names, never of keys.
    capacities: HashMap<ResourceId, Gauge>,
}

#[derive(Debug)]
struct Counters {
    answered: Counter,
    unavailable: Counter,
    redirected: Counter,
    refused: Counter,
    too_large: Counter,
    limited: Counter,
    leased: Counter,
    blocked: Counter,
    lost: Counter,
}

/// What is held of one resource: `None` → `Leased` | `Blocked`, and from there to each other and to `Lost`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum LeasePhase {
    /// No lease has come yet.
    #[default]
    None,
    /// There is a lease.
    Leased,
    /// There is one, on a capacity of nothing.
    Blocked,
    /// There is none any more.
    Lost,
}

impl LeasePhase {
    fn after(self, standing: LeaseState) -> Self {
        match (self, standing) {
            (_, LeaseState::Leased { rate: Some(_), .. }) => Self::Leased,
            (_, LeaseState::Leased { rate: None, .. }) => Self::Blocked,
            (Self::Leased | Self::Blocked | Self::Lost, LeaseState::NoLease { .. }) => Self::Lost,
            (Self::None, LeaseState::NoLease { .. }) => Self::None,
            // None of them needs a lease.
            (state, LeaseState::Unlimited | LeaseState::Fixed { .. } | LeaseState::Local(_)) => {
                state
            }
        }
    }
}

impl LeaseMeter {
    /// A request for leases has ended so.
    pub(crate) fn came_out(&mut self, event: &Event) {
        let counters = self.counters();
        match event {
            Event::Answered { .. } => counters.answered.increment(1),
            Event::Failed { failure, .. } => match failure {
                Failure::Unavailable { .. } => counters.unavailable.increment(1),
                Failure::Redirected { .. } => counters.redirected.increment(1),
                Failure::Refused { .. } => counters.refused.increment(1),
                Failure::TooLarge => counters.too_large.increment(1),
                Failure::Limited { .. } => counters.limited.increment(1),
            },
            Event::Demand { .. } | Event::Forget { .. } | Event::Tick | Event::Stop => {}
        }
    }

    /// A limiter has been told what it has of a resource that is counted over `per` seconds.
    pub(crate) fn published(
        &mut self,
        state: &mut LeasePhase,
        limiter: &Limiter,
        standing: LeaseState,
        per: f64,
    ) {
        let before = std::mem::replace(state, state.after(standing));
        if *state != before {
            let counters = self.counters();
            match state {
                // Nothing leads back to it.
                LeasePhase::None => {}
                LeasePhase::Leased => counters.leased.increment(1),
                LeasePhase::Blocked => counters.blocked.increment(1),
                LeasePhase::Lost => counters.lost.increment(1),
            }
        }
        if !limiter.is_permanent() {
            self.forget(limiter.resource());
        } else if let Some(capacity) = self.capacity(limiter.resource()) {
            capacity.set(match standing {
                LeaseState::Leased { rate, .. } => rate.unwrap_or_default() * per,
                LeaseState::NoLease { .. }
                | LeaseState::Unlimited
                | LeaseState::Fixed { .. }
                | LeaseState::Local(_) => 0.0,
            });
        }
    }

    /// Nobody names the resource any more: its gauge would stay as it was, and take up the place of another.
    pub(crate) fn forget(&mut self, resource: &ResourceId) {
        if let Some(capacity) = self.capacities.remove(resource) {
            capacity.set(0.0);
        }
    }

    fn counters(&mut self) -> &Counters {
        self.counters.get_or_insert_with(Counters::new)
    }

    /// The gauge of a resource; `None` when so many have one already.
    fn capacity(&mut self, resource: &ResourceId) -> Option<&Gauge> {
        if !self.capacities.contains_key(resource) && self.capacities.len() < MOST_NAMES {
            describe_gauge!(
                CAPACITY,
                "Capacity leased of a resource that the program names, in its own unit"
            );
            let name = SharedString::from(resource.as_str().to_owned());
            let gauge = gauge!(CAPACITY, "resource" => name);
            self.capacities.insert(resource.clone(), gauge);
        }
        self.capacities.get(resource)
    }
}

impl Drop for LeaseMeter {
    /// Nobody renews any more: a gauge that stays as it was would say so.
    fn drop(&mut self) {
        for capacity in self.capacities.values() {
            capacity.set(0.0);
        }
    }
}

impl Counters {
    #[cold]
    fn new() -> Self {
        describe_counter!(
            REQUESTS,
            "Requests for leases to the control plane, by what came of them"
        );
        describe_counter!(CHANGES, "Changes between having a lease and having none");
        let requests = |outcome: &'static str| counter!(REQUESTS, "outcome" => outcome);
        let changes = |to: &'static str| counter!(CHANGES, "to" => to);
        Self {
            answered: requests("answered"),
            unavailable: requests("unavailable"),
            redirected: requests("redirected"),
            refused: requests("refused"),
            too_large: requests("too_large"),
            limited: requests("limited"),
            leased: changes("leased"),
            blocked: changes("blocked"),
            lost: changes("lost"),
        }
    }
}
