//! The four requests that change the ledger, through the server's router.

use std::collections::BTreeSet;

use bytes::Bytes;
use doorman_openapi::{
    AlgorithmKind, CapacityRequest, CapacityResponse, HolderKind, HolderView, LeasePage,
    ProblemType, ReleaseRequest, ReleaseResponse, ResourceId, ResourcePage, ResourceResponse,
    ResourceView, ServerCapacityRequest, ServerCapacityResponse, ServerReleaseRequest, SortBy,
    paths,
};
use http::Response;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::json;

use crate::fuzz::control_plane::{ControlPlane, problem, read};

/// Every algorithm, no capacity, and the most. Leases outlast every run.
const DOCUMENT: &str = "
resources:
  - {identifier_glob: none/*, capacity: 10, algorithm: {kind: NO_ALGORITHM, lease_length: 3600, refresh_interval: 5}}
  - {identifier_glob: static/*, capacity: 10, algorithm: {kind: STATIC, lease_length: 3600, refresh_interval: 5}}
  - {identifier_glob: share/*, capacity: 10, algorithm: {kind: PROPORTIONAL_SHARE, lease_length: 3600, refresh_interval: 5}}
  - {identifier_glob: band/*, capacity: 10, algorithm: {kind: PRIORITY_SHARE, lease_length: 3600, refresh_interval: 5, parameters: [{name: floor, value: 0.1}]}}
  - {identifier_glob: bucket/*, capacity: 10, algorithm: {kind: SHARED_BUCKET, lease_length: 3600, refresh_interval: 5}}
  - {identifier_glob: suppress/*, capacity: 10, algorithm: {kind: SUPPRESSION, lease_length: 3600, refresh_interval: 5}}
  - {identifier_glob: zero, capacity: 0, algorithm: {kind: FAIR_SHARE, lease_length: 3600, refresh_interval: 5}}
  - {identifier_glob: most, capacity: 1.0e+15, per: 31536000, algorithm: {kind: FAIR_SHARE, lease_length: 3600, refresh_interval: 5}}
  - {identifier_glob: '[!u]*', capacity: 1000, algorithm: {kind: FAIR_SHARE, lease_length: 3600, refresh_interval: 5}}
";

/// Separates two requests; it never occurs in JSON.
const SEPARATOR: u8 = 0x1e;
/// The most requests of one input.
const MAX_REQUESTS: usize = 8;
/// The error allowed for floating-point sums.
const ROUNDING: f64 = 1.0 + 1e-9;
/// The documented statuses, without timeouts and a poisoned ledger, which cannot happen here.
const STATUSES: [u16; 4] = [200, 400, 413, 422];

/// Reads the bytes as a sequence of requests: each is a letter, `c`, `s`, `r` or `d`, and a body.
///
/// # Panics
/// When a response is not as documented, a rejected request changes the ledger, the capacity is
/// exceeded, or anything remains in the ledger after all leases are released.
pub fn run(data: &[u8]) {
    let server = ControlPlane::new(DOCUMENT);
    for request in data.split(|byte| *byte == SEPARATOR).take(MAX_REQUESTS) {
        let Some((letter, body)) = request.split_first() else {
            continue;
        };
        let before = resources(&server);
        let accepted = match letter {
            b's' => request_by_node(&server, body),
            b'r' => release::<ReleaseRequest>(&server, paths::CAPACITY_RELEASE, body),
            b'd' => release::<ServerReleaseRequest>(&server, paths::SERVER_CAPACITY_RELEASE, body),
            _ => request_by_client(&server, body),
        };
        let after = resources(&server);
        if !accepted {
            assert_eq!(before, after, "{}", body.escape_ascii());
        }
        after
            .iter()
            .for_each(|resource| check_sums(&server, resource));
    }
    release_all(&server);
}

fn request_by_client(server: &ControlPlane, body: &[u8]) -> bool {
    let response = server.post(paths::CAPACITY, body);
    let Some(request) = accepted::<CapacityRequest>(&response, body) else {
        return false;
    };
    let parsed: CapacityResponse = read(&response);
    check_responses(
        request.resources.iter().map(|it| &it.resource_id),
        parsed.resources.iter(),
    );
    true
}

fn request_by_node(server: &ControlPlane, body: &[u8]) -> bool {
    let response = server.post(paths::SERVER_CAPACITY, body);
    let Some(request) = accepted::<ServerCapacityRequest>(&response, body) else {
        return false;
    };
    let parsed: ServerCapacityResponse = read(&response);
    let responses = parsed.resources.iter().map(|it| &it.answer);
    check_responses(
        request.resources.iter().map(|it| &it.resource_id),
        responses,
    );
    true
}

fn release<T: DeserializeOwned>(server: &ControlPlane, path: &str, body: &[u8]) -> bool {
    let response = server.post(path, body);
    let released = accepted::<T>(&response, body).is_some();
    if released {
        let _: ReleaseResponse = read(&response);
    }
    released
}

/// The request if it was accepted; otherwise checks the problem document.
fn accepted<T: DeserializeOwned>(response: &Response<Bytes>, body: &[u8]) -> Option<T> {
    let shown = body.escape_ascii();
    let status = response.status().as_u16();
    assert!(STATUSES.contains(&status), "{response:?} {shown}");
    let is_json =
        str::from_utf8(body).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok());
    if status == 200 {
        let request = serde_json::from_slice(body);
        return Some(request.unwrap_or_else(|error| panic!("{error}: {shown}")));
    }
    let problem = problem(response);
    let kind = ProblemType::ALL
        .iter()
        .find(|kind| kind.name() == problem.kind);
    assert_eq!(
        kind.map(|kind| kind.status()),
        Some(status),
        "{problem:?} {shown}"
    );
    assert_eq!(status == 400, !is_json, "{problem:?} {shown}");
    assert_eq!(
        status == 422,
        !problem.errors.is_empty(),
        "{problem:?} {shown}"
    );
    for error in &problem.errors {
        assert!(
            error.pointer.is_empty() || error.pointer.starts_with('/'),
            "{error:?} {shown}"
        );
        assert!(!error.detail.is_empty(), "{error:?} {shown}");
    }
    None
}

/// One response per resource, in the order of the request, each within its limit.
fn check_responses<'a>(
    requested: impl Iterator<Item = &'a ResourceId>,
    responses: impl Iterator<Item = &'a ResourceResponse> + Clone,
) {
    assert!(requested.eq(responses.clone().map(|response| &response.resource_id)));
    for response in responses {
        let gets = &response.gets;
        let unlimited = response
            .template
            .as_deref()
            .is_none_or(|template| template == "none/*");
        let limit = response.limit.filter(|_| !unlimited);
        assert!(
            limit.is_none_or(|limit| gets.capacity <= limit),
            "{response:?}"
        );
        let has_lease = gets.lease_length.get() > 0.0;
        assert!(
            !has_lease || gets.refresh_interval < gets.lease_length,
            "{response:?}"
        );
        assert!(has_lease || gets.capacity.get() == 0.0, "{response:?}");
    }
}

/// All resources in the ledger.
fn resources(server: &ControlPlane) -> Vec<ResourceView> {
    pages(|cursor| {
        let page: ResourcePage = server.get(&format!("{}?limit=1000{cursor}", paths::RESOURCES));
        let mut resources = page.resources;
        for resource in &mut resources {
            // These change as time passes.
            resource.balance = None;
            resource.admission_probability = None;
            resource.unmet_for = None;
            resource.unmet_since = None;
        }
        (resources, page.next_cursor)
    })
}

/// The holders of a resource.
fn holders(server: &ControlPlane, id: &ResourceId) -> Vec<HolderView> {
    let name = utf8_percent_encode(id.as_str(), NON_ALPHANUMERIC).to_string();
    let path = paths::RESOURCE_LEASES.replace("{resource_id}", &name);
    pages(|cursor| {
        let page: LeasePage = server.get(&format!("{path}?limit=1000{cursor}"));
        (page.leases, page.next_cursor)
    })
}

fn pages<T>(mut page: impl FnMut(&str) -> (Vec<T>, Option<String>)) -> Vec<T> {
    let (mut all, mut next) = page("");
    while let Some(cursor) = next {
        let (more, after) = page(&format!("&cursor={cursor}"));
        all.extend(more);
        next = after;
    }
    all
}

/// A resource reports the sums over its holders, within its capacity where it is shared.
fn check_sums(server: &ControlPlane, resource: &ResourceView) {
    let holders = holders(server, &resource.resource_id);
    let close = |one: f64, other: f64| one <= other * ROUNDING && other <= one * ROUNDING;
    let booked = holders.iter().map(|holder| holder.booked).sum();
    assert!(close(resource.sum_has, booked), "{resource:?} {holders:?}");
    let wants = holders.iter().map(|holder| holder.wants.get()).sum();
    assert!(close(resource.sum_wants, wants), "{resource:?} {holders:?}");
    let clients = holders.iter().map(|holder| holder.amount(SortBy::Clients));
    assert!(
        close(resource.clients as f64, clients.sum()),
        "{resource:?} {holders:?}"
    );
    for holder in &holders {
        if !holder.bands.is_empty() {
            let bands = holder.bands.iter().map(|band| band.wants.get());
            assert!(close(holder.wants.get(), bands.sum()), "{holder:?}");
        }
        assert!(holder.has.get() <= holder.booked * ROUNDING, "{holder:?}");
    }
    let within_capacity = |amount: f64| {
        resource
            .capacity
            .is_some_and(|capacity| amount <= capacity.get() * ROUNDING)
    };
    match resource.algorithm {
        Some(AlgorithmKind::NoAlgorithm) => {}
        Some(AlgorithmKind::Static | AlgorithmKind::Suppression | AlgorithmKind::SharedBucket) => {
            assert!(
                holders.iter().all(|holder| within_capacity(holder.booked)),
                "{holders:?}"
            );
        }
        Some(
            AlgorithmKind::ProportionalShare
            | AlgorithmKind::FairShare
            | AlgorithmKind::PriorityShare,
        ) => {
            assert!(
                within_capacity(resource.sum_has),
                "{resource:?} {holders:?}"
            );
        }
        None => panic!("the server knows its algorithms: {resource:?}"),
    }
}

/// Afterwards all sums are exactly zero: they are not maintained by adding and subtracting.
fn release_all(server: &ControlPlane) {
    let all = resources(server);
    let all = all
        .iter()
        .flat_map(|resource| holders(server, &resource.resource_id));
    let holders: BTreeSet<_> = all.map(|holder| (holder.kind, holder.client_id)).collect();
    for (kind, id) in holders {
        // The release is newer than any request of the holder.
        let (path, release) = match kind {
            HolderKind::Client => (paths::CAPACITY_RELEASE, json!({"client_id": id})),
            HolderKind::Node => (
                paths::SERVER_CAPACITY_RELEASE,
                json!({"node_id": id, "epoch": 9_007_199_254_740_991_u64}),
            ),
        };
        assert_eq!(
            server.post(path, release.to_string().as_bytes()).status(),
            200,
            "{release}"
        );
    }
    for resource in resources(server) {
        let ResourceView {
            sum_has,
            sum_wants,
            clients,
            ..
        } = resource;
        assert_eq!((sum_has, sum_wants, clients), (0.0, 0.0, 0), "{resource:?}");
    }
}
