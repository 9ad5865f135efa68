//! A flood of invented keys through the layer costs a bounded amount: of memory, and of the control plane's. Those it knew before do
//! not notice.
//!
//! `DOORMAN_FLOOD` is how many: two hundred thousand unless it is said. Ten million, without what debugging costs:
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

/// How many keys there may be, of which so many belong to callers who are known before the flood.
const MAX_KEYS: usize = 500;
const KNOWN: usize = 50;
/// Two of a known caller lie so many invented ones apart.
const APART: usize = 100;
const MIB: u64 = 1 << 20;
/// All that the keys may cost, and what a refresh of all of them takes for a moment.
const MEMORY: u64 = 4 * MIB;

/// Grants every resource more than anybody needs, and keeps count of what it is asked.
#[derive(Clone, Default)]
struct ControlPlane(Arc<Mutex<Asked>>);

#[derive(Default)]
struct Asked {
    requests: usize,
    /// How often for each resource.
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
        let mut asked = self.0.lock().unwrap();
        asked.requests += 1;
        if request.uri().path() != paths::CAPACITY {
            return ready(Ok(Response::new(Bytes::from_static(b"{}"))));
        }
        let request: CapacityRequest = serde_json::from_slice(request.body()).unwrap();
        let answers: Vec<_> = request
            .resources
            .iter()
            .map(|it| answer(it.resource_id.as_str()))
            .collect();
        for it in request.resources {
            *asked
                .resources
                .entry(it.resource_id.to_string())
                .or_default() += 1;
        }
        let body = json!({ "node": "root", "epoch": 1, "resources": answers }).to_string();
        let response = Response::builder().header(header::CONTENT_TYPE, "application/json");
        ready(Ok(response.body(body.into()).unwrap()))
    }
}

fn answer(resource: &str) -> Value {
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

/// Whether the request of a tenant is admitted; the reason why not.
async fn ask<S>(service: &mut LimitService<S>, tenant: &str) -> Result<(), RefusalReason>
where
    S: Service<Request<()>, Response = Response<()>, Error = Infallible> + Clone,
{
    let request = Request::builder().header("x-tenant", tenant).body(());
    let answer = service
        .ready()
        .await
        .unwrap()
        .call(request.unwrap())
        .await
        .unwrap();
    match answer.extensions().get::<tower_doorman::Refusal>() {
        Some(refusal) => Err(refusal.reason()),
        None => Ok(()),
    }
}

async fn flood(invented: usize, plane: &ControlPlane) {
    let (doorman, worker) = Doorman::builder("http://a")
        .max_keys(MAX_KEYS)
        // None of them makes room for another meanwhile.
        .idle_after(Duration::from_secs(3_600))
        .build_with(plane.clone())
        .unwrap();
    let worker = tokio::spawn(worker.run());
    let inner = service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(()))));
    let mut service = doorman
        .layer([Limit::rate(Key::header("x-tenant").unwrap())])
        .layer(inner);
    let known: Vec<_> = (0..KNOWN).map(|number| format!("known-{number}")).collect();
    for tenant in &known {
        ask(&mut service, tenant).await.unwrap();
    }
    let mut turn = known.iter().cycle();
    for number in 0..invented {
        let outcome = ask(&mut service, &format!("invented-{number}")).await;
        assert!(
            matches!(outcome, Ok(()) | Err(RefusalReason::Overflow)),
            "{outcome:?}"
        );
        if number % APART == 0 {
            let tenant = turn.next().unwrap();
            assert_eq!(ask(&mut service, tenant).await, Ok(()), "{tenant}");
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(doorman.snapshot().limits.len(), MAX_KEYS + 1);
    drop((service, doorman));
    worker.await.unwrap();
}

#[test]
fn a_flood_of_invented_keys_costs_a_bounded_amount_and_known_callers_do_not_notice() {
    let invented = env::var("DOORMAN_FLOOD").map_or(200_000, |text| text.parse().unwrap());
    let plane = ControlPlane::default();
    let counted = allocation_counter::measure(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        runtime.unwrap().block_on(flood(invented, &plane));
    });
    let asked = plane.0.lock().unwrap();
    println!(
        "{invented} invented keys: at most {} KiB at one time, {} resources in {} requests to the control plane",
        counted.bytes_max / 1024,
        asked.resources.len(),
        asked.requests
    );
    assert!(counted.bytes_max <= MEMORY, "{} bytes", counted.bytes_max);
    let seen = asked.resources.len();
    assert_eq!(
        seen,
        MAX_KEYS + 1,
        "the keys with room, and one for all others"
    );
    // The worker was not kept from renewing.
    assert!(asked.resources["x-tenant/known-0"] > 1);
}
