//! A process that holds a lease on every key: the real handle and the real worker, whose control plane is a function.

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

/// Grants every resource the same, for an hour.
#[derive(Debug, Clone)]
struct Plane {
    capacity: Capacity,
    granted: Arc<AtomicUsize>,
}

impl Plane {
    fn answer(&self, request: CapacityRequest) -> CapacityResponse {
        let hour = Duration::from_secs(3600);
        let resources = request.resources.into_iter().map(|asked| {
            if asked.has.is_none() {
                self.granted.fetch_add(1, Ordering::Relaxed);
            }
            ResourceResponse {
                resource_id: asked.resource_id,
                gets: Lease {
                    capacity: self.capacity,
                    lease_length: Seconds::from(hour),
                    refresh_interval: Seconds::from(hour / 2),
                    expiry_time: 0,
                },
                reason: Reason::Share,
                template: Some("*".to_owned()),
                limit: Some(Capacity::saturating(1e9)),
                unit: Some(Unit::Rate),
                per: Some(Seconds::from(Duration::from_secs(1))),
                // No more than the lease: what is guessed of a demand would be answered with it.
                safe_capacity: SafeCapacity::AtMost(Capacity::saturating(
                    self.capacity.get().min(1.0),
                )),
                admission_probability: None,
                balance: None,
            }
        });
        CapacityResponse {
            resources: resources.collect(),
            node: NodeId::new("root").expect("a name"),
            epoch: Epoch::new(1).expect("a number"),
        }
    }
}

impl Service<Request<Bytes>> for Plane {
    type Response = Response<Bytes>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Bytes>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        // A release needs no answer.
        let body = serde_json::from_slice(request.body())
            .ok()
            .and_then(|request| serde_json::to_vec(&self.answer(request)).ok())
            .unwrap_or_default();
        ready(Ok(Response::new(body.into())))
    }
}

/// The process: its worker runs only while this leases, so that it does not disturb what is measured meanwhile.
pub(crate) struct Leased {
    pub(crate) doorman: Doorman,
    plane: Plane,
    runtime: Runtime,
}

impl Leased {
    /// Every resource gets so much a second.
    pub(crate) fn new(capacity: f64) -> Self {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let plane = Plane {
            capacity: Capacity::saturating(capacity),
            granted: Arc::default(),
        };
        let (doorman, worker) = Doorman::builder("http://plane")
            .service("bench")
            .max_keys(usize::MAX)
            .idle_after(Duration::from_secs(3600))
            .build_with(plane.clone())
            .expect("sensible settings");
        runtime.spawn(worker.run());
        Self {
            doorman,
            plane,
            runtime,
        }
    }

    /// Makes every one of these requests once, and returns when all their keys are leased.
    pub(crate) fn lease(&self, layer: &LimitLayer, heads: impl IntoIterator<Item = Request<()>>) {
        let mut asked = self.plane.granted.load(Ordering::Relaxed);
        let mut heads = heads.into_iter();
        self.runtime.block_on(async {
            loop {
                let before = asked;
                for request in heads.by_ref().take(1_000) {
                    layer.try_admit(&RequestHead::of(&request)).ok();
                    asked += 1;
                }
                while self.plane.granted.load(Ordering::Relaxed) < asked {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                if asked == before {
                    break;
                }
            }
            // The last answer is on its way.
            tokio::time::sleep(Duration::from_millis(20)).await;
        });
    }
}
