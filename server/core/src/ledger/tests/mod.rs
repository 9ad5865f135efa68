//! Tests of the ledger through its public API, with a manual clock.

mod capped_grants;
mod cuts;
mod events;
mod exactness;
mod explain;
mod feedback;
mod hint_plans;
mod hints;
mod learning;
mod leasing;
mod listing;
mod nodes;
mod order;
mod outcomes;
mod parents;
mod priority_share;
mod recent_demand;
mod replace;
mod requests;
mod runs;
mod safety;
mod shared_bucket;
mod snapshot;
mod spent;
mod suppression;
mod tenants;
mod tree_shares;
mod units;

use std::collections::BTreeMap;
use std::sync::Arc;

use doorman_config::Document;
use doorman_openapi::{
    Capacity, CapacityRequest, ClientId, Epoch, HeldLease, HolderView, Moment, ReleaseRequest,
    ResourceId, ResourceRequest, ResourceView, Seq,
};

use super::{
    Grant, Ledger, LedgerEvent, LedgerEvents, LedgerStats, PageQuery, Predecessor, Settings,
    UnmatchedPolicy,
};

pub(super) const SETTINGS: Settings = Settings {
    max_leases: 1_000_000,
    unmatched: UnmatchedPolicy::Grant,
    predecessor: Predecessor::None,
    epoch: Epoch::ZERO,
};

/// A document with the resource `db`.
pub(super) fn document(kind: &str, capacity: f64) -> Arc<Document> {
    parse(&format!(
        "resources: [{{identifier_glob: db, capacity: {capacity}, \
         algorithm: {{kind: {kind}, lease_length: 20, refresh_interval: 5}}}}]"
    ))
}

/// A document with the resource `db` of so much in so many seconds.
pub(super) fn periodic(capacity: f64, per: f64) -> Arc<Document> {
    parse(&format!(
        "resources: [{{identifier_glob: db, capacity: {capacity}, per: {per}, \
         algorithm: {{kind: FAIR_SHARE, lease_length: 20, refresh_interval: 5}}}}]"
    ))
}

pub(super) fn parse(text: &str) -> Arc<Document> {
    Arc::new(Document::parse(text).unwrap())
}

pub(super) fn db() -> ResourceId {
    ResourceId::new("db").unwrap()
}

/// A ledger with a manual clock, and clients that claim what the test says.
pub(super) struct World {
    pub(super) ledger: Ledger,
    pub(super) now: Moment,
}

impl World {
    pub(super) fn new(document: Arc<Document>) -> Self {
        Self::with(document, SETTINGS)
    }

    pub(super) fn with(document: Arc<Document>, settings: Settings) -> Self {
        let now = Moment::ORIGIN.after_seconds(3600.0);
        Self {
            ledger: Ledger::new(document, settings, now),
            now,
        }
    }

    pub(super) fn wait(&mut self, seconds: f64) {
        self.now = self.now.after_seconds(seconds);
        while self
            .ledger
            .sweep(self.now, 1)
            .is_some_and(|next| next <= self.now)
        {}
    }

    pub(super) fn send(&mut self, request: &CapacityRequest) -> Grant {
        self.ledger
            .refresh(&request.clone().into(), self.now)
            .remove(0)
    }

    /// A client's request for `db`, without a `seq`.
    pub(super) fn refresh(&mut self, client: &str, wants: f64, has: Option<f64>) -> Grant {
        self.send(&request(client, None, wants, has))
    }

    pub(super) fn release(&mut self, client: &str, seq: Option<u64>) {
        let release = ReleaseRequest {
            client_id: ClientId::new(client).unwrap(),
            run: None,
            seq: seq.map(|seq| Seq::new(seq).unwrap()),
            heard_epoch: None,
            resource_ids: None,
            tokens: BTreeMap::new(),
        };
        self.ledger.release(&release.clone().into(), self.now);
    }

    /// All live resources with a prefix.
    pub(super) fn resources(&self, prefix: &str) -> Vec<ResourceView> {
        let (mut all, mut after) = (Vec::new(), None);
        let query = PageQuery {
            prefix,
            ..PageQuery::unfiltered(1000)
        };
        loop {
            let part = self.ledger.resources(&query, after.as_ref(), self.now);
            all.extend(part.resources);
            after = part.next;
            if after.is_none() {
                return all;
            }
        }
    }

    /// The holders of `db`.
    pub(super) fn holders(&self) -> Vec<HolderView> {
        let page = self
            .ledger
            .holders(&db(), &PageQuery::unfiltered(1000), None, self.now);
        let Ok(page) = page else { return Vec::new() };
        let resource = page.resource;
        let views = page.holders.into_iter();
        views
            .map(|holding| holding.into_view(&resource, 1000))
            .collect()
    }

    /// One holder of `db`.
    #[track_caller]
    pub(super) fn holder(&self, client: &str) -> HolderView {
        let mut holders = self.holders().into_iter();
        holders.find(|it| it.client_id == client).unwrap()
    }

    /// The view of `db`.
    pub(super) fn view(&self) -> Option<ResourceView> {
        self.ledger.resource(&db(), self.now)
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
        run: None,
        seq: seq.map(|seq| Seq::new(seq).unwrap()),
        heard_epoch: None,
        polls: false,
        replaces: Vec::new(),
        resources: vec![ResourceRequest {
            resource_id: db(),
            wants: Capacity::new(wants).unwrap(),
            priority: None,
            bands: None,
            has: has.map(|has| HeldLease::from(Capacity::new(has).unwrap())),
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
    }
}

#[track_caller]
pub(super) fn close(got: f64, expected: f64) {
    assert!(
        (got - expected).abs() <= 1e-9 * (1.0 + expected.abs()),
        "{got} is not {expected}"
    );
}
