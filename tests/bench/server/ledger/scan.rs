//! The alternative: decisions that scan a map of all clients, as Google's Doorman makes them.
//!
//! Its `go/server/doorman` scans once for expired leases, and once or twice for what the other
//! clients leave (`Decide`, `FairShare`, `ProportionalShare`).

use std::collections::HashMap;

use doorman_openapi::{Capacity, CapacityRequest, InvalidId, Moment};
use fastrand::Rng;

use crate::fleet::{Algorithm, CAPACITY_PER_CLIENT, Decide, LEASE_LENGTH, START, ids, wants};

#[derive(Debug, Clone, Copy, PartialEq)]
struct Lease {
    has: f64,
    wants: f64,
    expires: Moment,
}

/// The leases of one resource, by client.
#[derive(Debug)]
pub(crate) struct Scan {
    algorithm: Algorithm,
    capacity: f64,
    leases: HashMap<String, Lease>,
    sum_has: f64,
    sum_wants: f64,
}

impl Scan {
    /// Gives every client an equal share. Joining one by one would take hours.
    pub(crate) fn new(algorithm: Algorithm, clients: usize) -> Result<Self, InvalidId> {
        let mut rng = Rng::with_seed(2);
        let mut scan = Self {
            algorithm,
            capacity: CAPACITY_PER_CLIENT * clients as f64,
            leases: HashMap::with_capacity(clients),
            sum_has: 0.0,
            sum_wants: 0.0,
        };
        for id in ids(clients) {
            let lease = Lease {
                has: CAPACITY_PER_CLIENT,
                wants: wants(&mut rng).get(),
                expires: START.after(LEASE_LENGTH),
            };
            scan.assign(id?.as_str(), lease);
        }
        Ok(scan)
    }

    fn assign(&mut self, client: &str, lease: Lease) {
        self.sum_has += lease.has;
        self.sum_wants += lease.wants;
        if let Some(old) = self.leases.get_mut(client) {
            self.sum_has -= old.has;
            self.sum_wants -= old.wants;
            *old = lease;
        } else {
            self.leases.insert(client.to_owned(), lease);
        }
    }

    fn remove_expired(&mut self, now: Moment) {
        let (sum_has, sum_wants) = (&mut self.sum_has, &mut self.sum_wants);
        self.leases.retain(|_, lease| {
            let is_valid = lease.expires > now;
            if !is_valid {
                *sum_has -= lease.has;
                *sum_wants -= lease.wants;
            }
            is_valid
        });
    }

    /// An equal share, an equal part of the other clients' unused shares, and an equal part of what
    /// remains of those.
    fn fair_share(&self, client: &str, wants: f64, equal: f64) -> f64 {
        let (mut extra, mut want_extra) = (0.0, 1.0);
        let mut wanting = HashMap::new();
        for (id, lease) in self.others(client) {
            if lease.wants < equal {
                extra += equal - lease.wants;
            } else if lease.wants > equal {
                want_extra += 1.0;
                wanting.insert(id, lease);
            }
        }
        let share = equal + extra / want_extra;
        if wants < share {
            return wants;
        }
        let (mut extra, mut want_extra) = (0.0, 1.0);
        for lease in wanting.values() {
            if lease.wants < share {
                extra += share - lease.wants;
            } else if lease.wants > share {
                want_extra += 1.0;
            }
        }
        share + extra / want_extra
    }

    /// An equal share, and a part of the other clients' unused shares in proportion to the excess
    /// demand.
    fn proportional_share(&self, client: &str, wants: f64, equal: f64) -> f64 {
        let (mut extra, mut need) = (0.0, wants - equal);
        for (_, lease) in self.others(client) {
            if lease.wants < equal {
                extra += equal - lease.wants;
            } else {
                need += lease.wants - equal;
            }
        }
        equal + (wants - equal) * (extra / need)
    }

    fn others(&self, client: &str) -> impl Iterator<Item = (&String, &Lease)> {
        self.leases.iter().filter(move |(id, _)| *id != client)
    }
}

impl Decide for Scan {
    fn decide(&mut self, request: CapacityRequest, now: Moment) -> Capacity {
        let Some(resource) = request.resources.first() else {
            return Capacity::ZERO;
        };
        self.remove_expired(now);
        let client = request.client_id.as_str();
        let wants = resource.wants.get();
        let had = self.leases.get(client).map_or(0.0, |lease| lease.has);
        let equal = self.capacity / self.leases.len().max(1) as f64;
        let share = if wants <= equal {
            wants
        } else {
            match self.algorithm {
                Algorithm::Fair | Algorithm::Priority(_) => self.fair_share(client, wants, equal),
                Algorithm::Proportional if self.sum_wants <= self.capacity => wants,
                Algorithm::Proportional => self.proportional_share(client, wants, equal),
            }
        };
        let has = share.min(self.capacity - self.sum_has + had);
        let expires = now.after(LEASE_LENGTH);
        self.assign(
            client,
            Lease {
                has,
                wants,
                expires,
            },
        );
        Capacity::saturating(has)
    }
}
