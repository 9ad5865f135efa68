//! A fleet that has been there for a while: everybody renews once an interval, in an order of chance, and wants another amount each time.

use std::time::Duration;

use doorman_bench::nanos_per;
use doorman_openapi::{
    Capacity, CapacityRequest, ClientId, HeldLease, InvalidId, Moment, ResourceId, ResourceRequest,
    Seq,
};
use fastrand::Rng;

/// The resource that all want.
pub(crate) const RESOURCE: &str = "tenant/acme/orders-per-second";

/// How long a lease lasts, and after how long its holder comes back.
pub(crate) const LEASE_LENGTH: Duration = Duration::from_secs(60);
pub(crate) const REFRESH_INTERVAL: Duration = Duration::from_secs(5);

/// What there is for each client. On average it wants twice as much.
pub(crate) const CAPACITY_PER_CLIENT: f64 = 25.0;
const MOST_WANTED: f64 = 100.0;

/// When the first client comes.
pub(crate) const START: Moment = Moment::from_nanos(3_600_000_000_000);

/// Whoever decides what a client gets.
pub(crate) trait Decides {
    /// The client asks for one resource; returns what it gets.
    fn decide(&mut self, request: &CapacityRequest, now: Moment) -> Capacity;
}

/// What a client may want.
pub(crate) fn wants(chance: &mut Rng) -> Capacity {
    Capacity::saturating(chance.f64() * MOST_WANTED)
}

/// The identifiers of so many clients: 32 bytes each, as long as a UUID without hyphens.
pub(crate) fn ids(clients: usize) -> impl Iterator<Item = Result<ClientId, InvalidId>> {
    (0..clients).map(|number| ClientId::new(format!("client-{number:025}")))
}

/// So many requests lie ready at a time: fewer than there are clients, whose next request tells the answer to the one before.
const BATCH: usize = 50;

#[derive(Debug)]
struct Client {
    id: ClientId,
    has: Capacity,
}

/// A fleet, and who decides for it.
#[derive(Debug)]
pub(crate) struct Steady<D> {
    decides: D,
    resource: ResourceId,
    /// In the order in which they come.
    clients: Vec<Client>,
    next: usize,
    now: Moment,
    seq: Seq,
    chance: Rng,
}

impl<D: Decides> Steady<D> {
    /// Clients that have not come yet.
    pub(crate) fn new(decides: D, clients: usize) -> Result<Self, InvalidId> {
        let has = Capacity::ZERO;
        let mut clients = ids(clients)
            .map(|id| Ok(Client { id: id?, has }))
            .collect::<Result<Vec<_>, _>>()?;
        let mut chance = Rng::with_seed(1);
        chance.shuffle(&mut clients);
        Ok(Self {
            decides,
            resource: ResourceId::new(RESOURCE)?,
            clients,
            next: 0,
            now: START,
            seq: Seq::ZERO,
            chance,
        })
    }

    /// All clients come twice: once to join, once to get their share of what all want.
    pub(crate) fn settle(mut self) -> Result<Self, InvalidId> {
        self.round(self.clients.len());
        // The books keep the identifiers of the first request. Those of the next ones lie elsewhere, as when they are read from the wire.
        for client in &mut self.clients {
            client.id = ClientId::new(client.id.as_str())?;
        }
        self.round(self.clients.len());
        Ok(self)
    }

    /// The next clients come, so many; returns how long one decision takes, in nanoseconds.
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
        let come = self.clients.iter_mut().skip(self.next).take(decisions);
        self.next += decisions;
        let (clients, requests): (Vec<_>, Vec<_>) = come
            .map(|client| {
                self.seq = self.seq.next();
                self.now = self.now.after(step);
                let request = CapacityRequest {
                    client_id: client.id.clone(),
                    seq: Some(self.seq),
                    resources: vec![ResourceRequest {
                        resource_id: self.resource.clone(),
                        wants: wants(&mut self.chance),
                        priority: 0,
                        has: Some(HeldLease {
                            capacity: client.has,
                        }),
                        outstanding: Capacity::ZERO,
                        used: None,
                    }],
                };
                (client, (request, self.now))
            })
            .unzip();
        let mut answers = Vec::with_capacity(requests.len());
        let nanos = nanos_per(requests.len(), || {
            for (request, now) in &requests {
                answers.push(self.decides.decide(request, *now));
            }
        });
        for (client, answer) in clients.into_iter().zip(answers) {
            client.has = answer;
        }
        nanos
    }
}
