//! Ours: the books of the control plane.

use std::{error::Error, sync::Arc};

use doorman_config::Document;
use doorman_openapi::{Capacity, CapacityRequest, Moment};
use doorman_server::ledger::{Ledger, Predecessor, Settings, UnmatchedPolicy};

use super::{
    Sharing,
    steady::{CAPACITY_PER_CLIENT, Decides, LEASE_LENGTH, REFRESH_INTERVAL, START},
};

/// Empty books of a server that is the first.
pub(crate) fn empty(sharing: Sharing, clients: usize) -> Result<Ledger, Box<dyn Error>> {
    let document = Document::parse(&format!(
        "resources: [{{identifier_glob: '*', capacity: {}, \
         algorithm: {{kind: {}, lease_length: {}, refresh_interval: {}}}}}]",
        CAPACITY_PER_CLIENT * clients as f64,
        sharing.name(),
        LEASE_LENGTH.as_secs(),
        REFRESH_INTERVAL.as_secs(),
    ))?;
    let settings = Settings {
        max_leases: clients,
        unmatched: UnmatchedPolicy::Grant,
        predecessor: Predecessor::None,
    };
    Ok(Ledger::new(Arc::new(document), settings, START))
}

impl Decides for Ledger {
    fn decide(&mut self, request: &CapacityRequest, now: Moment) -> Capacity {
        let granted = self.refresh_client(request, now);
        granted
            .first()
            .map_or(Capacity::ZERO, |granted| granted.capacity)
    }
}
