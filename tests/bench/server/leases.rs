//! A ledger in which each of a number of clients leases as many resources. Ids have 32 bytes.

use std::{error::Error, sync::Arc, time::Duration};

use doorman_config::Document;
use doorman_core::ledger::{Ledger, Predecessor, Settings, UnmatchedPolicy};
use doorman_openapi::{
    Capacity, CapacityRequest, ClientId, Epoch, HeldLease, Moment, ResourceId, ResourceRequest,
};

pub(crate) const START: Moment = Moment::from_nanos(3_600_000_000_000);
pub(crate) const REFRESH_INTERVAL: Duration = Duration::from_secs(5);

/// A ledger without leases.
pub(crate) fn ledger(clients: usize) -> Result<Ledger, Box<dyn Error>> {
    let document = Document::parse(&format!(
        "resources: [{{identifier_glob: '*', capacity: {}, \
         algorithm: {{kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}}}}]",
        25 * clients
    ))?;
    let settings = Settings {
        max_leases: clients * clients,
        unmatched: UnmatchedPolicy::Grant,
        predecessor: Predecessor::None,
        epoch: Epoch::ZERO,
    };
    Ok(Ledger::new(Arc::new(document), settings, START))
}

pub(crate) fn client_id(client: usize) -> Result<ClientId, Box<dyn Error>> {
    Ok(ClientId::new(format!("client-{client:025}"))?)
}

/// A request of a client for so many resources.
pub(crate) fn request(client: usize, resources: usize) -> Result<CapacityRequest, Box<dyn Error>> {
    let resources = (0..resources).map(|number| {
        Ok(ResourceRequest {
            resource_id: ResourceId::new(format!("resource-{number:023}"))?,
            wants: Capacity::saturating(fastrand::f64() * 100.0),
            priority: None,
            bands: None,
            has: Some(HeldLease::from(Capacity::saturating(10.0))),
            outstanding: Capacity::ZERO,
            used: Some(Capacity::saturating(1000.0)),
            unit: None,
            limited_as: None,
            bucket: None,
            per: None,
            outcomes: None,
            pause: None,
            seen: None,
        })
    });
    Ok(CapacityRequest {
        client_id: client_id(client)?,
        run: None,
        seq: None,
        heard_epoch: None,
        polls: false,
        replaces: Vec::new(),
        resources: resources.collect::<Result<_, Box<dyn Error>>>()?,
    })
}
