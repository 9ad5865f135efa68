//! Responses for tests of leasing.

use doorman_openapi::{
    Capacity, CapacityRequest, CapacityResponse, Epoch, Lease, NodeId, Reason, ResourceId,
    ResourceResponse, SafeCapacity, Seconds, Unit,
};

pub(crate) fn id(text: &str) -> ResourceId {
    ResourceId::new(text).unwrap()
}

/// A lease of 0 for 20 s, refreshed every second, with this safe capacity.
pub(crate) fn answer(resource: &str, template: Option<&str>, safe: Capacity) -> ResourceResponse {
    ResourceResponse {
        resource_id: id(resource),
        gets: Lease {
            capacity: Capacity::ZERO,
            lease_length: Seconds::new(20.0).unwrap(),
            refresh_interval: Seconds::new(1.0).unwrap(),
            expiry_time: 0,
            effective: None,
        },
        reason: Reason::Share,
        template: template.map(str::to_owned),
        limit: None,
        unit: Some(Unit::Rate),
        per: Some(Seconds::new(1.0).unwrap()),
        safe_capacity: SafeCapacity::AtMost(safe),
        admission_probability: None,
        balance: None,
        tokens: None,
        report: false,
    }
}

/// A lease of `capacity` for 20 s, refreshed every second.
pub(crate) fn grant(resource: &str, capacity: f64) -> ResourceResponse {
    let mut answer = answer(resource, Some("*"), Capacity::saturating(2.0));
    answer.gets.capacity = Capacity::new(capacity).unwrap();
    answer.limit = Some(Capacity::saturating(1000.0));
    answer
}

pub(crate) fn response(resources: Vec<ResourceResponse>) -> CapacityResponse {
    CapacityResponse {
        warnings: Vec::new(),
        node: NodeId::new("root").unwrap(),
        epoch: Epoch::new(7).unwrap(),
        resources,
    }
}

/// Grants `capacity` of every requested resource.
pub(crate) fn grant_all(request: &CapacityRequest, capacity: f64) -> CapacityResponse {
    response(
        request
            .resources
            .iter()
            .map(|resource| grant(resource.resource_id.as_str(), capacity))
            .collect(),
    )
}
