//! A service that is stopped for longer than its lease lasts, and then goes on as if nothing had been.

use std::{
    io::{BufRead, BufReader, Write},
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

/// After this no lease stands that was there before.
const NO_LEASE_LASTS: Duration = Duration::from_millis(2_500);
/// After this a bucket is full: it holds what comes in a second.
const A_BUCKET_FILLS: Duration = Duration::from_millis(1_200);

/// A connection that is kept.
struct Connection(BufReader<TcpStream>);

impl Connection {
    fn open(service: &Service) -> Self {
        let address = service.address().trim_start_matches("http://");
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a time");
        Self(BufReader::new(stream))
    }

    fn send(&mut self) {
        let request = b"GET / HTTP/1.1\r\nhost: service\r\n\r\n";
        self.0.get_mut().write_all(request).expect("it is open");
    }

    /// The status of the next response.
    fn status(&mut self) -> u16 {
        let (mut status, mut length) = (None, 0);
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).expect("an answer");
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse().expect("a length");
            }
            if line == "\r\n" {
                break;
            }
            status = status.or(line.split(' ').nth(1).and_then(|it| it.parse().ok()));
        }
        let mut body = vec![0; length];
        std::io::Read::read_exact(&mut self.0, &mut body).expect("its body");
        status.expect("a status")
    }

    fn ask(&mut self) -> u16 {
        self.send();
        self.status()
    }

    fn ask_until_admitted(&mut self) {
        let looks = (0..TIMEOUT.as_millis() / 20).map(|_| {
            thread::sleep(Duration::from_millis(20));
            self.ask()
        });
        assert!(
            looks.into_iter().any(|status| status == 200),
            "never admitted"
        );
    }
}

#[test]
fn a_service_that_was_stopped_past_its_lease_admits_nothing_under_it() {
    let server = ControlPlane::start(DOCUMENT);
    let service = Service::start(server.address(), &["--fallback", "pessimistic"]);
    let mut first = Connection::open(&service);
    first.ask_until_admitted();
    // It is served at once: not the sockets hold anything up.
    let mut connections: Vec<_> = (0..50).map(|_| Connection::open(&service)).collect();
    for connection in &mut connections {
        connection.ask();
    }
    // There is something left that could be spent.
    thread::sleep(A_BUCKET_FILLS);
    first.ask();

    service.pause();
    let down = server.kill();
    thread::sleep(NO_LEASE_LASTS);
    // What it finds when it goes on, before any timer of its own has run.
    for connection in &mut connections {
        connection.send();
    }
    service.resume();
    for connection in &mut connections {
        assert_eq!(connection.status(), 503);
    }
    for _ in 0..50 {
        thread::sleep(Duration::from_millis(10));
        assert_eq!(first.ask(), 503, "there is nobody to lease from");
    }

    let _server = down.restart();
    first.ask_until_admitted();
}
