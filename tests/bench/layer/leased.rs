//! A process whose layer holds a lease on every key.
//!
//! Handle and worker are the real ones. The control plane is a function.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use doorman_openapi::{
    Capacity, CapacityRequest, CapacityResponse, Epoch, Lease, NodeId, Reason, ResourceResponse,
    SafeCapacity, Seconds, Unit,
};
use http::{Request, Response};
use tokio::runtime::{Builder, Runtime};
use tower_doorman::{Doorman, LimitLayer, RequestHead};
use tower_service::Service;

/// A control plane that grants every resource the same capacity for an hour.
#[derive(Debug, Clone)]
struct ControlPlane {
    capacity: Capacity,
    granted: Arc<AtomicUsize>,
}

impl ControlPlane {
    fn respond(&self, request: CapacityRequest) -> CapacityResponse {
        let hour = Duration::from_secs(3600);
        let resources = request.resources.into_iter().map(|resource| {
            if resource.has.is_none() {
                self.granted.fetch_add(1, Ordering::Relaxed);
            }
            ResourceResponse {
                resource_id: resource.resource_id,
                gets: Lease {
                    capacity: self.capacity,
                    lease_length: Seconds::from(hour),
                    refresh_interval: Seconds::from(hour / 2),
                    expiry_time: 0,
                    effective: None,
                },
                reason: Reason::Share,
                template: Some("*".to_owned()),
                limit: Some(Capacity::saturating(1e9)),
                unit: Some(Unit::Rate),
                per: Some(Seconds::from(Duration::from_secs(1))),
                // At most the lease, because the layer may use the safe capacity at first.
                safe_capacity: SafeCapacity::AtMost(Capacity::saturating(
                    self.capacity.get().min(1.0),
                )),
                admission_probability: None,
                balance: None,
                tokens: None,
                report: false,
            }
        });
        CapacityResponse {
            warnings: Vec::new(),
            resources: resources.collect(),
            node: NodeId::new("root").expect("the id is valid"),
            epoch: Epoch::new(1).expect("the epoch is valid"),
        }
    }
}

impl Service<Request<Bytes>> for ControlPlane {
    type Response = Response<Bytes>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Bytes>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        // A release gets an empty response.
        let body = serde_json::from_slice(request.body())
            .ok()
            .and_then(|request| serde_json::to_vec(&self.respond(request)).ok())
            .unwrap_or_default();
        ready(Ok(Response::new(body.into())))
    }
}

/// A handle and its worker. The worker runs only during [`Self::lease`], so that it does not
/// disturb the measurement.
pub(crate) struct LeasedProcess {
    pub(crate) doorman: Doorman,
    control_plane: ControlPlane,
    runtime: Runtime,
}

impl LeasedProcess {
    /// Every resource gets this capacity per second.
    pub(crate) fn new(capacity: f64) -> Self {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("the runtime starts");
        let control_plane = ControlPlane {
            capacity: Capacity::saturating(capacity),
            granted: Arc::default(),
        };
        let (doorman, worker) = Doorman::builder("http://plane")
            .service("bench")
            .max_keys(usize::MAX)
            .idle_after(Duration::from_secs(3600))
            .build_with(control_plane.clone())
            .expect("the settings are valid");
        runtime.spawn(worker.run());
        Self {
            doorman,
            control_plane,
            runtime,
        }
    }

    /// Admits each request once, and returns when all their keys are leased.
    pub(crate) fn lease(&self, layer: &LimitLayer, heads: impl IntoIterator<Item = Request<()>>) {
        let mut expected = self.control_plane.granted.load(Ordering::Relaxed);
        let mut heads = heads.into_iter();
        self.runtime.block_on(async {
            loop {
                let before = expected;
                for request in heads.by_ref().take(1_000) {
                    layer.try_admit(&RequestHead::of(&request)).ok();
                    expected += 1;
                }
                while self.control_plane.granted.load(Ordering::Relaxed) < expected {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                if expected == before {
                    break;
                }
            }
            // The worker has yet to handle the last response.
            tokio::time::sleep(Duration::from_millis(20)).await;
        });
    }
}
