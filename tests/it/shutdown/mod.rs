//! Clean shutdown: requests in flight are answered, and leases are released or handed over.

mod clients;
mod under_load;

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    process::Command,
    thread,
    time::Duration,
};

use doorman_examples::load::Load;
use tokio::time::{sleep, timeout};

use crate::support::{Authority, ControlPlane, DOCUMENT, Service, TIMEOUT, exclusive_load, now};

/// Interval at which conditions are polled.
const POLL: Duration = Duration::from_millis(50);

/// The longest shutdown.
const LONGEST: Duration = Duration::from_secs(10);

/// The head of a lease request whose body waits for `100 Continue`, without its length.
const HEAD: &str = "POST /v1/capacity HTTP/1.1\r\nhost: localhost\r\n\
     content-type: application/json\r\nexpect: 100-continue\r\n";

const BODY: &str = r#"{"client_id": "c", "resources": [{"resource_id": "api", "wants": 7}]}"#;

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

fn connect(server: &ControlPlane) -> TcpStream {
    let address = server.address().trim_start_matches("http://");
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("not zero");
    stream.set_write_timeout(Some(TIMEOUT)).expect("not zero");
    stream
}

/// Sends a head, and returns when the server waits for the body.
fn begin_request(server: &ControlPlane, length: usize) -> TcpStream {
    let mut stream = connect(server);
    let head = format!("{HEAD}content-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("the server reads");
    let mut interim = [0; CONTINUE.len()];
    stream.read_exact(&mut interim).expect("a response");
    assert_eq!(interim, CONTINUE);
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_releases_its_lease_on_shutdown() {
    let _exclusive = exclusive_load().await;
    let server = ControlPlane::start(DOCUMENT);
    let service = Service::start(server.address(), &[]);
    let load = Load::start([service.target()], 4);
    load.offer([50.0]);
    let leased = async {
        while server.get("/v1/resources")["resources"][0]["clients"] != 1.0 {
            sleep(POLL).await;
        }
    };
    timeout(TIMEOUT, leased).await.expect("it leases");
    drop(load);
    assert_eq!(service.terminate().code(), Some(0));
    // The released entry remains for its order. It has and wants nothing.
    let view = server.get("/v1/resources/api");
    assert_eq!(
        (&view["sum_has"], &view["clients"]),
        (&0.0.into(), &0.into()),
        "{view}"
    );
}

#[test]
fn control_plane_answers_request_in_flight_before_exit() {
    let server = ControlPlane::start(DOCUMENT);
    let address = server.address().trim_start_matches("http://").to_owned();
    let mut stream = begin_request(&server, BODY.len());

    server.request_stop();
    let mut polls = 0;
    while TcpStream::connect(&address).is_ok() {
        assert!(polls < 100, "it still accepts connections");
        polls += 1;
        thread::sleep(POLL);
    }

    stream.write_all(BODY.as_bytes()).expect("the server reads");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    assert!(response.contains("\r\nconnection: close\r\n"), "{response}");
    assert!(response.contains(r#""capacity":7"#), "{response}");
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn unresponsive_clients_delay_shutdown_at_most_ten_seconds() {
    let server = ControlPlane::start(DOCUMENT);

    let idle: Vec<_> = (0..300).map(|_| connect(&server)).collect();
    // Pipelines more requests than all buffers hold, and reads no response.
    let mut never_reads = connect(&server);
    never_reads.set_nonblocking(true).expect("a socket");
    let requests = "GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(100);
    while never_reads.write_all(requests.as_bytes()).is_ok() {}
    // HTTP/2 that sends nothing after its preface and settings.
    let mut silent = connect(&server);
    silent
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .expect("the server reads");
    // One body that never ends, and one that ends after three seconds.
    let mut endless = begin_request(&server, 100_000);
    let mut slow = begin_request(&server, BODY.len());

    let begin = now();
    server.request_stop();
    let endless = thread::spawn(move || {
        while endless.write_all(b" ").is_ok() {
            thread::sleep(Duration::from_millis(100));
        }
    });
    let (first, rest) = BODY.split_at(10);
    slow.write_all(first.as_bytes()).expect("the server reads");
    thread::sleep(Duration::from_secs(3));
    slow.write_all(rest.as_bytes()).expect("the server reads");
    let mut response = String::new();
    slow.read_to_string(&mut response).expect("a response");
    assert!(response.ends_with("}]}"), "{response}");
    assert_eq!(server.wait().code(), Some(0));
    let took = now() - begin;
    assert!(took < LONGEST, "{took:?}");
    endless.join().expect("no panic");
    drop((idle, never_reads, silent));
}

#[test]
fn blocked_file_system_does_not_delay_shutdown() {
    let server = ControlPlane::start_encrypted(DOCUMENT, &Authority::new());
    // Reading a named pipe blocks until someone writes.
    let [pipe, certificate] = ["pipe", "tls.crt"].map(|it| server.home().join(it));
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("it runs").success());
    fs::rename(pipe, &certificate).expect("one file system");
    // Opening it for writing blocks until the server reads.
    let never_writes = fs::File::options().write(true).open(certificate);

    let begin = now();
    assert_eq!(server.terminate().code(), Some(0));
    let took = now() - begin;
    assert!(took < LONGEST, "{took:?}");
    drop(never_writes.expect("the pipe exists"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_keeps_admitting_after_the_control_plane_stops() {
    let _exclusive = exclusive_load().await;
    let server = ControlPlane::start(DOCUMENT);
    let service = Service::start(server.address(), &[]);
    let load = Load::start([service.target()], 8);
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
async fn control_plane_restart_under_load_rejects_nothing() {
    let _exclusive = exclusive_load().await;
    let server = ControlPlane::start(DOCUMENT);
    let service = Service::start(server.address(), &[]);
    let load = Load::start([service.target()], 8);
    load.offer([300.0]);
    let leased = async {
        while service.lease("api").is_none_or(|capacity| capacity < 300.0) {
            sleep(POLL).await;
        }
    };
    timeout(TIMEOUT, leased).await.expect("it leases enough");
    let [before] = load.totals();
    let server = server.stop().restart();
    // The restored lease is known immediately. A renewal shows as a later expiry than in the
    // previous reading; the first reading may already follow one.
    let expires_in = || {
        let leases = server.get("/v1/resources/api/leases");
        let expires_in = leases["leases"][0]["expires_in"].as_f64();
        expires_in.expect("it has a lease")
    };
    let renewed = async {
        let mut last = expires_in();
        loop {
            sleep(POLL).await;
            let current = expires_in();
            if current > last {
                break;
            }
            last = current;
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
