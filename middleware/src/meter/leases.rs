//! Metrics of a worker: outcomes of its requests, changes of leases, leased capacity and its use.

use std::{collections::HashMap, mem};

use doorman_holder::Failure;
use doorman_openapi::ResourceId;
use metrics::{Counter, Gauge, SharedString, counter, describe_counter, describe_gauge, gauge};

use super::{LeasePhase, limits::MAX_NAMES};

const REQUESTS: &str = "doorman_layer_lease_requests_total";
const HINTS: &str = "doorman_layer_hints_total";
const CHANGES: &str = "doorman_layer_lease_changes_total";
const CAPACITY: &str = "doorman_layer_leased_capacity";
const IN_FLIGHT: &str = "doorman_layer_in_flight";

const OUTCOMES: [&str; 6] = [
    "answered",
    "unavailable",
    "redirected",
    "refused",
    "too_large",
    "limited",
];
const PHASES: [&str; 3] = ["leased", "blocked", "lost"];

/// Counters are looked up at each use, so that a recorder may be installed after the worker was
/// made.
#[derive(Debug, Default)]
pub(crate) struct LeaseMeter {
    /// Whether all counters exist.
    registered: bool,
    capacities: ResourceGauges,
    /// Of those that are gauges.
    in_flight: ResourceGauges,
}

/// Of resources that the program or a rule names, never of keys.
#[derive(Debug, Default)]
struct ResourceGauges(HashMap<ResourceId, Gauge>);

impl ResourceGauges {
    /// Sets the value of a resource, if there is room for its gauge.
    fn set(
        &mut self,
        metric: &'static str,
        description: &'static str,
        resource: &ResourceId,
        value: f64,
    ) {
        if let Some(gauge) = self.0.get(resource) {
            gauge.set(value);
        } else if self.0.len() < MAX_NAMES {
            describe_gauge!(metric, description);
            let name = SharedString::from(resource.as_str().to_owned());
            let gauge = gauge!(metric, "resource" => name);
            gauge.set(value);
            self.0.insert(resource.clone(), gauge);
        }
    }
}

impl LeaseMeter {
    /// Counts a response, or the failure of a request.
    pub(crate) fn on_response(&mut self, failure: Option<&Failure>) {
        self.register();
        let outcome = match failure {
            None => "answered",
            Some(Failure::Unavailable { .. }) => "unavailable",
            Some(Failure::Redirected { .. }) => "redirected",
            Some(Failure::Rejected { .. }) => "refused",
            Some(Failure::TooLarge) => "too_large",
            Some(Failure::RateLimited { .. }) => "limited",
        };
        requests(outcome).increment(1);
    }

    pub(crate) fn on_hints(&mut self, count: u64) {
        self.register();
        counter!(HINTS).increment(count);
    }

    pub(crate) fn on_lease_change(&mut self, phase: LeasePhase) {
        self.register();
        match phase {
            // No phase leads back to it.
            LeasePhase::None => {}
            LeasePhase::Leased => changes("leased").increment(1),
            LeasePhase::Blocked => changes("blocked").increment(1),
            LeasePhase::Lost => changes("lost").increment(1),
        }
    }

    pub(crate) fn set_capacity(&mut self, resource: &ResourceId, capacity: f64) {
        let description =
            "Leased capacity of a resource that the program or a rule names, in its own unit";
        self.capacities
            .set(CAPACITY, description, resource, capacity);
    }

    pub(crate) fn set_in_flight(&mut self, resource: &ResourceId, units: f64) {
        let description = "Units in use of a gauge that the program or a rule names";
        self.in_flight.set(IN_FLIGHT, description, resource, units);
    }

    /// Frees the gauges of a resource. They would otherwise keep their values.
    pub(crate) fn forget(&mut self, resource: &ResourceId) {
        let gauges = [&mut self.capacities, &mut self.in_flight];
        for gauge in gauges.into_iter().filter_map(|it| it.0.remove(resource)) {
            gauge.set(0.0);
        }
    }

    /// All counters exist from the first use on: the rate of a counter that begins above 0 is
    /// wrong.
    fn register(&mut self) {
        if mem::replace(&mut self.registered, true) {
            return;
        }
        describe_counter!(REQUESTS, "Lease requests to the control plane, by outcome");
        describe_counter!(
            CHANGES,
            "Resources that gained or lost a lease, by the new state"
        );
        describe_counter!(
            HINTS,
            "Hints from the control plane to refresh leases or rules"
        );
        let hints = [counter!(HINTS)].into_iter();
        let counters = hints
            .chain(OUTCOMES.map(requests))
            .chain(PHASES.map(changes));
        counters.for_each(|counter| counter.increment(0));
    }
}

fn requests(outcome: &'static str) -> Counter {
    counter!(REQUESTS, "outcome" => outcome)
}

fn changes(to: &'static str) -> Counter {
    counter!(CHANGES, "to" => to)
}

impl Drop for LeaseMeter {
    /// Nothing is renewed any more.
    fn drop(&mut self) {
        for gauge in self.capacities.0.values().chain(self.in_flight.0.values()) {
            gauge.set(0.0);
        }
    }
}
