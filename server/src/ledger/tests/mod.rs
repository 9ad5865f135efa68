//! The core through its public door, with time by hand.

mod bound;
mod cuts;
mod exactness;
mod handover;
mod held_back;
mod holders;
mod learning;
mod leasing;
mod nodes;
mod notices;
mod order;
mod parts;
mod renewals;
mod safety;
mod shared_bucket;
mod suppression;

use std::sync::Arc;

use doorman_config::Document;
use doorman_openapi::{
    Capacity, CapacityRequest, ClientId, HeldLease, HolderView, Moment, ReleaseRequest, ResourceId,
    ResourceRequest, ResourceView, Seq,
};

use super::{
    Grant, Ledger, LedgerEvent, LedgerEvents, PageQuery, Predecessor, Settings, UnmatchedPolicy,
};

pub(super) const SETTINGS: Settings = Settings {
    max_leases: 1_000_000,
    unmatched: UnmatchedPolicy::Grant,
    predecessor: Predecessor::None,
};

/// A document with the resource `db`.
pub(super) fn document(kind: &str, capacity: f64) -> Arc<Document> {
    parse(&format!(
        "resources: [{{identifier_glob: db, capacity: {capacity}, \
         algorithm: {{kind: {kind}, lease_length: 20, refresh_interval: 5}}}}]"
    ))
}

pub(super) fn parse(text: &str) -> Arc<Document> {
    Arc::new(Document::parse(text).unwrap())
}

pub(super) fn db() -> ResourceId {
    ResourceId::new("db").unwrap()
}

/// Books with a clock, and clients that say what they are told to say.
pub(super) struct World {
    pub(super) core: Ledger,
    pub(super) now: Moment,
}

impl World {
    pub(super) fn new(document: Arc<Document>) -> Self {
        Self::with(document, SETTINGS)
    }

    pub(super) fn with(document: Arc<Document>, settings: Settings) -> Self {
        let now = Moment::ORIGIN.after_seconds(3600.0);
        Self {
            core: Ledger::new(document, settings, now),
            now,
        }
    }

    pub(super) fn wait(&mut self, seconds: f64) {
        self.now = self.now.after_seconds(seconds);
        while self
            .core
            .sweep(self.now, 1)
            .is_some_and(|next| next <= self.now)
        {}
    }

    pub(super) fn send(&mut self, request: &CapacityRequest) -> Grant {
        self.core.refresh_client(request, self.now).remove(0)
    }

    /// One client asks for `db`, without a `seq`.
    pub(super) fn ask(&mut self, client: &str, wants: f64, has: Option<f64>) -> Grant {
        self.send(&request(client, None, wants, has))
    }

    pub(super) fn release(&mut self, client: &str, seq: Option<u64>) {
        let release = ReleaseRequest {
            client_id: ClientId::new(client).unwrap(),
            seq: seq.map(|seq| Seq::new(seq).unwrap()),
            resource_ids: None,
        };
        self.core.release_client(&release, self.now);
    }

    /// All live resources whose identifier begins so, as operators see them.
    pub(super) fn resources(&self, prefix: &str) -> Vec<ResourceView> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let part = self.core.resources(
                prefix,
                &PageQuery::unfiltered(1000),
                after.as_ref(),
                self.now,
            );
            all.extend(part.resources);
            after = part.next;
            if after.is_none() {
                return all;
            }
        }
    }

    /// The first holders of `db`, as operators see them; none when nobody holds it.
    pub(super) fn holders(&self) -> Vec<HolderView> {
        let page = self
            .core
            .holders(&db(), &PageQuery::unfiltered(1000), None, self.now);
        let Ok(page) = page else { return Vec::new() };
        let resource = page.resource;
        let views = page.holders.into_iter();
        views
            .map(|holding| holding.into_view(&resource, 1000))
            .collect()
    }

    /// One of them.
    #[track_caller]
    pub(super) fn holder(&self, client: &str) -> HolderView {
        let mut holders = self.holders().into_iter();
        holders.find(|it| it.client_id == client).unwrap()
    }

    /// `db`, as operators see it.
    pub(super) fn view(&self) -> Option<ResourceView> {
        self.core.resource(&db(), self.now)
    }
}

pub(super) fn request(
    client: &str,
    seq: Option<u64>,
    wants: f64,
    has: Option<f64>,
) -> CapacityRequest {
    CapacityRequest {
        client_id: ClientId::new(client).unwrap(),
        seq: seq.map(|seq| Seq::new(seq).unwrap()),
        resources: vec![ResourceRequest {
            resource_id: db(),
            wants: Capacity::new(wants).unwrap(),
            priority: 0,
            has: has.map(|has| HeldLease {
                capacity: Capacity::new(has).unwrap(),
            }),
            outstanding: Capacity::ZERO,
            used: None,
        }],
    }
}

#[track_caller]
pub(super) fn close(got: f64, expected: f64) {
    assert!(
        (got - expected).abs() <= 1e-9 * (1.0 + expected.abs()),
        "{got} is not {expected}"
    );
}
