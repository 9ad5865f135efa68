//! Clients that claim what they do not have, and whether servers notice.

use std::collections::{BTreeMap, BTreeSet};

use doorman_openapi::{Capacity, CapacityRequest, ClientId, Epoch, HeldLease, Run, Seq};

use super::{Simulation, invariants::BrokenInvariant};
use crate::{extras::Extra, limits, limits::RESOURCES, report::Invariant};

/// Relative tolerance of sums.
const TOLERANCE: f64 = 1e-6;

/// A client, its run, and a resource.
type ClaimKey = (ClientId, Option<Run>, usize);

/// The first claims that each client has confirmed in the newest reign of the root.
#[derive(Debug, Default)]
pub(super) struct FirstClaims {
    epoch: Option<Epoch>,
    newest: BTreeMap<ClaimKey, Seq>,
    confirmed: BTreeSet<ClaimKey>,
    sums: [f64; RESOURCES],
}

impl FirstClaims {
    /// Notes a request, which makes earlier ones stale.
    fn note(&mut self, epoch: Epoch, key: ClaimKey, seq: Option<Seq>) {
        if self.begin(epoch) {
            let newest = self.newest.entry(key).or_insert(Seq::ZERO);
            *newest = seq.unwrap_or(Seq::ZERO).max(*newest);
        }
    }

    /// Begins anew with a later epoch. Returns whether this one is the latest.
    fn begin(&mut self, epoch: Epoch) -> bool {
        if self.epoch < Some(epoch) {
            *self = Self {
                epoch: Some(epoch),
                ..Self::default()
            };
        }
        self.epoch == Some(epoch)
    }

    /// Adds a claim that a server is about to confirm, unless it is not the first one. Returns the
    /// sum with it. One with an old number, which is `None`, may be stale: it counts for nothing,
    /// nor does a later one.
    fn add(&mut self, epoch: Epoch, key: ClaimKey, seq: Option<Seq>, claim: f64) -> Option<f64> {
        if !self.begin(epoch) {
            return None;
        }
        let Some(seq) = seq else {
            self.confirmed.insert(key);
            return None;
        };
        let resource = key.2;
        let newest = self.newest.entry(key.clone()).or_insert(Seq::ZERO);
        if seq <= *newest {
            return None;
        }
        *newest = seq;
        if !self.confirmed.insert(key) || claim == 0.0 {
            return None;
        }
        self.sums[resource] += claim;
        Some(self.sums[resource])
    }
}

impl Simulation {
    /// Changes a request to that of a liar: it claims more than it has, echoes an epoch that it
    /// need not have heard, or has an old number. That is above the number of its last release,
    /// which would free what the client has leased since if it is late.
    pub(super) fn lie(&mut self, client: usize, request: &mut CapacityRequest) -> bool {
        let client = &self.clients[client];
        let (server, released) = (client.server(), client.released);
        let rng = &mut self.rng;
        let mut lies = false;
        for asked in &mut request.resources {
            let capacity = self.limits[limits::resource_index(&asked.resource_id)].capacity;
            let claim = capacity * rng.f64().sqrt();
            let has = asked.has.map_or(0.0, |held| held.capacity.get());
            if rng.bool() && claim > has {
                let capacity = Capacity::saturating(claim);
                asked.has = Some(HeldLease::from(capacity));
                lies = true;
            }
        }
        if rng.bool() {
            request.heard_epoch = self.servers[server].epoch();
        }
        if rng.u8(..8) == 0 {
            let seq = request.seq.map_or(0, |it| rng.u64(..=it.get()));
            request.seq = Seq::new(seq.max(released.get() + 1)).ok();
        }
        self.stats.lies += u64::from(lies);
        lies
    }

    /// Claims of liars at a server that learns are a named exception: holders that it has not
    /// heard may have the same capacity.
    pub(super) fn allow_lie(&mut self, server: usize, request: &CapacityRequest) {
        for asked in &request.resources {
            if self.servers[server].learns(&asked.resource_id, self.time) {
                let resource = limits::resource_index(&asked.resource_id);
                let until = self.leases_end();
                self.capacity_check.allow(resource, f64::INFINITY, until);
            }
        }
    }

    /// Adds the claims of a request that a server is about to confirm. Returns whether they sum to
    /// more than there ever was, which proves that some are false.
    pub(super) fn proves_lie(
        &mut self,
        server: usize,
        request: &CapacityRequest,
        sent: Seq,
    ) -> bool {
        let Some(epoch) = self.servers[server].epoch() else {
            return false;
        };
        let seq = request.seq.filter(|seq| *seq == sent);
        // The sums of a node are those of its parent's lease. An inherited ledger has claims that
        // were confirmed before.
        let is_checked = self.extras.include(Extra::Liars)
            && !self.servers[server].has_inherited()
            && self.nodes.len() == 1
            && !self.has_several_units();
        if !is_checked {
            return false;
        }
        if request.heard_epoch != Some(epoch) {
            for asked in &request.resources {
                let resource = limits::resource_index(&asked.resource_id);
                let key = (request.client_id.clone(), request.run, resource);
                self.extras.first_claims.note(epoch, key, request.seq);
            }
            return false;
        }
        let mut is_proven = false;
        for asked in &request.resources {
            let resource = limits::resource_index(&asked.resource_id);
            let limit = self.limits[resource];
            // A predecessor that did not divide the capacity proves nothing.
            if !limit.algorithm.divides()
                || self.extras.beside == Some(resource)
                || !self.servers[server].learns(&asked.resource_id, self.time)
            {
                continue;
            }
            let claim = asked.has.map_or(0.0, |held| held.capacity.get());
            let key = (request.client_id.clone(), request.run, resource);
            let claims = &mut self.extras.first_claims;
            let sum = claims.add(epoch, key, seq, claim.min(limit.capacity));
            let most = self.extras.most_capacity[resource].max(limit.capacity);
            is_proven |= sum.is_some_and(|sum| sum > most * (1.0 + TOLERANCE));
        }
        is_proven
    }

    /// Checks that a server has counted a lie that was proven to it.
    pub(super) fn check_lie_is_counted(&mut self, server: usize) {
        if self.servers[server].excess_claims(self.time) == Some(0) {
            self.broken = Some(BrokenInvariant {
                invariant: Invariant::CountedLies,
                detail: format!("server {server} has counted no false claim"),
            });
        }
    }
}
