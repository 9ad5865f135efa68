//! Clients that refresh once per interval, in random order, with a new demand each time.

use std::time::Duration;

use doorman_bench::nanos_per_iteration;
use doorman_openapi::{
    Capacity, CapacityRequest, ClientId, HeldLease, InvalidId, Moment, ResourceId, ResourceRequest,
    Seq,
};
use fastrand::Rng;

const RESOURCE: &str = "tenant/acme/orders-per-second";

pub(crate) const LEASE_LENGTH: Duration = Duration::from_secs(60);
pub(crate) const REFRESH_INTERVAL: Duration = Duration::from_secs(5);

/// On average a client wants twice as much.
pub(crate) const CAPACITY_PER_CLIENT: f64 = 25.0;
const MAX_WANTS: f64 = 100.0;

/// The time of the first request.
pub(crate) const START: Moment = Moment::from_nanos(3_600_000_000_000);

/// An algorithm whose decision depends on the other clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Fair,
    Proportional,
    /// With so many priorities, which the clients have in turn.
    Priority(i32),
}

impl Algorithm {
    /// The name in a document.
    pub(crate) const fn kind(self) -> &'static str {
        match self {
            Self::Fair => "FAIR_SHARE",
            Self::Proportional => "PROPORTIONAL_SHARE",
            Self::Priority(_) => "PRIORITY_SHARE",
        }
    }

    /// With a floor no band is skipped.
    pub(crate) const fn parameters(self) -> &'static str {
        match self {
            Self::Fair | Self::Proportional => "",
            Self::Priority(_) => ", parameters: [{name: floor, value: 0.1}]",
        }
    }

    const fn priorities(self) -> i32 {
        match self {
            Self::Fair | Self::Proportional => 1,
            Self::Priority(priorities) => priorities,
        }
    }
}

/// A ledger or its alternative.
pub(crate) trait Decide {
    /// Handles a request for one resource, and returns the grant.
    fn decide(&mut self, request: CapacityRequest, now: Moment) -> Capacity;
}

/// A random demand.
pub(crate) fn wants(rng: &mut Rng) -> Capacity {
    Capacity::saturating(rng.f64() * MAX_WANTS)
}

/// Client ids of 32 bytes, the length of a UUID without hyphens.
pub(crate) fn ids(clients: usize) -> impl Iterator<Item = Result<ClientId, InvalidId>> {
    (0..clients).map(|number| ClientId::new(format!("client-{number:025}")))
}

/// Requests are built in batches before their decisions are timed. A batch is smaller than a fleet,
/// because the next request of a client contains its last grant.
const BATCH: usize = 50;

#[derive(Debug)]
struct Client {
    id: ClientId,
    has: Capacity,
    priority: i32,
}

#[derive(Debug)]
pub(crate) struct Fleet<D> {
    decide: D,
    resource: ResourceId,
    /// In the order of their requests.
    clients: Vec<Client>,
    next: usize,
    now: Moment,
    seq: Seq,
    rng: Rng,
}

impl<D: Decide> Fleet<D> {
    /// Clients that have not sent a request yet.
    pub(crate) fn new(decide: D, algorithm: Algorithm, clients: usize) -> Result<Self, InvalidId> {
        let has = Capacity::ZERO;
        let mut clients = ids(clients)
            .zip((0..algorithm.priorities()).cycle())
            .map(|(id, priority)| {
                Ok(Client {
                    id: id?,
                    has,
                    priority,
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        let mut rng = Rng::with_seed(1);
        rng.shuffle(&mut clients);
        Ok(Self {
            decide,
            resource: ResourceId::new(RESOURCE)?,
            clients,
            next: 0,
            now: START,
            seq: Seq::ZERO,
            rng,
        })
    }

    /// Sends two requests per client: the first joins, the second gets a share of the total demand.
    pub(crate) fn join(mut self) -> Result<Self, InvalidId> {
        self.round(self.clients.len());
        // The ledger stores the ids of the first requests. Later requests have copies at other
        // addresses, like ids that are parsed from the wire.
        for client in &mut self.clients {
            client.id = ClientId::new(client.id.as_str())?;
        }
        self.round(self.clients.len());
        Ok(self)
    }

    /// Returns the nanoseconds per decision.
    pub(crate) fn round(&mut self, decisions: usize) -> f64 {
        let mut nanos = 0.0;
        let mut left = decisions;
        while left > 0 {
            let batch = left.min(BATCH);
            nanos += batch as f64 * self.batch(batch);
            left -= batch;
        }
        nanos / decisions as f64
    }

    fn batch(&mut self, decisions: usize) -> f64 {
        let step = REFRESH_INTERVAL.div_f64(self.clients.len() as f64);
        if self.next + decisions > self.clients.len() {
            self.next = 0;
        }
        let batch = self.clients.iter_mut().skip(self.next).take(decisions);
        self.next += decisions;
        let (clients, requests): (Vec<_>, Vec<_>) = batch
            .map(|client| {
                self.seq = self.seq.next();
                self.now = self.now.after(step);
                let request = CapacityRequest {
                    client_id: client.id.clone(),
                    run: None,
                    seq: Some(self.seq),
                    heard_epoch: None,
                    polls: false,
                    replaces: Vec::new(),
                    resources: vec![ResourceRequest {
                        resource_id: self.resource.clone(),
                        wants: wants(&mut self.rng),
                        priority: Some(client.priority),
                        bands: None,
                        has: Some(HeldLease::from(client.has)),
                        outstanding: Capacity::ZERO,
                        used: None,
                        unit: None,
                        limited_as: None,
                        bucket: None,
                        per: None,
                        outcomes: None,
                        pause: None,
                        seen: None,
                    }],
                };
                (client, (request, self.now))
            })
            .unzip();
        let mut grants = Vec::with_capacity(requests.len());
        let nanos = nanos_per_iteration(requests.len(), || {
            for (request, now) in requests {
                grants.push(self.decide.decide(request, now));
            }
        });
        for (client, grant) in clients.into_iter().zip(grants) {
            client.has = grant;
        }
        nanos
    }
}
