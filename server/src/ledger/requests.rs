//! Requests of clients and nodes, handled in parts.
//!
//! A request may name 10,000 resources, a release may concern a million leases. The caller locks
//! the ledger once per part, and each part is decided at the time at which it is handled.

use doorman_openapi::{
    Band, Capacity, CapacityRequest, ClientCount, Epoch, HolderKind, MAX_BANDS,
    MAX_ENTRIES_PER_PRIORITY, Moment, ReleaseRequest, ResourceId, ResourceRequest,
    ServerCapacityRequest, ServerReleaseRequest, ServerResourceRequest,
};
use smallvec::{SmallVec, smallvec};

use super::{
    Grant, Ledger, TenantId,
    holders::HolderId,
    keys::{HolderKey, ResourceKey},
    order::{RequestOrder, RequestStamp},
    resource::{Ask, Has},
    units::AmountUnit,
};

/// The most bands per part; a resource has at least one.
pub(super) const MAX_PART: usize = 64;

/// Looking through this many templates costs about as much as a decision.
const TEMPLATES_PER_DECISION: usize = 1024;

/// The most resources per part of a renewal check, which is cheaper than a decision.
const MAX_CHECKED: usize = 256;

/// The progress of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReleaseProgress {
    /// The resources that were examined.
    pub scanned: usize,
    /// The leases that were released.
    pub released: usize,
    /// Where to continue; `None` when done.
    pub next: Option<usize>,
}

/// Whether a request only renews leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenewalCheck {
    /// The holder has a lease on each resource.
    AllHeld,
    /// The holder has no lease on some resource.
    SomeNew,
    /// The holder has a lease on each resource before this position. Continue there.
    HeldSoFar(usize),
}

impl Ledger {
    /// Decides a client's request, in the order of its resources.
    pub fn refresh_client(&mut self, request: &CapacityRequest, now: Moment) -> Vec<Grant> {
        in_parts(request.resources.len(), |from| {
            self.refresh_client_part(request, None, from, now)
        })
    }

    /// Decides the next resources of a client's request, from position `from` on. A `tenant` is
    /// limited to [its quota](super::Settings::max_leases_per_tenant) of leases.
    pub fn refresh_client_part(
        &mut self,
        request: &CapacityRequest,
        tenant: Option<TenantId>,
        from: usize,
        now: Moment,
    ) -> Vec<Grant> {
        let id = HolderId::Client(request.client_id.clone());
        let holder = self.holders.begin_request(&id, tenant);
        let order = RequestOrder::of_client(request.seq);
        let stamp = self.stamp(order, request.heard_epoch);
        let rest = request.resources.iter().skip(from);
        let part = part(rest, self.max_leased_part(now), |asked| {
            asked.bands.as_ref().map_or(1, Vec::len)
        });
        let grants = part.map(|asked| {
            let bands = bands_of_client(asked);
            self.refresh(
                holder,
                &asked.resource_id,
                &ask_of_client(stamp, asked, &bands),
                now,
            )
        });
        let grants = grants.collect();
        self.holders.end_request();
        grants
    }

    /// Decides a node's request, in the order of its resources.
    pub fn refresh_node(&mut self, request: &ServerCapacityRequest, now: Moment) -> Vec<Grant> {
        in_parts(request.resources.len(), |from| {
            self.refresh_node_part(request, None, from, now)
        })
    }

    /// Decides the next resources of a node's request, as [`Self::refresh_client_part`] does.
    pub fn refresh_node_part(
        &mut self,
        request: &ServerCapacityRequest,
        tenant: Option<TenantId>,
        from: usize,
        now: Moment,
    ) -> Vec<Grant> {
        let id = HolderId::Node(request.node_id.clone());
        let holder = self.holders.begin_request(&id, tenant);
        self.holders.set_address(holder, request.address.as_ref());
        let order = RequestOrder::of_node(request.epoch, request.seq);
        let stamp = self.stamp(order, request.heard_epoch);
        let rest = request.resources.iter().skip(from);
        let part = part(rest, self.max_leased_part(now), |asked| {
            asked.wants.len().min(MAX_BANDS * MAX_ENTRIES_PER_PRIORITY)
        });
        let grants = part
            .map(|asked| self.refresh(holder, &asked.resource_id, &ask_of_node(stamp, asked), now));
        let grants = grants.collect();
        self.holders.end_request();
        grants
    }

