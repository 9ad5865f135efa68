//! The four calls that change the books, through the server's own router.

use std::collections::BTreeSet;

use doorman_openapi::{
    AlgorithmKind, CapacityRequest, CapacityResponse, HolderKind, HolderView, LeasePage,
    ProblemType, ReleaseRequest, ResourceId, ResourcePage, ResourceResponse, ResourceView,
    ServerCapacityRequest, ServerCapacityResponse, ServerReleaseRequest, paths,
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::json;

use crate::fuzz::plane::{Plane, Reply, problem, read};

/// Every algorithm, nothing, and as much as can be spoken of; leases outlast every run.
const DOCUMENT: &str = "
resources:
  - {identifier_glob: none/*, capacity: 10, algorithm: {kind: NO_ALGORITHM, lease_length: 3600, refresh_interval: 5}}
  - {identifier_glob: static/*, capacity: 10, algorithm: {kind: STATIC, lease_length: 3600, refresh_interval: 5}}
  - {identifier_glob: share/*, capacity: 10, algorithm: {kind: PROPORTIONAL_SHARE, lease_length: 3600, refresh_interval: 5}}
  - {identifier_glob: bucket/*, capacity: 10, algorithm: {kind: SHARED_BUCKET, lease_length: 3600, refresh_interval: 5}}
  - {identifier_glob: suppress/*, capacity: 10, algorithm: {kind: SUPPRESSION, lease_length: 3600, refresh_interval: 5}}
  - {identifier_glob: zero, capacity: 0, algorithm: {kind: FAIR_SHARE, lease_length: 3600, refresh_interval: 5}}
  - {identifier_glob: most, capacity: 1.0e+15, algorithm: {kind: FAIR_SHARE, lease_length: 3600, refresh_interval: 5}}
  - {identifier_glob: '[!u]*', capacity: 1000, algorithm: {kind: FAIR_SHARE, lease_length: 3600, refresh_interval: 5}}
";

/// The byte between two calls; JSON has no place for it.
const SEPARATOR: u8 = 0x1e;
/// The most calls of one input.
const MOST_CALLS: usize = 8;
/// The most that sums of the books may be off by: they are of floating point.
const ROUNDING: f64 = 1.0 + 1e-9;
/// As documented for each of the calls; in a process, nothing is late and the books are sound.
const STATUSES: [u16; 4] = [200, 400, 413, 422];

/// Takes the bytes for calls in a row: each is a letter, `c`, `s`, `r` or `d`, and a body.
///
/// # Panics
/// When an answer is not as documented, a refused call changes anything, more is handed out than there is, or something stays in the
/// books that everybody has given back.
pub fn run(data: &[u8]) {
    let plane = Plane::new(DOCUMENT);
    for call in data.split(|byte| *byte == SEPARATOR).take(MOST_CALLS) {
        let Some((letter, body)) = call.split_first() else {
            continue;
        };
        let before = books(&plane);
        let accepted = match letter {
            b's' => asked_by_node(&plane, body),
            b'r' => released::<ReleaseRequest>(&plane, paths::CAPACITY_RELEASE, body),
            b'd' => released::<ServerReleaseRequest>(&plane, paths::SERVER_CAPACITY_RELEASE, body),
            _ => asked_by_client(&plane, body),
        };
        let after = books(&plane);
        if !accepted {
            assert_eq!(before, after, "{}", body.escape_ascii());
        }
        after.iter().for_each(|resource| adds_up(&plane, resource));
    }
    give_everything_back(&plane);
}

fn asked_by_client(plane: &Plane, body: &[u8]) -> bool {
    let reply = plane.post(paths::CAPACITY, body);
    let Some(request) = accepted::<CapacityRequest>(&reply, body) else {
        return false;
    };
    let answer: CapacityResponse = read(&reply);
    answered(
        request.resources.iter().map(|asked| &asked.resource_id),
        answer.resources.iter(),
    );
    true
}

fn asked_by_node(plane: &Plane, body: &[u8]) -> bool {
    let reply = plane.post(paths::SERVER_CAPACITY, body);
    let Some(request) = accepted::<ServerCapacityRequest>(&reply, body) else {
        return false;
    };
    let answer: ServerCapacityResponse = read(&reply);
    let answers = answer.resources.iter().map(|answer| &answer.answer);
    answered(
        request.resources.iter().map(|asked| &asked.resource_id),
        answers,
    );
    true
}

fn released<T: DeserializeOwned>(plane: &Plane, path: &str, body: &[u8]) -> bool {
    let reply = plane.post(path, body);
    let released = accepted::<T>(&reply, body).is_some();
    if released {
        assert_eq!(reply.body(), "{}");
    }
    released
}

/// The request that was accepted, if it was; else the answer says what was wrong with it.
fn accepted<T: DeserializeOwned>(reply: &Reply, body: &[u8]) -> Option<T> {
    let shown = body.escape_ascii();
    let status = reply.status().as_u16();
    assert!(STATUSES.contains(&status), "{reply:?} {shown}");
    let is_json =
        str::from_utf8(body).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok());
    if status == 200 {
        let request = serde_json::from_slice(body);
        return Some(request.unwrap_or_else(|error| panic!("{error}: {shown}")));
    }
    let problem = problem(reply);
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

/// One answer a resource, in the order of the request, and each of them within the limit that it tells.
fn answered<'a>(
    asked: impl Iterator<Item = &'a ResourceId>,
    answers: impl Iterator<Item = &'a ResourceResponse> + Clone,
) {
    assert!(asked.eq(answers.clone().map(|answer| &answer.resource_id)));
    for answer in answers {
        let gets = &answer.gets;
        let undivided = answer
            .template
            .as_deref()
            .is_none_or(|template| template == "none/*");
        let limit = answer.limit.filter(|_| !undivided);
        assert!(
            limit.is_none_or(|limit| gets.capacity <= limit),
            "{answer:?}"
        );
        let lasts = gets.lease_length.get() > 0.0;
        assert!(
            !lasts || gets.refresh_interval < gets.lease_length,
            "{answer:?}"
        );
        assert!(lasts || gets.capacity.get() == 0.0, "{answer:?}");
    }
}

/// All live resources.
fn books(plane: &Plane) -> Vec<ResourceView> {
    pages(|cursor| {
        let page: ResourcePage = plane.get(&format!("{}?limit=1000{cursor}", paths::RESOURCES));
        let mut resources = page.resources;
        for resource in &mut resources {
            // These change by themselves, as time passes.
            resource.balance = None;
            resource.admission_probability = None;
        }
        (resources, page.next_cursor)
    })
}

/// The holders of a resource.
fn holders(plane: &Plane, id: &ResourceId) -> Vec<HolderView> {
    let name = utf8_percent_encode(id.as_str(), NON_ALPHANUMERIC).to_string();
    let path = paths::RESOURCE_LEASES.replace("{resource_id}", &name);
    pages(|cursor| {
        let page: LeasePage = plane.get(&format!("{path}?limit=1000{cursor}"));
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

/// What a resource says of itself is what its holders have, and no more than there is where it is divided.
fn adds_up(plane: &Plane, resource: &ResourceView) {
    let holders = holders(plane, &resource.resource_id);
    let close = |one: f64, other: f64| one <= other * ROUNDING && other <= one * ROUNDING;
    let booked = holders.iter().map(|holder| holder.booked).sum();
    assert!(close(resource.sum_has, booked), "{resource:?} {holders:?}");
    let wants = holders.iter().map(|holder| holder.wants.get()).sum();
    assert!(close(resource.sum_wants, wants), "{resource:?} {holders:?}");
    for holder in &holders {
        assert!(holder.has.get() <= holder.booked * ROUNDING, "{holder:?}");
    }
    let most = |amount: f64| {
        resource
            .capacity
            .is_some_and(|capacity| amount <= capacity.get() * ROUNDING)
    };
    match resource.algorithm {
        AlgorithmKind::NoAlgorithm => {}
        AlgorithmKind::Static | AlgorithmKind::Suppression | AlgorithmKind::SharedBucket => {
            assert!(
                holders.iter().all(|holder| most(holder.booked)),
                "{holders:?}"
            );
        }
        AlgorithmKind::ProportionalShare | AlgorithmKind::FairShare => {
            assert!(most(resource.sum_has), "{resource:?} {holders:?}");
        }
    }
}

/// Afterwards nothing is left: to the last bit, since sums are not kept by adding and subtracting.
fn give_everything_back(plane: &Plane) {
    let all = books(plane);
    let all = all
        .iter()
        .flat_map(|resource| holders(plane, &resource.resource_id));
    let holders: BTreeSet<_> = all.map(|holder| (holder.kind, holder.client_id)).collect();
    for (kind, id) in holders {
        // After everything that the holder can have sent.
        let (path, release) = match kind {
            HolderKind::Client => (paths::CAPACITY_RELEASE, json!({"client_id": id})),
            HolderKind::Node => (
                paths::SERVER_CAPACITY_RELEASE,
                json!({"node_id": id, "epoch": 9_007_199_254_740_991_u64}),
            ),
        };
        assert_eq!(
            plane.post(path, release.to_string().as_bytes()).status(),
            200,
            "{release}"
        );
    }
    for resource in books(plane) {
        let ResourceView {
            sum_has,
            sum_wants,
            clients,
            ..
        } = resource;
        assert_eq!((sum_has, sum_wants, clients), (0.0, 0.0, 0), "{resource:?}");
    }
}
