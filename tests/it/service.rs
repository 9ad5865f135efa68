//! The example service, as its arguments say.

use std::time::Duration;

use doorman_examples::load::Load;
use tokio::time::sleep;

use crate::{
    fleet::target,
    support::{ControlPlane, Response, Service, curl, exclusive_load},
};

const DOCUMENT: &str = "
resources:
  - {identifier_glob: shut, capacity: 0, algorithm: {kind: FAIR_SHARE}}
  - identifier_glob: '*'
    capacity: 10
    algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 1}
";

fn ask(service: &Service, tenant: &str) -> Response {
    let header = format!("x-tenant: {tenant}");
    curl(&[service.address(), "-H", &header])
}

#[test]
fn every_caller_has_a_resource_of_its_own() {
    let server = ControlPlane::start(DOCUMENT);
    let service = Service::start(
        server.address(),
        &["--key-header", "x-tenant", "--resource", "tenant"],
    );
    for tenant in ["a", "b/c"] {
        let answer = ask(&service, tenant);
        assert_eq!((answer.status, answer.body.as_str()), (200, "ok"));
    }
    let ids: Vec<_> = service.resources();
    for id in ["tenant/a", "tenant/b%2Fc"] {
        assert!(ids.iter().any(|it| it == id), "{id} of {ids:?}");
    }
}

#[test]
fn a_refusal_says_what_was_refused_and_when_to_come_back() {
    let server = ControlPlane::start(DOCUMENT);
    let service = Service::start(server.address(), &["--resource", "shut"]);
    while service.lease("shut").is_none() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let answer = curl(&[service.address()]);
    assert_eq!(answer.status, 429, "{answer:?}");
    for header in [
        "content-type: application/problem+json",
        "retry-after: ",
        "ratelimit: \"shut\";r=0",
    ] {
        assert!(answer.headers.contains(header), "{header} in {answer:?}");
    }
    let problem: serde_json::Value = serde_json::from_str(&answer.body).expect("JSON");
    assert_eq!(problem["status"], 429);
    assert_eq!(problem["violated-policies"][0], "shut");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_delayed_is_admitted_at_the_rate_of_the_lease_and_nobody_is_refused() {
    let _exclusive = exclusive_load().await;
    let server = ControlPlane::start(DOCUMENT);
    let service = Service::start(server.address(), &["--on-limit", "delay:5"]);
    let load = Load::start([target(&service)], 64);
    // A little over the limit: the queue grows by two a second, well below what five seconds can hold.
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