    /// Releases a client's leases. Leases that it does not have are ignored.
    pub fn release_client(&mut self, request: &ReleaseRequest, now: Moment) {
        let mut from = Some(0);
        while let Some(position) = from {
            let progress = self.release_client_part(request, &|_| true, position, now);
            from = progress.next;
        }
    }

    /// Releases the next leases of a client on resources that are `allowed`, from position `from`
    /// on, which is 0 at first.
    pub fn release_client_part(
        &mut self,
        request: &ReleaseRequest,
        allowed: &dyn Fn(&ResourceId) -> bool,
        from: usize,
        now: Moment,
    ) -> ReleaseProgress {
        let holder = self
            .holders
            .find(&HolderId::Client(request.client_id.clone()));
        let order = RequestOrder::of_client(request.seq);
        let stamp = self.stamp(order, request.heard_epoch);
        let ids = request.resource_ids.as_deref();
        self.release_part(holder, ids, allowed, stamp, from, now)
    }

    /// Releases the next leases of a node, as [`Self::release_client_part`] does.
    pub fn release_node_part(
        &mut self,
        request: &ServerReleaseRequest,
        allowed: &dyn Fn(&ResourceId) -> bool,
        from: usize,
        now: Moment,
    ) -> ReleaseProgress {
        let holder = self.holders.find(&HolderId::Node(request.node_id.clone()));
        let order = RequestOrder::of_node(request.epoch, request.seq);
        let stamp = self.stamp(order, request.heard_epoch);
        let ids = request.resource_ids.as_deref();
        self.release_part(holder, ids, allowed, stamp, from, now)
    }

    fn release_part(
        &mut self,
        holder: Option<HolderKey>,
        ids: Option<&[ResourceId]>,
        allowed: &dyn Fn(&ResourceId) -> bool,
        stamp: RequestStamp,
        from: usize,
        now: Moment,
    ) -> ReleaseProgress {
        let Some(holder) = holder else {
            return ReleaseProgress::default();
        };
        let (keys, next): (Vec<_>, _) = if let Some(ids) = ids {
            let part = ids.iter().skip(from).take(MAX_PART);
            let keys = part.filter_map(|id| self.keys.get(id).copied());
            let next = from.saturating_add(MAX_PART);
            (keys.collect(), (next < ids.len()).then_some(next))
        } else {
            // Released entries are retained for a while, so the position is a resource key.
            let rest = self.holders.resources(holder, ResourceKey::new(from));
            let keys: Vec<_> = rest.take(MAX_PART).collect();
            let last = keys.last().filter(|_| keys.len() == MAX_PART);
            let next = last.map(|last| last.index().saturating_add(1));
            (keys, next)
        };
        let scanned = keys.len();
        let mut released: usize = 0;
        for key in keys {
            let live = self.live.get(key.index());
            if live.is_some_and(|live| allowed(&live.id)) {
                let had_lease = self.release(holder, key, stamp, now);
                released = released.saturating_add(usize::from(had_lease));
            }
        }
        ReleaseProgress {
            scanned,
            released,
            next,
        }
    }

    pub(super) fn stamp(&self, order: RequestOrder, heard_epoch: Option<Epoch>) -> RequestStamp {
        RequestStamp {
            order,
            echoes_epoch: heard_epoch == Some(self.settings.epoch),
        }
    }

    /// Checks the next resources of a client's request, from position `from` on.
    ///
    /// While leases of a predecessor may be outstanding, a claim is believed, so that its holder is
    /// not taken for a new one.
    #[must_use]
    pub fn check_client_renewal(
        &self,
        request: &CapacityRequest,
        from: usize,
        now: Moment,
    ) -> RenewalCheck {
        let holder = self
            .holders
            .find(&HolderId::Client(request.client_id.clone()));
        let rest = request.resources.iter().skip(from).take(MAX_CHECKED);
        let mut rest = rest.map(|asked| (&asked.resource_id, asked.has.is_some()));
        let all = rest.all(|(id, claims)| self.is_renewal(holder, id, claims, now));
        renewal_check(all, from, request.resources.len())
    }

