//! A clean stop: nothing in flight fails, and what was leased is given back.

use std::time::Duration;

use doorman_examples::load::Load;
use tokio::time::sleep;

use crate::{
    fleet::target,
    support::{ControlPlane, Service, alone, curl},
};

const DOCUMENT: &str = "
resources:
  - identifier_glob: api
    capacity: 1000
    algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 1}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_is_told_to_stop_gives_its_lease_back() {
    let _alone = alone().await;
    let server = ControlPlane::start(DOCUMENT);
    let service = Service::start(server.address(), &[]);
    let load = Load::start([target(&service)], 4);
    load.offer([50.0]);
    while server.get("/v1/resources")["resources"][0]["clients"] != 1.0 {
        sleep(Duration::from_millis(50)).await;
    }
    drop(load);
    assert_eq!(service.terminate().code(), Some(0));
    // The released entry is kept for its order only: it holds and wants nothing.
    let view = server.get("/v1/resources/api");
    assert_eq!(
        (&view["sum_has"], &view["clients"]),
        (&0.0.into(), &0.0.into()),
        "{view}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_control_plane_that_is_told_to_stop_answers_what_is_in_flight_and_exits_with_0() {
    let _alone = alone().await;
    let server = ControlPlane::start(DOCUMENT);
    let service = Service::start(server.address(), &[]);
    let load = Load::start([target(&service)], 8);
    load.offer([300.0]);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(curl(&[&format!("{}/readyz", server.address())]).status, 200);
    assert_eq!(server.terminate().code(), Some(0));
    // The service lives on its lease, and no request notices.
    let [before] = load.totals();
    sleep(Duration::from_secs(2)).await;
    let [after] = load.totals();
    assert_eq!(
        (after.refused, after.unavailable, after.failed),
        (before.refused, before.unavailable, before.failed)
    );
}
