//! Metrics of a worker: outcomes of its requests, changes of leases, leased capacity and its use.

use std::collections::HashMap;

use doorman_openapi::ResourceId;
use metrics::{Counter, Gauge, SharedString, counter, describe_counter, describe_gauge, gauge};

use super::{LeasePhase, RequestOutcome, limits::MAX_NAMES};

const REQUESTS: &str = "doorman_layer_lease_requests_total";
const HINTS: &str = "doorman_layer_hints_total";
const CHANGES: &str = "doorman_layer_lease_changes_total";
const CAPACITY: &str = "doorman_layer_leased_capacity";
const IN_FLIGHT: &str = "doorman_layer_in_flight";

#[derive(Debug, Default)]
pub(crate) struct LeaseMeter {
    /// Looked up at first use, so that a recorder may be installed after the worker was made.
    counters: Option<Counters>,
    /// Of resources that the program or a rule names, never of keys.
    capacities: HashMap<ResourceId, Gauge>,
    /// Of those that are gauges.
    in_flight: HashMap<ResourceId, Gauge>,
}

#[derive(Debug)]
struct Counters {
    answered: Counter,
    unavailable: Counter,
    redirected: Counter,
    refused: Counter,
    too_large: Counter,
    limited: Counter,
    hints: Counter,
    leased: Counter,
    blocked: Counter,
    lost: Counter,
}

impl LeaseMeter {
    pub(crate) fn on_response(&mut self, outcome: RequestOutcome) {
        let counters = self.counters();
        match outcome {
            RequestOutcome::Answered => &counters.answered,
            RequestOutcome::Unavailable => &counters.unavailable,
            RequestOutcome::Redirected => &counters.redirected,
            RequestOutcome::Refused => &counters.refused,
            RequestOutcome::TooLarge => &counters.too_large,
            RequestOutcome::Limited => &counters.limited,
        }
        .increment(1);
    }

    pub(crate) fn on_hints(&mut self, count: u64) {
        self.counters().hints.increment(count);
    }

    pub(crate) fn on_lease_change(&mut self, phase: LeasePhase) {
        let counters = self.counters();
        match phase {
            // No phase leads back to it.
            LeasePhase::None => {}
            LeasePhase::Leased => counters.leased.increment(1),
            LeasePhase::Blocked => counters.blocked.increment(1),
            LeasePhase::Lost => counters.lost.increment(1),
        }
    }

    /// Sets the leased capacity of a resource, if there is room for its gauge.
    pub(crate) fn set_capacity(&mut self, resource: &ResourceId, capacity: f64) {
        if !self.capacities.contains_key(resource) {
            if self.capacities.len() >= MAX_NAMES {
                return;
            }
            describe_gauge!(
                CAPACITY,
                "Leased capacity of a resource that the program or a rule names, in its own unit"
            );
            let name = SharedString::from(resource.as_str().to_owned());
            let gauge = gauge!(CAPACITY, "resource" => name);
            self.capacities.insert(resource.clone(), gauge);
        }
        if let Some(gauge) = self.capacities.get(resource) {
            gauge.set(capacity);
        }
    }

    /// Sets the units in use of a resource, if there is room for its gauge.
    pub(crate) fn set_in_flight(&mut self, resource: &ResourceId, units: f64) {
        if !self.in_flight.contains_key(resource) {
            if self.in_flight.len() >= MAX_NAMES {
                return;
            }
            describe_gauge!(
                IN_FLIGHT,
                "Units in use of a gauge that the program or a rule names"
            );
            let name = SharedString::from(resource.as_str().to_owned());
            let gauge = gauge!(IN_FLIGHT, "resource" => name);
            self.in_flight.insert(resource.clone(), gauge);
        }
        if let Some(gauge) = self.in_flight.get(resource) {
            gauge.set(units);
        }
    }

    /// Frees the gauges of a resource. They would otherwise keep their values.
    pub(crate) fn forget(&mut self, resource: &ResourceId) {
        let gauges = [&mut self.capacities, &mut self.in_flight];
        for gauge in gauges.into_iter().filter_map(|it| it.remove(resource)) {
            gauge.set(0.0);
        }
    }

    fn counters(&mut self) -> &Counters {
        self.counters.get_or_insert_with(Counters::new)
    }
}

impl Drop for LeaseMeter {
    /// Nothing is renewed any more.
    fn drop(&mut self) {
        for gauge in self.capacities.values().chain(self.in_flight.values()) {
            gauge.set(0.0);
        }
    }
}

impl Counters {
    #[cold]
    fn new() -> Self {
        describe_counter!(REQUESTS, "Lease requests to the control plane, by outcome");
        describe_counter!(
            CHANGES,
            "Resources that gained or lost a lease, by the new state"
        );
        describe_counter!(
            HINTS,
            "Hints from the control plane to refresh leases or rules"
        );
        let requests = |outcome: &'static str| counter!(REQUESTS, "outcome" => outcome);
        let changes = |to: &'static str| counter!(CHANGES, "to" => to);
        Self {
            answered: requests("answered"),
            unavailable: requests("unavailable"),
            redirected: requests("redirected"),
            refused: requests("refused"),
            too_large: requests("too_large"),
            limited: requests("limited"),
            hints: counter!(HINTS),
            leased: changes("leased"),
            blocked: changes("blocked"),
            lost: changes("lost"),
        }
    }
}
