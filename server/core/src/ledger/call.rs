//! Calls of holders, as the ledger decides on them: of clients and of nodes alike.

use std::collections::BTreeMap;

use doorman_openapi::{
    Balance, Band, Bucket, Capacity, CapacityRequest, ClientCount, ClientId, Epoch, HeldLease,
    HolderKind, Outcomes, ReleaseRequest, ResourceId, ResourceRequest, Seconds, Seen, Seq,
    ServerCapacityRequest, ServerReleaseRequest, ServerResourceRequest, ServerUrl, Unit,
};
use smallvec::{SmallVec, smallvec};

use crate::ledger::{
    holders::{HolderId, Tenant},
    resource::order::{RequestOrder, RequestStamp},
    resource::{Ask, Has, Report},
    terms::unit::AmountUnit,
};

/// A request of a holder for leases.
#[derive(Debug, Clone)]
pub struct LeaseCall {
    pub(in crate::ledger) holder: HolderId,
    /// The address that a node states.
    pub(in crate::ledger) address: Option<ServerUrl>,
    pub(in crate::ledger) tenant: Option<Tenant>,
    pub(in crate::ledger) sent: Sent,
    /// Whether its poll for hints is under way.
    pub(in crate::ledger) polls: bool,
    /// Clients that are known to be dead.
    pub(in crate::ledger) replaces: Vec<ClientId>,
    pub(in crate::ledger) resources: Vec<Asked>,
}

/// A release of leases.
#[derive(Debug, Clone)]
pub struct ReleaseCall {
    pub(in crate::ledger) holders: ReleasedHolders,
    pub(in crate::ledger) sent: Sent,
    /// Sorted; all, if absent.
    pub(in crate::ledger) resource_ids: Option<Vec<ResourceId>>,
    /// The tokens in the buckets of a client.
    pub(in crate::ledger) tokens: BTreeMap<ResourceId, Balance>,
}

/// The holders whose leases are released.
#[derive(Debug, Clone)]
pub(in crate::ledger) enum ReleasedHolders {
    One(HolderId),
    /// All runs of a client.
    Runs(ClientId),
}

/// When a call was sent, as far as it tells.
#[derive(Debug, Clone, Copy)]
pub(in crate::ledger) struct Sent {
    order: RequestOrder,
    heard_epoch: Option<Epoch>,
}

/// The part of a call for one resource.
#[derive(Debug, Clone)]
pub(in crate::ledger) struct Asked {
    pub(in crate::ledger) resource_id: ResourceId,
    /// The demand by priority. That of a client has the weight of one client in each band.
    pub(in crate::ledger) bands: SmallVec<[Band; 1]>,
    has: Has,
    outstanding: Capacity,
    used: Option<Capacity>,
    unit: Option<AmountUnit>,
    /// The unit in which a client limits the resource, if that is another one.
    pub(in crate::ledger) limited_as: Option<Unit>,
    /// The bucket of a client that saves up for long.
    bucket: Option<Bucket>,
    /// Whether its holder may have a lease that this master does not know.
    pub(in crate::ledger) may_have_lease: bool,
    report: Option<Box<Report>>,
}

impl LeaseCall {
    /// The sender.
    #[must_use]
    pub fn holder(&self) -> &HolderId {
        &self.holder
    }

    /// Counts the leases and the sender in the bounds of a tenant.
    #[must_use]
    pub fn of_tenant(self, tenant: Option<Tenant>) -> Self {
        Self { tenant, ..self }
    }

    /// Lets its outcomes move no capacity.
    #[must_use]
    pub fn without_evidence(mut self) -> Self {
        let reports = self
            .resources
            .iter_mut()
            .filter_map(|it| it.report.as_mut());
        reports.for_each(|report| report.counts = false);
        self
    }

    /// The number of resources.
    #[must_use]
    pub fn len(&self) -> usize {
        self.resources.len()
    }

    /// Whether it asks for nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }
}

impl ReleaseCall {
    /// The resources that it names; `None` for all.
    #[must_use]
    pub fn resource_ids(&self) -> Option<&[ResourceId]> {
        self.resource_ids.as_deref()
    }

    /// Whether it names the resource, or all.
    pub(in crate::ledger) fn names(&self, id: &ResourceId) -> bool {
        let ids = self.resource_ids();
        ids.is_none_or(|ids| ids.binary_search(id).is_ok())
    }
}

impl Sent {
    fn by_client(seq: Option<Seq>, heard_epoch: Option<Epoch>) -> Self {
        let order = RequestOrder::of_client(seq);
        Self { order, heard_epoch }
    }

    fn by_node(epoch: Option<Epoch>, seq: Option<Seq>, heard_epoch: Option<Epoch>) -> Self {
        let order = RequestOrder::of_node(epoch, seq);
        Self { order, heard_epoch }
    }

