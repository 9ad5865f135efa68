//! A service that is suspended (SIGSTOP) for longer than its lease lasts.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    thread,
    time::Duration,
};

use crate::support::{ControlPlane, Service, TIMEOUT};

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

/// A persistent connection.
struct Connection(BufReader<TcpStream>);

impl Connection {
    fn open(service: &Service) -> Self {
        let address = service.address().trim_start_matches("http://");
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("not zero");
        Self(BufReader::new(stream))
    }

    fn send(&mut self) {
        let request = b"GET / HTTP/1.1\r\nhost: service\r\n\r\n";
        self.0.get_mut().write_all(request).expect("it is open");
    }

    /// Reads a response, and returns its status.
    fn receive(&mut self) -> u16 {
        let (mut status, mut length) = (None, 0);
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).expect("a response");
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse().expect("a length");
            }
            if line == "\r\n" {
                break;
            }
            status = status.or(line.split(' ').nth(1).and_then(|it| it.parse().ok()));
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).expect("a body");
        status.expect("a status")
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
fn suspended_service_admits_nothing_under_an_expired_lease() {
    let server = ControlPlane::start(DOCUMENT);
    let service = Service::start(server.address(), &["--fallback", "pessimistic"]);
    let mut first = Connection::open(&service);
    first.request_until_admitted();
    // After one request each, all connections are accepted.
    let mut connections: Vec<_> = (0..50).map(|_| Connection::open(&service)).collect();
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
