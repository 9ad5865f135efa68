//! A service whose process is stopped (SIGSTOP) for longer than its lease lasts. The machine and
//! its clocks go on.

use std::{thread, time::Duration};

use crate::support::{Connection, ControlPlane, Service, TIMEOUT};

const DOCUMENT: &str = "
resources:
  - identifier_glob: api
    capacity: 1000
    algorithm: {kind: FAIR_SHARE, lease_length: 2, refresh_interval: 1}
";

/// After this time all earlier leases have expired.
const EXPIRED: Duration = Duration::from_millis(2_500);

/// After this time a bucket is full: it holds one second's worth.
const FULL: Duration = Duration::from_millis(1_200);

/// A connection to a service.
struct Client(Connection);

impl Client {
    fn open(service: &Service) -> Self {
        Self(Connection::open(service.address(), TIMEOUT).expect("it listens"))
    }

    fn send(&mut self) {
        self.0.send("/", None).expect("it is open");
    }

    /// Reads a response, and returns its status.
    fn receive(&mut self) -> u16 {
        self.0.receive().expect("a response").status
    }

    fn request(&mut self) -> u16 {
        self.send();
        self.receive()
    }

    fn request_until_admitted(&mut self) {
        let mut polls = (0..TIMEOUT.as_millis() / 20).map(|_| {
            thread::sleep(Duration::from_millis(20));
            self.request()
        });
        assert!(polls.any(|status| status == 200), "never admitted");
    }
}

#[test]
fn stopped_service_admits_nothing_under_an_expired_lease() {
    let server = ControlPlane::start(DOCUMENT);
    let service = Service::start(server.address(), &["--fallback", "pessimistic"]);
    let mut first = Client::open(&service);
    first.request_until_admitted();
    // After one request each, all connections are accepted.
    let mut connections: Vec<_> = (0..50).map(|_| Client::open(&service)).collect();
    for connection in &mut connections {
        connection.request();
    }
    // A full bucket could admit all of the requests below.
    thread::sleep(FULL);
    first.request();

    service.pause();
    let stopped = server.kill();
    thread::sleep(EXPIRED);
    // These requests are read on resumption, before any timer of the service has run.
    for connection in &mut connections {
        connection.send();
    }
    service.resume();
    for connection in &mut connections {
        assert_eq!(connection.receive(), 503);
    }
    for _ in 0..50 {
        thread::sleep(Duration::from_millis(10));
        assert_eq!(first.request(), 503, "the control plane is down");
    }

    let _server = stopped.restart();
    first.request_until_admitted();
}
