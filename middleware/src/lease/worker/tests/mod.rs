//! The worker against a control plane in this process, under a paused clock.

mod bursts;
mod canceled;
#[cfg(feature = "metrics")]
mod counted;
mod ending;
mod faults;
mod fleet;
mod gauge_scale;
mod gauges;
mod hints;
mod instances;
mod leases;
mod new_keys;
mod outbound;
mod outcomes;
mod plane;
mod priorities;
mod quotas;
mod real_ledger;
mod rules;
mod scale_out;
mod shifts;
mod small_limits;
mod sudden;
mod traces;
mod tuning;
mod units;
mod watched;

use std::{path::Path, time::Duration};

use doorman_openapi::{
    CapacityResponse, Epoch, FieldError, Mastership, NodeId, Problem, ProblemType,
};
use tokio::{task::JoinHandle, time::sleep};
use tower_layer::Layer as _;

use self::plane::{Plane, Received, Reply};
use crate::{
    Builder, Cost, Credentials, Doorman, Key, Limit, LimitService, NotReady, NotReleased,
    WorkerState, clock,
    lease::testing::{grant_all, id},
    testing::{Inner, Logged, send},
};

const SECOND: Duration = Duration::from_secs(1);

/// Begins a run that is the same everywhere: the moment decides how timers are rounded.
fn begin(seed: u64) {
    clock::restart();
    fastrand::seed(seed);
}

/// Grants `capacity` of every resource for 20 s, refreshed every second.
fn grants(capacity: f64) -> impl FnMut(&Received) -> Reply + Send + 'static {
    move |call| match call.capacity() {
        Some(request) => grant_all(&request, capacity).into(),
        None => Reply::json(200, &serde_json::json!({})),
    }
}

fn builder() -> Builder {
    Doorman::builder("http://a")
        .server("http://b")
        .service("test")
}

/// Runs a worker that asks the first server first.
fn run(builder: Builder, plane: &Plane) -> (Doorman, JoinHandle<()>) {
    let (doorman, mut worker) = builder.build_with(plane.clone()).unwrap();
    worker.parts.engine.begin_at(0);
    worker.rules_poller.begin_at(0);
    (doorman, tokio::spawn(worker.run()))
}

/// A process with one limit.
fn process(plane: &Plane, limit: Limit) -> (Doorman, LimitService<Inner>) {
    let (doorman, _) = run(builder(), plane);
    let service = doorman.layer([limit]).unwrap().layer(Inner);
    (doorman, service)
}

fn held(doorman: &Doorman, resource: &str) -> Option<f64> {
    let limits = doorman.snapshot().limits;
    let limit = limits.iter().find(|limit| limit.resource == id(resource));
    limit.unwrap().lease.and_then(|lease| lease.capacity)
}

fn take(rate: &crate::Rate, requests: u32) -> u32 {
    let admitted = (0..requests).filter(|_| rate.try_acquire(Cost::ONE).is_ok());
    u32::try_from(admitted.count()).unwrap()
}
