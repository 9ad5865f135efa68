//! Mock control plane with the real ledger.

use std::sync::{Arc, Mutex};

use doorman_config::Document;
use doorman_openapi::{CapacityResponse, Epoch, NodeId};
use doorman_server::ledger::{Ledger, Predecessor, Settings, UnmatchedPolicy};

use super::plane::{Plane, Reply};
use crate::clock;

/// Leases last 20 s and are refreshed every second.
pub(super) fn control_plane(kind: &str, capacity: f64) -> Plane {
    refreshed_every(1, kind, capacity)
}

/// Like [`control_plane`], with another refresh interval in seconds.
pub(super) fn refreshed_every(interval: u32, kind: &str, capacity: f64) -> Plane {
    with_parameters(interval, kind, capacity, "")
}

/// FAIR_SHARE that grants half of what nobody wants on top of the wants.
pub(super) fn with_surplus(interval: u32, capacity: f64) -> Plane {
    let half = "parameters: [{name: surplus, value: '0.5'}]";
    with_parameters(interval, "FAIR_SHARE", capacity, half)
}

pub(super) fn with_parameters(interval: u32, kind: &str, capacity: f64, parameters: &str) -> Plane {
    let length = 20 * interval;
    let document = format!(
        "resources: [{{identifier_glob: '*', capacity: {capacity}, \
         algorithm: {{kind: {kind}, lease_length: {length}, refresh_interval: {interval}, {parameters}}}}}]"
    );
    let epoch = Epoch::new(1).unwrap();
    let settings = Settings {
        max_leases: 1_000_000,
        unmatched: UnmatchedPolicy::Refuse,
        predecessor: Predecessor::None,
        epoch,
    };
    let document = Arc::new(Document::parse(&document).unwrap());
    let ledger = Mutex::new(Ledger::new(document, settings, clock::now()));
    Plane::new(move |call| {
        let mut ledger = ledger.lock().unwrap();
        if let Some(release) = call.release() {
            ledger.release_client(&release, call.at);
            return Reply::json(200, &serde_json::json!({}));
        }
        let Some(request) = call.capacity() else {
            return Reply::json(404, &serde_json::json!({}));
        };
        let granted = ledger.refresh_client(&request, call.at).into_iter();
        CapacityResponse {
            node: NodeId::new("root").unwrap(),
            epoch,
            resources: granted.map(|granted| granted.into_response(0)).collect(),
        }
        .into()
    })
}