    /// The stamp of a call to the master of `epoch`.
    pub(in crate::ledger) fn stamp(self, epoch: Epoch) -> RequestStamp {
        RequestStamp {
            order: self.order,
            echoes_epoch: self.heard_epoch == Some(epoch),
        }
    }
}

impl Asked {
    pub(in crate::ledger) fn ask(&self, kind: HolderKind, stamp: RequestStamp) -> Ask<'_> {
        Ask {
            stamp,
            kind,
            bands: &self.bands,
            has: self.has,
            outstanding: self.outstanding,
            used: self.used,
            unit: self.unit,
            bucket: self.bucket,
            report: self.report.as_deref(),
            may_have: 0.0,
            is_first_in_unit: false,
            awaits: None,
        }
    }
}

impl From<CapacityRequest> for LeaseCall {
    fn from(request: CapacityRequest) -> Self {
        Self {
            holder: HolderId::Client(request.client_id, request.run),
            address: None,
            tenant: None,
            sent: Sent::by_client(request.seq, request.heard_epoch),
            polls: request.polls,
            replaces: request.replaces,
            resources: request.resources.into_iter().map(Asked::from).collect(),
        }
    }
}

impl From<ServerCapacityRequest> for LeaseCall {
    fn from(request: ServerCapacityRequest) -> Self {
        Self {
            holder: HolderId::Node(request.node_id),
            address: request.address,
            tenant: None,
            sent: Sent::by_node(request.epoch, request.seq, request.heard_epoch),
            polls: false,
            replaces: Vec::new(),
            resources: request.resources.into_iter().map(Asked::from).collect(),
        }
    }
}

impl From<ReleaseRequest> for ReleaseCall {
    fn from(request: ReleaseRequest) -> Self {
        // An operator states neither of them. An earlier version of the layer states no run.
        let is_of_process = request.seq.is_some() || !request.tokens.is_empty();
        let holders = match request.run {
            None if !is_of_process => ReleasedHolders::Runs(request.client_id),
            run => ReleasedHolders::One(HolderId::Client(request.client_id, run)),
        };
        Self {
            holders,
            sent: Sent::by_client(request.seq, request.heard_epoch),
            resource_ids: sorted(request.resource_ids),
            tokens: request.tokens,
        }
    }
}

impl From<ServerReleaseRequest> for ReleaseCall {
    fn from(request: ServerReleaseRequest) -> Self {
        Self {
            holders: ReleasedHolders::One(HolderId::Node(request.node_id)),
            sent: Sent::by_node(request.epoch, request.seq, request.heard_epoch),
            resource_ids: sorted(request.resource_ids),
            tokens: BTreeMap::new(),
        }
    }
}

fn sorted(resource_ids: Option<Vec<ResourceId>>) -> Option<Vec<ResourceId>> {
    resource_ids.map(|mut ids| {
        ids.sort_unstable();
        ids
    })
}

fn report_of(
    outcomes: Option<Outcomes>,
    pause: Option<Seconds>,
    seen: Option<Seen>,
    has: Option<HeldLease>,
) -> Option<Box<Report>> {
    let report = Report {
        outcomes: outcomes?,
        pause,
        seen,
        effective: has.and_then(|held| held.effective),
        counts: true,
    };
    Some(Box::new(report))
}

impl From<ResourceRequest> for Asked {
    fn from(asked: ResourceRequest) -> Self {
        let band = |priority, wants| Band {
            priority,
            num_clients: ClientCount::ONE,
            wants,
        };
        Self {
            bands: match &asked.bands {
                None => smallvec![band(asked.priority.unwrap_or(0), asked.wants)],
                Some(bands) => bands.iter().map(|it| band(it.priority, it.wants)).collect(),
            },
            // A client knows what it has, so none means nothing.
            has: Has::Amount(asked.has.map_or(Capacity::ZERO, |held| held.capacity)),
            outstanding: asked.outstanding,
            used: asked.used,
            unit: AmountUnit::of_request(asked.unit, asked.per),
            limited_as: asked.limited_as,
            bucket: asked.bucket,
            may_have_lease: asked.has.is_some(),
            report: report_of(
                asked.outcomes.map(|it| *it),
                asked.pause,
                asked.seen.map(|it| *it),
                asked.has,
            ),
            resource_id: asked.resource_id,
        }
    }
}

impl From<ServerResourceRequest> for Asked {
    fn from(asked: ServerResourceRequest) -> Self {
        let has = asked.has.map(|held| Has::Amount(held.capacity));
        Self {
            resource_id: asked.resource_id,
            bands: asked.wants.into(),
            has: has.unwrap_or(Has::Unknown),
            outstanding: asked.outstanding,
            used: asked.used,
            unit: AmountUnit::of_request(asked.unit, asked.per),
            limited_as: None,
            bucket: None,
            // One that does not know is taken to have something.
            may_have_lease: true,
            report: report_of(asked.outcomes, asked.pause, asked.seen, asked.has),
        }
    }
}
