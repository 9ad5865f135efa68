//! Requests of clients and nodes, whole or in parts.
//!
//! A request may ask for 10,000 resources, and a release give back a million leases. Whoever shares the books with others takes such
//! a request in parts, so that nobody waits long for the books; each part is decided at the time at which it is handled.

use doorman_openapi::{
    Band, Capacity, CapacityRequest, ClientCount, Moment, ReleaseRequest, ResourceId,
    ServerCapacityRequest, ServerReleaseRequest,
};

use super::{Ask, Grant, HolderId, Ledger, Order};
use crate::ledger::{TenantId, resource::Has};

/// How many resources a part has at most.
const MOST: usize = 64;

/// So many templates to look through cost about as much as a decision.
const TEMPLATES: usize = 1024;

impl Ledger {
    /// Decides what a client gets, for each resource it asks for, in the order of the request.
    pub fn refresh_client(&mut self, request: &CapacityRequest, now: Moment) -> Vec<Grant> {
        whole(request.resources.len(), |from| {
            self.refresh_client_part(request, None, from, now)
        })
    }

    /// The same for the next few resources of the request, from position `from` on. A `tenant` has no more than its
    /// [share](crate::ledger::Settings::max_leases_per_tenant) of the books.
    pub fn refresh_client_part(
        &mut self,
        request: &CapacityRequest,
        tenant: Option<TenantId>,
        from: usize,
        now: Moment,
    ) -> Vec<Grant> {
        let holder = self
            .holders
            .asks(&HolderId::Client(request.client_id.clone()), tenant);
        let order = Order::of_client(request.seq);
        let part = request.resources.iter().skip(from).take(self.part());
        let granted = part.map(|asked| {
            let band = Band {
                priority: asked.priority,
                num_clients: ClientCount::ONE,
                wants: asked.wants,
            };
            let ask = Ask {
                order,
                bands: std::slice::from_ref(&band),
                // A client knows what it has: when it says nothing, it has nothing.
                has: Has::Amount(asked.has.map_or(Capacity::ZERO, |held| held.capacity)),
                outstanding: asked.outstanding,
                used: asked.used,
            };
            self.refresh(holder, &asked.resource_id, &ask, now)
        });
        let granted = granted.collect();
        self.holders.has_asked();
        granted
    }

    /// Decides what a node gets, for each resource it asks for, in the order of the request.
    pub fn refresh_node(&mut self, request: &ServerCapacityRequest, now: Moment) -> Vec<Grant> {
        whole(request.resources.len(), |from| {
            self.refresh_node_part(request, None, from, now)
        })
    }

    /// The same for the next few resources of the request, from position `from` on; for a `tenant` as for clients.
    pub fn refresh_node_part(
        &mut self,
        request: &ServerCapacityRequest,
        tenant: Option<TenantId>,
        from: usize,
        now: Moment,
    ) -> Vec<Grant> {
        let holder = self
            .holders
            .asks(&HolderId::Node(request.node_id.clone()), tenant);
        let order = Order::of_node(request.epoch, request.seq);
        let part = request.resources.iter().skip(from).take(self.part());
        let granted = part.map(|asked| {
            let ask = Ask {
                order,
                bands: &asked.wants,
                has: asked
                    .has
                    .map_or(Has::Unknown, |held| Has::Amount(held.capacity)),
                outstanding: asked.outstanding,
                used: asked.used,
            };
            self.refresh(holder, &asked.resource_id, &ask, now)
        });
        let granted = granted.collect();
        self.holders.has_asked();
        granted
    }

    /// Takes a client's leases back; what it does not have is not missed.
    pub fn release_client(&mut self, request: &ReleaseRequest, now: Moment) {
        let mut from = Some(0);
        while let Some(position) = from {
            let part = self.release_client_part(request, &|_| true, position, now);
            from = part.next;
        }
    }

    /// The same for the next few leases, from position `from` on, which is 0 at first, and only on resources that `may` be given back.
    pub fn release_client_part(
        &mut self,
        request: &ReleaseRequest,
        may: &dyn Fn(&ResourceId) -> bool,
        from: usize,
        now: Moment,
    ) -> ReleaseProgress {
        let holder = HolderId::Client(request.client_id.clone());
        let order = Order::of_client(request.seq);
        self.release_part(
            &holder,
            request.resource_ids.as_deref(),
            may,
            order,
            from,
            now,
        )
    }

    /// Takes a node's leases back; what it does not have is not missed.
    pub fn release_node(&mut self, request: &ServerReleaseRequest, now: Moment) {
        let mut from = Some(0);
        while let Some(position) = from {
            let part = self.release_node_part(request, &|_| true, position, now);
            from = part.next;
        }
    }

    /// The same for the next few leases, from position `from` on, which is 0 at first, and only on resources that `may` be given back.
    pub fn release_node_part(
        &mut self,
        request: &ServerReleaseRequest,
        may: &dyn Fn(&ResourceId) -> bool,
        from: usize,
        now: Moment,
    ) -> ReleaseProgress {
        let holder = HolderId::Node(request.node_id.clone());
        let order = Order::of_node(request.epoch, request.seq);
        self.release_part(
            &holder,
            request.resource_ids.as_deref(),
            may,
            order,
            from,
            now,
        )
    }

    fn release_part(
        &mut self,
        holder: &HolderId,
        ids: Option<&[ResourceId]>,
        may: &dyn Fn(&ResourceId) -> bool,
        order: Order,
        from: usize,
        now: Moment,
    ) -> ReleaseProgress {
        let Some(holder) = self.holders.find(holder) else {
            return ReleaseProgress::default();
        };
        let (keys, next): (Vec<u32>, _) = if let Some(ids) = ids {
            let part = ids.iter().skip(from).take(MOST);
            let keys = part.filter_map(|id| self.keys.get(id).copied());
            let next = from.saturating_add(MOST);
            (keys.collect(), (next < ids.len()).then_some(next))
        } else {
            // A position is a resource's key: released entries stay for a while, and must not be met again.
            let keys: Vec<_> = self.holders.resources(holder, from).take(MOST).collect();
            let last = keys.last().filter(|_| keys.len() == MOST);
            let next = last.map(|last| (*last as usize).saturating_add(1));
            (keys, next)
        };
        let scanned = keys.len();
        for key in keys {
            if !self.live.get(key as usize).is_some_and(|it| may(&it.id)) {
                continue;
            }
            self.release(holder, key, order, now);
        }
        ReleaseProgress { scanned, next }
    }

    /// How many resources of a request are decided in one part: fewer where each has to be sought among many templates.
    pub(super) fn part(&self) -> usize {
        let templates = self.document.templates().len();
        (MOST * TEMPLATES / TEMPLATES.saturating_add(templates)).max(1)
    }
}

/// What has come of a part of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReleaseProgress {
    /// How many resources it has looked at.
    pub scanned: usize,
    /// From where to go on; `None` when all are back.
    pub next: Option<usize>,
}

fn whole(asked: usize, mut part: impl FnMut(usize) -> Vec<Grant>) -> Vec<Grant> {
    let mut granted = Vec::with_capacity(asked);
    while granted.len() < asked {
        granted.append(&mut part(granted.len()));
    }
    granted
}