    /// Checks the next resources of a node's request, from position `from` on. A node that does not
    /// know what it has is taken to claim something.
    #[must_use]
    pub fn check_node_renewal(
        &self,
        request: &ServerCapacityRequest,
        from: usize,
        now: Moment,
    ) -> RenewalCheck {
        let holder = self.holders.find(&HolderId::Node(request.node_id.clone()));
        let mut rest = request.resources.iter().skip(from).take(MAX_CHECKED);
        let all = rest.all(|asked| self.is_renewal(holder, &asked.resource_id, true, now));
        renewal_check(all, from, request.resources.len())
    }

    fn is_renewal(
        &self,
        holder: Option<HolderKey>,
        id: &ResourceId,
        claims: bool,
        now: Moment,
    ) -> bool {
        let has_lease = || {
            let live = self.live.get(self.keys.get(id)?.index())?;
            Some(live.resource.has_lease(holder?, now))
        };
        let may_hold = || self.outstanding_until().is_some_and(|end| now < end);
        has_lease() == Some(true) || claims && may_hold()
    }

    /// The most bands or resources per part: fewer when each is looked up among many templates.
    pub(super) fn max_part(&self) -> usize {
        max_part(self.document.templates().len())
    }

    /// The same where earlier terms are looked up, too: while a predecessor's leases may last.
    pub(super) fn max_leased_part(&self, now: Moment) -> usize {
        let templates = self.document.templates().len();
        let earlier = if self.may_have_lost_leases(now) {
            self.earlier_terms.searched()
        } else {
            0
        };
        max_part(templates.saturating_add(earlier))
    }
}

fn max_part(templates: usize) -> usize {
    let cost = TEMPLATES_PER_DECISION.saturating_add(templates);
    (MAX_PART * TEMPLATES_PER_DECISION / cost).max(1)
}

/// The first resources that have at most `max` bands together, but at least one resource.
fn part<'a, T: 'a>(
    resources: impl Iterator<Item = &'a T>,
    max: usize,
    bands: impl Fn(&T) -> usize,
) -> impl Iterator<Item = &'a T> {
    let mut left = max;
    let mut is_first = true;
    resources.take_while(move |resource| {
        let rest = left.checked_sub(bands(resource).max(1));
        left = rest.unwrap_or(0);
        let is_in = rest.is_some() || is_first;
        is_first = false;
        is_in
    })
}

pub(super) fn ask_of_client<'a>(
    stamp: RequestStamp,
    asked: &ResourceRequest,
    bands: &'a [Band],
) -> Ask<'a> {
    Ask {
        stamp,
        kind: HolderKind::Client,
        bands,
        // A client knows what it has, so none means nothing.
        has: Has::Amount(asked.has.map_or(Capacity::ZERO, |held| held.capacity)),
        outstanding: asked.outstanding,
        used: asked.used,
        unit: AmountUnit::of_request(asked.unit, asked.per),
        may_have: 0.0,
        is_first_in_unit: false,
    }
}

pub(super) fn ask_of_node(stamp: RequestStamp, asked: &ServerResourceRequest) -> Ask<'_> {
    let has = asked.has.map(|held| Has::Amount(held.capacity));
    Ask {
        stamp,
        kind: HolderKind::Node,
        bands: &asked.wants,
        has: has.unwrap_or(Has::Unknown),
        outstanding: asked.outstanding,
        used: asked.used,
        unit: AmountUnit::of_request(asked.unit, asked.per),
        may_have: 0.0,
        is_first_in_unit: false,
    }
}

/// The demand of a client by priority. Each band has the weight of one client.
pub(super) fn bands_of_client(asked: &ResourceRequest) -> SmallVec<[Band; 1]> {
    let band = |priority, wants| Band {
        priority,
        num_clients: ClientCount::ONE,
        wants,
    };
    match &asked.bands {
        None => smallvec![band(asked.priority.unwrap_or(0), asked.wants)],
        Some(bands) => bands.iter().map(|it| band(it.priority, it.wants)).collect(),
    }
}

fn renewal_check(all_held: bool, from: usize, asked: usize) -> RenewalCheck {
    let next = from.saturating_add(MAX_CHECKED);
    match all_held {
        false => RenewalCheck::SomeNew,
        true if next < asked => RenewalCheck::HeldSoFar(next),
        true => RenewalCheck::AllHeld,
    }
}

fn in_parts(len: usize, mut part: impl FnMut(usize) -> Vec<Grant>) -> Vec<Grant> {
    let mut grants = Vec::with_capacity(len);
    while grants.len() < len {
        grants.append(&mut part(grants.len()));
    }
    grants
}
