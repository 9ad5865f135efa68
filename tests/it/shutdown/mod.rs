//! A clean stop: nothing in flight fails, and what was leased is given back.

mod awkward;
mod callers;
mod under_load;

use std::{
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::Duration,
};

use doorman_examples::load::Load;
use tokio::time::{sleep, timeout};

use crate::{
    fleet::target,
    support::{ControlPlane, DOCUMENT, Service, TIMEOUT, exclusive_load},
};

/// How often it is looked whether what is waited for has come.
const LOOK: Duration = Duration::from_millis(50);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_is_told_to_stop_gives_its_lease_back() {
    let _exclusive = exclusive_load().await;
    let server = ControlPlane::start(DOCUMENT);
    let service = Service::start(server.address(), &[]);
    let load = Load::start([target(&service)], 4);
    load.offer([50.0]);
    let leases = async {
        while server.get("/v1/resources")["resources"][0]["clients"] != 1.0 {
            sleep(LOOK).await;
        }
    };
    timeout(TIMEOUT, leases).await.expect("it leases");
    drop(load);
    assert_eq!(service.terminate().code(), Some(0));
    // The released entry is kept for its order only: it holds and wants nothing.
    let view = server.get("/v1/resources/api");
    assert_eq!(
        (&view["sum_has"], &view["clients"]),
        (&0.0.into(), &0.into()),
        "{view}"
    );
}

#[test]
fn a_control_plane_that_is_told_to_stop_answers_what_is_in_flight_and_exits_with_0() {
    let server = ControlPlane::start(DOCUMENT);
    let address = server.address().trim_start_matches("http://").to_owned();
    let body = r#"{"client_id": "c", "resources": [{"resource_id": "api", "wants": 7}]}"#;
    let mut stream = TcpStream::connect(&address).expect("it listens");
    stream
        .set_read_timeout(Some(TIMEOUT))
        .expect("more than nothing");
    let head = format!(
        "POST /v1/capacity HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         expect: 100-continue\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("it reads");
    // It says so when it has the head and waits for the body.
    let mut goes_on = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
    stream.read_exact(&mut goes_on).expect("it answers");
    assert_eq!(&goes_on, b"HTTP/1.1 100 Continue\r\n\r\n");

    server.request_stop();
    let mut looks = 0;
    while TcpStream::connect(&address).is_ok() {
        assert!(looks < 100, "it still takes connections in");
        looks += 1;
        thread::sleep(LOOK);
    }

    stream.write_all(body.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    assert!(answer.contains(r#""capacity":7"#), "{answer}");
    assert_eq!(server.wait().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_whose_control_plane_stops_lives_on_its_lease_and_no_request_notices() {
    let _exclusive = exclusive_load().await;
    let server = ControlPlane::start(DOCUMENT);
    let service = Service::start(server.address(), &[]);
    let load = Load::start([target(&service)], 8);
    load.offer([300.0]);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(server.terminate().code(), Some(0));
    let [before] = load.totals();
    sleep(Duration::from_secs(2)).await;
    let [after] = load.totals();
    assert_eq!(
        (after.rejected, after.unavailable, after.failed),
        (before.rejected, before.unavailable, before.failed)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_whose_control_plane_stops_and_starts_again_under_load_refuses_nobody() {
    let _exclusive = exclusive_load().await;
    let server = ControlPlane::start(DOCUMENT);
    let service = Service::start(server.address(), &[]);
    let load = Load::start([target(&service)], 8);
    load.offer([300.0]);
    let leased = async {
        while service.lease("api").is_none_or(|capacity| capacity < 300.0) {
            sleep(LOOK).await;
        }
    };
    timeout(TIMEOUT, leased).await.expect("it leases enough");
    let [before] = load.totals();
    let server = server.stop().restart();
    // The next server knows its lease from the first moment on; one that is renewed there ends later than before.
    let left = || {
        let leases = server.get("/v1/resources/api/leases");
        let left = leases["leases"][0]["expires_in"].as_f64();
        left.expect("it has a lease")
    };
    let renewed = async {
        let first = left();
        while left() <= first {
            sleep(LOOK).await;
        }
    };
    timeout(TIMEOUT, renewed).await.expect("it renews");
    let [after] = load.totals();
    assert!(after.admitted > before.admitted);
    assert_eq!(
        (after.rejected, after.unavailable, after.failed),
        (before.rejected, before.unavailable, before.failed)
    );
}
