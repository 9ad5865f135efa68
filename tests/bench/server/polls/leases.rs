//! Clients that refresh their leases at fixed times, whether the server responds quickly or not.

use std::{
    io::{self, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use doorman_bench::read_response;
use doorman_openapi::paths;
use serde_json::json;

const RESOURCES: usize = 100;
const CONNECTIONS: usize = 4;

/// Requests per second of all connections.
const RATE: f64 = 1_000.0;

/// The request of one client, which leases one resource.
pub(crate) fn request(client: &str, number: usize) -> Vec<u8> {
    let resource = format!("tenant/{:04}", number % RESOURCES);
    let resources = [json!({"resource_id": resource, "wants": 20, "has": {"capacity": 10}})];
    let body = json!({"client_id": client, "resources": resources}).to_string();
    format!(
        "POST {} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        paths::CAPACITY,
        body.len()
    )
    .into_bytes()
}

#[derive(Debug)]
pub(crate) struct Leases {
    requests: Vec<Vec<u8>>,
}

impl Leases {
    pub(crate) fn new(clients: &[String]) -> Self {
        let requests = clients.iter().enumerate();
        Self {
            requests: requests.map(|(n, client)| request(client, n)).collect(),
        }
    }

    /// Sends every request once, without pauses.
    pub(crate) fn join(&self, server: SocketAddr) -> io::Result<()> {
        let mut connection = Connection::open(server)?;
        for request in &self.requests {
            connection.exchange(request)?;
        }
        Ok(())
    }

    /// Refreshes for this long. Returns the latency of each request in milliseconds, from the time
    /// at which it is due.
    pub(crate) fn refresh_for(
        &self,
        server: SocketAddr,
        duration: Duration,
    ) -> io::Result<Vec<f64>> {
        let latencies = thread::scope(|scope| {
            let refresh = |number| scope.spawn(move || self.refresh_on(server, number, duration));
            let threads: Vec<_> = (0..CONNECTIONS).map(refresh).collect();
            let results = threads.into_iter().map(|thread| {
                let panicked = |_| io::Error::other("a client thread panicked");
                thread.join().map_err(panicked)?
            });
            results.collect::<io::Result<Vec<_>>>()
        })?;
        Ok(latencies.concat())
    }

    /// Sends the requests of one connection.
    #[expect(
        clippy::disallowed_methods,
        reason = "measures elapsed time, not a lease"
    )]
    fn refresh_on(
        &self,
        server: SocketAddr,
        number: usize,
        duration: Duration,
    ) -> io::Result<Vec<f64>> {
        let mut connection = Connection::open(server)?;
        let mut latencies = Vec::new();
        let requests = self.requests.iter().skip(number).step_by(CONNECTIONS);
        let started = Instant::now();
        for (slot, request) in (number..).step_by(CONNECTIONS).zip(requests.cycle()) {
            let due = started + Duration::from_nanos((slot as f64 / RATE * 1e9) as u64);
            if due >= started + duration {
                break;
            }
            thread::sleep(due.saturating_duration_since(Instant::now()));
            connection.exchange(request)?;
            latencies.push(due.elapsed().as_secs_f64() * 1e3);
        }
        Ok(latencies)
    }
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    response: Vec<u8>,
}

impl Connection {
    fn open(server: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Self {
            stream,
            response: vec![0; 64 * 1024],
        })
    }

    fn exchange(&mut self, request: &[u8]) -> io::Result<()> {
        self.stream.write_all(request)?;
        read_response(&mut self.stream, &mut self.response).map(drop)
    }
}
