//! The example services.

use std::time::Duration;

use doorman_examples::load::Load;
use tokio::time::sleep;

use crate::support::{ControlPlane, DOCUMENT, Response, Service, curl, exclusive_load, until};

/// One closed resource, and ten per second of any other.
const CLOSED_AND_OPEN: &str = "
resources:
  - {identifier_glob: closed, capacity: 0, algorithm: {kind: FAIR_SHARE}}
  - identifier_glob: '*'
    capacity: 10
    algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 1}
";

const LONG_LEASES: &str = "
resources:
  - identifier_glob: '*'
    capacity: 1000
    algorithm: {kind: FAIR_SHARE, lease_length: 300, refresh_interval: 1}
";

fn send(service: &Service, tenant: &str) -> Response {
    let header = format!("x-tenant: {tenant}");
    curl(&[service.address(), "-H", &header])
}

#[test]
fn every_tenant_has_its_own_resource() {
    let server = ControlPlane::start(CLOSED_AND_OPEN);
    let service = Service::start(
        server.address(),
        &["--key-header", "x-tenant", "--resource", "tenant"],
    );
    for tenant in ["a", "b/c"] {
        let response = send(&service, tenant);
        assert_eq!((response.status, response.body.as_str()), (200, "ok"));
    }
    let ids = service.resources();
    for id in ["tenant/a", "tenant/b%2Fc"] {
        assert!(ids.iter().any(|it| it == id), "{id} of {ids:?}");
    }
}

#[test]
fn rejection_names_the_limit_and_when_to_retry() {
    let server = ControlPlane::start(CLOSED_AND_OPEN);
    let service = Service::start(server.address(), &["--resource", "closed"]);
    until("it has a lease", || service.lease("closed").is_some());
    let response = curl(&[service.address()]);
    assert_eq!(response.status, 429, "{response:?}");
    for header in [
        "content-type: application/problem+json",
        "retry-after: ",
        "ratelimit: \"closed\";r=0",
    ] {
        assert!(
            response.headers.contains(header),
            "{header} in {response:?}"
        );
    }
    let problem: serde_json::Value = serde_json::from_str(&response.body).expect("JSON");
    assert_eq!(problem["status"], 429);
    assert_eq!(problem["violated-policies"][0], "closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delayed_requests_are_admitted_at_the_leased_rate() {
    let _exclusive = exclusive_load().await;
    let server = ControlPlane::start(CLOSED_AND_OPEN);
    let service = Service::start(server.address(), &["--on-limit", "delay:5"]);
    let load = Load::start([service.target()], 64);
    // The queue grows by two a second, and a delay of five seconds holds many more.
    load.offer([12.0]);
    sleep(Duration::from_secs(4)).await;
    let [before] = load.totals();
    sleep(Duration::from_secs(6)).await;
    let [after] = load.totals();
    let admitted = after.admitted - before.admitted;
    assert!((50..=66).contains(&admitted), "{admitted} in 6 s");
    assert_eq!(
        (after.rejected, after.unavailable, after.failed),
        (before.rejected, before.unavailable, before.failed)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_request_after_idle_time_is_admitted() {
    let _exclusive = exclusive_load().await;
    let server = ControlPlane::start(DOCUMENT);
    let service = Service::start(server.address(), &[]);
    // Before its first request the service wants nothing, so its lease has no capacity.
    until("the limit is known", || service.limit("api").is_some());
    assert_eq!(curl(&[service.address()]).status, 200);
    until("its demand fades", || service.wants("api") <= 0.3);
    assert_eq!(curl(&[service.address()]).status, 200);
}

/// The example `hyper` limits each caller's address to a burst of ten and one request a second.
#[test]
fn hyper_service_limits_caller_over_all_connections() {
    let server = ControlPlane::start(LONG_LEASES);
    let service = Service::on_hyper(server.address());
    until("the limit is known", || service.limit("api").is_some());
    let first = curl(&[service.address()]);
    assert_eq!((first.status, first.body.as_str()), (200, "ok"));
    for header in [
        "ratelimit-policy: \"api\";q=1000;w=1, \"peer\";q=60;w=60",
        "ratelimit: \"api\";r=",
    ] {
        assert!(first.headers.contains(header), "{header} in {first:?}");
    }
    // Each request uses a new connection, every other one HTTP/2.
    let mut rejected = None;
    for number in 0..40 {
        let protocol = ["--http1.1", "--http2-prior-knowledge"][number % 2];
        let response = curl(&[protocol, service.address()]);
        if response.status != 200 {
            rejected = Some(response);
            break;
        }
    }
    let rejected = rejected.expect("a rejection within 40 requests");
    assert_eq!(rejected.status, 429, "{rejected:?}");
    assert!(rejected.headers.contains("retry-after: 1"), "{rejected:?}");
    assert!(rejected.body.contains("quota-exceeded"), "{rejected:?}");

    assert!(service.resources().iter().any(|id| id == "peer/127.0.0.1"));
    assert!(service.terminate().success());
}
