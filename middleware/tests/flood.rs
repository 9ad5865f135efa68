//! A flood of new keys costs bounded memory, and bounded load on the control plane. Known keys are
//! not affected.
//!
//! `DOORMAN_FLOOD` is the number of keys, by default two hundred thousand. Ten million, optimized:
//!
//!     DOORMAN_FLOOD=10000000 cargo test --release -p tower-doorman --test flood -- --nocapture

#![cfg(test)]

use std::{
    collections::HashMap,
    convert::Infallible,
    env,
    future::{Ready, ready},
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use doorman_openapi::{CapacityRequest, paths};
use http::{Request, Response, header};
use serde_json::{Value, json};
use tower::{Layer as _, Service, ServiceExt as _, service_fn};
use tower_doorman::{Doorman, Key, Limit, LimitService, RefusalReason};

/// The bound on keys, and the keys used before the flood.
const MAX_KEYS: usize = 500;
const KNOWN: usize = 50;
/// New keys between two requests of a known one.
const APART: usize = 100;
const MIB: u64 = 1 << 20;
/// The keys, and one refresh of all of them.
const MEMORY: u64 = 4 * MIB;

/// Grants every resource more than enough, and counts requests.
#[derive(Clone, Default)]
struct ControlPlane(Arc<Mutex<Counts>>);

#[derive(Default)]
struct Counts {
    requests: usize,
    /// Requests by resource.
    resources: HashMap<String, usize>,
}

impl Service<Request<Bytes>> for ControlPlane {
    type Response = Response<Bytes>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Bytes>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let mut counts = self.0.lock().unwrap();
        counts.requests += 1;
        if request.uri().path() != paths::CAPACITY {
            return ready(Ok(Response::new(Bytes::from_static(b"{}"))));
        }
        let request: CapacityRequest = serde_json::from_slice(request.body()).unwrap();
        let responses: Vec<_> = request
            .resources
            .iter()
            .map(|it| response(it.resource_id.as_str()))
            .collect();
        for it in request.resources {
            *counts
                .resources
                .entry(it.resource_id.to_string())
                .or_default() += 1;
        }
        let body = json!({ "node": "root", "epoch": 1, "resources": responses }).to_string();
        let response = Response::builder().header(header::CONTENT_TYPE, "application/json");
        ready(Ok(response.body(body.into()).unwrap()))
    }
}

fn response(resource: &str) -> Value {
    json!({
        "resource_id": resource,
        "gets": { "capacity": 1000.0, "lease_length": 6.0, "refresh_interval": 1.0, "expiry_time": 0 },
        "reason": "share",
        "template": "*",
        "limit": 1000.0,
        "unit": "rate",
        "per": 1.0,
        "safe_capacity": 0.0,
    })
}

/// Sends a request of a tenant.
async fn send<S>(service: &mut LimitService<S>, tenant: &str) -> Result<(), RefusalReason>
where
    S: Service<Request<()>, Response = Response<()>, Error = Infallible> + Clone,
{
    let request = Request::builder().header("x-tenant", tenant).body(());
    let response = service
        .ready()
        .await
        .unwrap()
        .call(request.unwrap())
        .await
        .unwrap();
    match response.extensions().get::<tower_doorman::Refusal>() {
        Some(refusal) => Err(refusal.reason()),
        None => Ok(()),
    }
}

async fn flood(new: usize, plane: &ControlPlane) {
    let (doorman, worker) = Doorman::builder("http://a")
        .max_keys(MAX_KEYS)
        // No key is removed meanwhile.
        .idle_after(Duration::from_secs(3_600))
        .build_with(plane.clone())
        .unwrap();
    let worker = tokio::spawn(worker.run());
    let inner = service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(()))));
    let mut service = doorman
        .layer([Limit::rate(Key::header("x-tenant").unwrap())])
        .unwrap()
        .layer(inner);
    let known: Vec<_> = (0..KNOWN).map(|number| format!("known-{number}")).collect();
    for tenant in &known {
        send(&mut service, tenant).await.unwrap();
    }
    let mut turn = known.iter().cycle();
    for number in 0..new {
        let outcome = send(&mut service, &format!("new-{number}")).await;
        assert!(
            matches!(outcome, Ok(()) | Err(RefusalReason::Overflow)),
            "{outcome:?}"
        );
        if number % APART == 0 {
            let tenant = turn.next().unwrap();
            assert_eq!(send(&mut service, tenant).await, Ok(()), "{tenant}");
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(doorman.snapshot().limits.len(), MAX_KEYS + 1);
    drop((service, doorman));
    worker.await.unwrap();
}

#[test]
fn flood_of_new_keys_costs_bounded_memory() {
    let new = env::var("DOORMAN_FLOOD").map_or(200_000, |text| text.parse().unwrap());
    let plane = ControlPlane::default();
    let counted = allocation_counter::measure(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        runtime.unwrap().block_on(flood(new, &plane));
    });
    let counts = plane.0.lock().unwrap();
    println!(
        "{new} new keys: peak {} KiB, {} resources in {} requests to the control plane",
        counted.bytes_max / 1024,
        counts.resources.len(),
        counts.requests
    );
    assert!(counted.bytes_max <= MEMORY, "{} bytes", counted.bytes_max);
    let seen = counts.resources.len();
    assert_eq!(seen, MAX_KEYS + 1, "the keys with a slot, and the overflow");
    // The worker kept renewing.
    assert!(counts.resources["x-tenant/known-0"] > 1);
}
